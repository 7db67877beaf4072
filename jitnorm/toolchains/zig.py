"""The C++ compiler of the package `ziglang`: builds host code for glibc 2.28 or later, for any machine."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from jitnorm.kernels.target import Target
from jitnorm.toolchains.base import Toolchain
from jitnorm.toolchains.cxx import OPTIONS
from jitnorm.toolchains.errors import ToolchainMissingError
from jitnorm.toolchains.identity import MemoFolder, memoised
from jitnorm.toolchains.process import ask, compile_file
from jitnorm.toolchains.search import on_path, on_sys_path
from jitnorm.toolchains.workplace import DEFAULT_WORKPLACES, Workplace

GLIBC = "2.28"
MACHINES = ("x86_64", "aarch64")
_CPU = Target("cpu")
_SOURCE_NAME = "kernel.cpp"
_OUTPUT_NAME = "kernel.so"
# Binds a library's symbols to itself: TVM-FFI exports its error class, whose typeinfo would otherwise come from
# libtvm_ffi.so, which is built with another C++ library. Not for g++: where libstdc++ is linked statically, two copies
# of its locales would meet, and formatting a number crashed.
_BINDING = "-Wl,-Bsymbolic"


class Zig(Toolchain):
    """Builds host code for other machines, or for this one if it has no compiler; see `Toolchain`.

    Links libc++ statically, and assumes no CPU features.

    Args:
        memo_dir: see `Toolchain`.
        workplaces: see `Toolchain`.
        machine: one of `MACHINES`, to build for; None for this machine.

    Raises:
        ToolchainMissingError: zig is not installed.
        ValueError: the machine is not known.
    """

    name = "zig"
    stands_in = True

    def __init__(
        self,
        memo_dir: MemoFolder | None = None,
        workplaces: Sequence[Workplace] = DEFAULT_WORKPLACES,
        machine: str | None = None,
    ) -> None:
        super().__init__(memo_dir, workplaces)
        machine = os.uname().machine if machine is None else machine
        if machine not in MACHINES:
            raise ValueError(f"machine: {machine!r} is not known; use one of {', '.join(MACHINES)}")
        found = on_sys_path("ziglang/zig") or on_path("zig")
        if found is None:
            looked = ["ziglang/zig on sys.path", "zig on PATH"]
            raise ToolchainMissingError("zig", looked, "pip install ziglang")
        self._compiler, self._machine = found, machine

    @property
    def machine(self) -> str:
        """See `Toolchain.machine`."""
        return self._machine

    @property
    def location(self) -> Path:
        """The program `zig`."""
        return self._compiler

    def identity(self) -> str:
        """See `Toolchain.identity`."""
        version = memoised([self._compiler], lambda: ask((str(self._compiler), "version")).strip(), self._memo_dir)
        return f"zig {version}, {self._triple}"

    def flags(self, target: Target = _CPU) -> tuple[str, ...]:
        """See `Toolchain.flags`."""
        return (*OPTIONS, "-nostdlib++", "-s")

    def compile(self, source: str, target: Target = _CPU) -> bytes:
        """See `Toolchain.compile`."""
        if not target.is_cpu:
            raise ValueError(f"target: zig builds for cpu, not for {target}")
        return self.build_shared(source, self.flags(target))

    def build_shared(self, source: str, flags: Sequence[str]) -> bytes:
        """Build a shared library with the given flags and those zig needs; see `Cxx.build_shared`."""
        compiler = (str(self._compiler), "c++", "-target", self._triple, "-shared", "-fPIC", _BINDING)
        return compile_file(
            (*compiler, _SOURCE_NAME, *flags, "-o", _OUTPUT_NAME),
            source=source,
            source_name=_SOURCE_NAME,
            output_name=_OUTPUT_NAME,
            toolchain=self.name,
            target=_CPU,
            workplaces=self._workplaces,
        )

    @property
    def _triple(self) -> str:
        return f"{self.machine}-linux-gnu.{GLIBC}"
