"""NVRTC: CUDA source to cubin inside this process, with no driver or host compiler."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from jitnorm.toolchains.base import Toolchain
from jitnorm.toolchains.errors import CompileError, ToolchainChangedError, ToolchainMissingError
from jitnorm.toolchains.identity import memoised
from jitnorm.toolchains.nvrtc_program import NvrtcError, cubin_of, ptx_of
from jitnorm.toolchains.search import on_sys_path, toolkit_roots

if TYPE_CHECKING:
    from jitnorm.kernels.target import Target

_LIBRARY = "libnvrtc.so.13"
_REMEDY = 'pip install "jitnorm[cuda]"'
_SOURCE_NAME = "kernel.cu"
_OPTIONS = ("--std=c++17", "--fmad=false", "--prec-div=true", "--prec-sqrt=true", "--ftz=false")
_in_use: Path | None = None  # what cuda-bindings have taken; for the rest of the process


class Nvrtc(Toolchain):
    """The NVRTC library that cuda-bindings load, found as they would: see `Toolchain`.

    A compilation cannot be interrupted: it runs on the calling thread, without a time limit.
    """

    name = "nvrtc"

    def __init__(self, memo_dir: Path | None = None, work_dir: Path | None = None) -> None:
        super().__init__(memo_dir, work_dir)
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
        _load(self._library)
        try:
            return cubin_of(source, _SOURCE_NAME, self.flags(target))
        except NvrtcError as error:
            raise CompileError(self.name, str(target), error.reason, error.log, source) from error

    def _probe(self) -> str:
        _load(self._library)
        return _build_of(ptx_of("", "empty.cu"))


def _find() -> Path:
    if on_sys_path("cuda/bindings/__init__.py") is None:
        raise ToolchainMissingError("cuda-bindings, which drive NVRTC,", ["cuda/bindings on sys.path"], _REMEDY)
    in_wheel = f"nvidia/cu13/lib/{_LIBRARY}"
    found = _in_use or _loaded_library() or on_sys_path(in_wheel)
    if found is not None:
        return found
    conda = os.environ.get("CONDA_PREFIX")
    roots = ([Path(conda)] if conda else []) + toolkit_roots()
    folders = [root / name for root in roots for name in ("lib64", "lib")]
    for folder in folders:
        if (folder / _LIBRARY).is_file():
            return folder / _LIBRARY
    found = _system_library()
    if found is None:
        places = "CONDA_PREFIX, CUDA_PATH, CUDA_HOME, the system's library folders"
        looked = [f"{in_wheel} on sys.path", *map(str, folders), places]
        remedy = f"{_REMEDY}, or set CUDA_HOME to a CUDA 13 toolkit"
        raise ToolchainMissingError(f"NVRTC 13 ({_LIBRARY})", looked, remedy)
    return found


def _loaded_library() -> Path | None:
    """The NVRTC 13 that this process has loaded already, say through PyTorch: cuda-bindings will use that one."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        found = next((line.rstrip("\n") for line in maps if f"/{_LIBRARY}" in line), None)
    if found is None:
        return None
    path = found[found.index("/") :]
    if path.endswith(" (deleted)"):
        raise ToolchainChangedError(f"nvrtc: {path} was replaced under this process; start a new one")
    return Path(path)


def _system_library() -> Path | None:
    """What the dynamic linker finds, through cuda-bindings' own search; it is slow, so it comes last."""
    from cuda.pathfinder import load_nvidia_dynamic_lib

    try:
        path = load_nvidia_dynamic_lib("nvrtc").abs_path
    except RuntimeError:
        return None
    return Path(path) if path and os.path.basename(path).startswith(_LIBRARY) else None


def _load(library: Path) -> None:
    """Load the library so that cuda-bindings take this one, and check that they do.

    They prefer a library that is loaded already. Their own search knows fewer places: packages
    that a .pth file or PYTHONPATH adds are not among them.
    """
    global _in_use
    import ctypes

    from cuda.pathfinder import load_nvidia_dynamic_lib

    if _loaded_library() is None:
        ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)
        # NVRTC 13.0's wheel lacks the run path to its second half.
        for builtins in sorted(library.parent.glob("libnvrtc-builtins.so.13.*")):
            ctypes.CDLL(str(builtins), ctypes.RTLD_GLOBAL)
    used = load_nvidia_dynamic_lib("nvrtc").abs_path
    if used is None or not os.path.samefile(used, library):
        raise ToolchainChangedError(
            f"nvrtc: the cache key was made for {library}, but this process has since loaded {used}; "
            "import the package that loads it before the first use of jitnorm"
        )
    _in_use = library


def _build_of(ptx: str) -> str:
    """The lines of a PTX header that name the compiler, as one."""
    lines = re.findall(r"^// (Compiler Build ID: .*|Cuda compilation tools, .*)$", ptx, re.MULTILINE)
    if len(lines) != 2:
        raise RuntimeError(f"nvrtc: its PTX does not name the compiler: {ptx[:200]!r}")
    return ", ".join(["NVRTC", *lines])
