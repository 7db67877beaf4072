"""NVRTC: compiles CUDA source to cubins in-process, without a driver or host compiler."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jitnorm.toolchains.base import Toolchain
from jitnorm.toolchains.cuda_driver import driver_version
from jitnorm.toolchains.errors import CompileError
from jitnorm.toolchains.identity import MemoFolder, memoised
from jitnorm.toolchains.nvrtc_library import NvrtcLibrary, choose, installed_libraries, majors
from jitnorm.toolchains.workplace import DEFAULT_WORKPLACES, Workplace

if TYPE_CHECKING:
    from jitnorm.kernels.target import Target

_SOURCE_NAME = "kernel.cu"
# --minimal omits textures and device-side launches, which saves 15 of 410 ms per kernel; the machine code is the same.
_OPTIONS = ("--std=c++17", "--fmad=false", "--prec-div=true", "--prec-sqrt=true", "--ftz=false", "--minimal")


class Nvrtc(Toolchain):
    """The NVRTC library of a PyPI wheel, else of the toolkit that the environment names; see `Toolchain`.

    If both CUDA 12's and CUDA 13's are installed, it is the newest that builds for the target and whose code the driver
    loads. A compilation cannot be interrupted: it runs on the calling thread, without a time limit.

    Args:
        memo_dir: see `Toolchain`.
        workplaces: see `Toolchain`.
        target: what to build for; None for any target.

    Raises:
        ToolchainMissingError: no library is installed, or none that builds for the target.
    """

    name = "nvrtc"

    def __init__(
        self,
        memo_dir: MemoFolder | None = None,
        workplaces: Sequence[Workplace] = DEFAULT_WORKPLACES,
        target: Target | None = None,
    ) -> None:
        super().__init__(memo_dir, workplaces)
        self._library = _library_for(target).path

    @classmethod
    def building_for(cls, target: Target, memo_dir: MemoFolder | None, workplaces: Sequence[Workplace]) -> Nvrtc:
        """See `Toolchain.building_for`."""
        return cls(memo_dir, workplaces, target)

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


def _library_for(target: Target | None) -> NvrtcLibrary:
    libraries = installed_libraries()
    # The driver decides between major versions only; asking takes a few milliseconds.
    return choose(libraries, target, driver_version() if len(majors(libraries)) > 1 else None)


def _build_of(ptx: str) -> str:
    """Join the lines of a PTX header that name the compiler."""
    lines = re.findall(r"^// (Compiler Build ID: .*|Cuda compilation tools, .*)$", ptx, re.MULTILINE)
    if len(lines) != 2:
        raise RuntimeError(f"nvrtc: no compiler build in its PTX: {ptx[:200]!r}")
    return ", ".join(["NVRTC", *lines])
