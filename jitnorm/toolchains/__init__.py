"""Toolchains compile a source text to an artifact's payload.

Example:
    >>> from jitnorm.kernels.target import Target
    >>> toolchain = select(Target("cpu"))
    >>> library = toolchain.compile('extern "C" int answer() { return 42; }', Target("cpu"))
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jitnorm.forks import no_fork
from jitnorm.kernels.target import Target
from jitnorm.toolchains.base import Toolchain
from jitnorm.toolchains.errors import CompileError, ToolchainMissingError
from jitnorm.toolchains.workplace import DEFAULT_WORKPLACES, Workplace

if TYPE_CHECKING:
    from jitnorm.toolchains.cxx import Cxx
    from jitnorm.toolchains.identity import MemoFolder
    from jitnorm.toolchains.zig import Zig

__all__ = [
    "TOOLCHAIN_NAMES",
    "CompileError",
    "Toolchain",
    "ToolchainMissingError",
    "host_compiler",
    "requested_backend",
    "select",
    "toolchain_class",
]

TOOLCHAIN_NAMES = ("nvrtc", "nvcc", "cute", "cxx", "zig")
# In order of preference: NVRTC builds in 0.1 s and has every op; nvcc takes four times as long; CuTe-DSL takes
# 0.6 s to import and lacks ops.
_FOR_CUDA = ("nvrtc", "nvcc", "cute")
# Zig's package replaces a missing compiler, but its code is for any processor and so runs slower.
_FOR_CPU = ("cxx", "zig")
_PREBUILT = "a wheel of prebuilt code, which has a launcher, too: pip install jitnorm-kernels-cpu"


def select(
    target: Target,
    backend: str = "auto",
    *,
    without: tuple[str, ...] = (),
    memo_dir: MemoFolder | None = None,
    workplaces: Sequence[Workplace] = DEFAULT_WORKPLACES,
) -> Toolchain:
    """Select the toolchain that builds for a target.

    Args:
        target: what to build for.
        backend: ``auto``, or a toolchain's name: ``cxx`` or ``zig`` for the CPU; ``nvrtc``, ``nvcc`` or ``cute`` for
            CUDA targets. ``auto`` means the first installed here; for CUDA targets, JITNORM_BACKEND if set.
        without: toolchains that ``auto`` does not choose.
        memo_dir: the folder that remembers compiler identities; see `Toolchain`.
        workplaces: factories of its working folders; see `Toolchain`.

    Raises:
        ValueError: the backend is unknown or does not build for the target.
        ToolchainMissingError: the compiler is not installed.
    """
    names: tuple[str, ...] = _FOR_CPU if target.is_cpu else _FOR_CUDA
    if target.is_cpu and backend == "auto" and os.environ.get("CXX"):
        names = ("cxx",)  # an explicitly named compiler is never replaced
    chosen_by = "backend" if backend != "auto" else "JITNORM_BACKEND"
    backend = requested_backend(target, backend)
    if backend == "auto" or (chosen_by == "JITNORM_BACKEND" and backend in without):
        allowed = tuple(name for name in names if name not in without)
        return _first_installed(allowed, target, memo_dir, workplaces)
    if backend not in names:
        choices = ", ".join(("auto", *names))
        raise ValueError(f"{chosen_by}: {backend!r} does not build for {target}; use one of {choices}")
    return toolchain_class(backend).building_for(target, memo_dir, workplaces)


def host_compiler(
    memo_dir: MemoFolder | None = None, workplaces: Sequence[Workplace] = DEFAULT_WORKPLACES
) -> Cxx | Zig:
    """Select the compiler of code for this machine's processor, as `select` does for the CPU target."""
    from jitnorm.toolchains.cxx import Cxx
    from jitnorm.toolchains.zig import Zig

    selected = select(Target("cpu"), memo_dir=memo_dir, workplaces=workplaces)
    assert isinstance(selected, (Cxx, Zig))
    return selected


def requested_backend(target: Target, backend: str = "auto") -> str:
    """The backend requested for a target, by the caller or JITNORM_BACKEND; ``auto`` if neither names one."""
    if backend != "auto" or target.is_cpu:
        return backend
    return os.environ.get("JITNORM_BACKEND") or "auto"


@no_fork()
def toolchain_class(name: str) -> type[Toolchain]:
    """Import and return the class for one of `TOOLCHAIN_NAMES`."""
    if name == "nvrtc":
        from jitnorm.toolchains.nvrtc import Nvrtc

        return Nvrtc
    if name == "nvcc":
        from jitnorm.toolchains.nvcc import Nvcc

        return Nvcc
    if name == "cute":
        from jitnorm.toolchains.cute import Cute

        return Cute
    if name == "cxx":
        from jitnorm.toolchains.cxx import Cxx

        return Cxx
    if name == "zig":
        from jitnorm.toolchains.zig import Zig

        return Zig
    raise ValueError(f"toolchain: {name!r} is not known; use one of {', '.join(TOOLCHAIN_NAMES)}")


def _first_installed(
    names: tuple[str, ...], target: Target, memo_dir: MemoFolder | None, workplaces: Sequence[Workplace]
) -> Toolchain:
    missing = []
    for name in names:
        try:
            return toolchain_class(name).building_for(target, memo_dir, workplaces)
        except ToolchainMissingError as error:
            missing.append(error)
    if len(missing) == 1:
        raise missing[0]
    looked = [f"{error.what} {', '.join(error.looked)}" for error in missing]
    remedies = [error.remedy for error in missing] + ([_PREBUILT] if target.is_cpu else [])
    remedy = "; or: ".join(remedies)
    raise ToolchainMissingError(f"a compiler for {target}", looked, remedy)
