"""NVRTC: compiles CUDA source to cubins in-process, without a driver or host compiler."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jitnorm.toolchains.base import Toolchain
from jitnorm.toolchains.errors import CompileError, ToolchainMissingError
from jitnorm.toolchains.identity import MemoFolder, memoised
from jitnorm.toolchains.search import on_sys_path, toolkit_roots
from jitnorm.toolchains.workplace import DEFAULT_WORKPLACES, Workplace

if TYPE_CHECKING:
    from jitnorm.kernels.target import Target

_LIBRARY = "libnvrtc.so.13"
_REMEDY = 'pip install "jitnorm[cuda]", or set CUDA_HOME to a CUDA 13 toolkit'
_SOURCE_NAME = "kernel.cu"
# --minimal omits textures and device-side launches, which saves 15 of 410 ms per kernel; the machine code is the same.
_OPTIONS = ("--std=c++17", "--fmad=false", "--prec-div=true", "--prec-sqrt=true", "--ftz=false", "--minimal")
_SYSTEM_FOLDERS = ("/usr/local/cuda/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64")


class Nvrtc(Toolchain):
    """The NVRTC library of the PyPI wheel, else of the toolkit that the environment names; see `Toolchain`.

    A compilation cannot be interrupted: it runs on the calling thread, without a time limit.
    """

    name = "nvrtc"

    def __init__(
        self, memo_dir: MemoFolder | None = None, workplaces: Sequence[Workplace] = DEFAULT_WORKPLACES
    ) -> None:
        super().__init__(memo_dir, workplaces)
        self._library = _find()

    @property
    def location(self) -> Path:
        """The library."""
        return self._library

    def identity(self) -> str:
        """See `Toolchain.identity`."""
        return memoised([self._library], self._probe, self._memo_dir)

    def flags(self, target: Target) -> tuple[str, ...]:
        """See `Toolchain.flags`."""
        return (f"--gpu-architecture={target}", *_OPTIONS)

    def compile(self, source: str, target: Target) -> bytes:
        """See `Toolchain.compile`."""
        if target.is_cpu:
            raise ValueError("target: nvrtc builds for CUDA targets, not for cpu")
        from jitnorm.toolchains.nvrtc_program import NvrtcError, cubin_of

        try:
            return cubin_of(self._library, source, _SOURCE_NAME, self.flags(target))
        except NvrtcError as error:
            raise CompileError(self.name, str(target), error.reason, error.log, source) from error

    def _probe(self) -> str:
        from jitnorm.toolchains.nvrtc_program import ptx_of

        return _build_of(ptx_of(self._library, "", "empty.cu"))


def _find() -> Path:
    in_wheel = f"nvidia/cu13/lib/{_LIBRARY}"
    found = on_sys_path(in_wheel)
    if found is not None:
        return found
    conda = os.environ.get("CONDA_PREFIX")
    roots = ([Path(conda)] if conda else []) + toolkit_roots()
    folders = [str(root / name) for root in roots for name in ("lib64", "lib")]
    folders += filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep))
    folders += _SYSTEM_FOLDERS
    for folder in folders:
        path = Path(folder, _LIBRARY)
        if os.path.isfile(path):
            return path.absolute()
    raise ToolchainMissingError(f"NVRTC 13 ({_LIBRARY})", [f"{in_wheel} on sys.path", *folders], _REMEDY)


def _build_of(ptx: str) -> str:
    """Join the lines of a PTX header that name the compiler."""
    lines = re.findall(r"^// (Compiler Build ID: .*|Cuda compilation tools, .*)$", ptx, re.MULTILINE)
    if len(lines) != 2:
        raise RuntimeError(f"nvrtc: no compiler build in its PTX: {ptx[:200]!r}")
    return ", ".join(["NVRTC", *lines])
