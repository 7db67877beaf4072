"""Toolchains: what turns a source text into an artifact's payload.

Example:
    >>> from jitnorm.kernels.target import Target
    >>> toolchain = select(Target("cpu"))
    >>> library = toolchain.compile('extern "C" int answer() { return 42; }', Target("cpu"))
"""

from __future__ import annotations

import os
from pathlib import Path

from jitnorm.kernels.target import Target
from jitnorm.toolchains.base import Toolchain
from jitnorm.toolchains.errors import CompileError, ToolchainMissingError

__all__ = [
    "TOOLCHAIN_NAMES",
    "CompileError",
    "Toolchain",
    "ToolchainMissingError",
    "select",
    "toolchain_class",
]

TOOLCHAIN_NAMES = ("nvrtc", "nvcc", "cxx")
_FOR_CUDA = ("nvrtc", "nvcc")  # in order of preference
_FOR_CPU = ("cxx",)


def select(
    target: Target, backend: str = "auto", *, memo_dir: Path | None = None, work_dir: Path | None = None
) -> Toolchain:
    """The toolchain that builds for a target.

    Args:
        target: what to build for.
        backend: ``auto``, or a toolchain's name: ``cxx`` for the CPU; ``nvrtc`` or ``nvcc`` for CUDA
            targets. There ``auto`` is what the variable JITNORM_BACKEND says, else the first of the
            two that this machine has.
        memo_dir: folder in which compiler identities are remembered; see `Toolchain`.
        work_dir: folder for temporary folders; see `Toolchain`.

    Raises:
        ValueError: the backend is unknown or does not build for the target.
        ToolchainMissingError: this machine has no such compiler.
    """
    names, chosen_by = (_FOR_CPU if target.is_cpu else _FOR_CUDA), "backend"
    if backend == "auto" and not target.is_cpu:
        backend, chosen_by = os.environ.get("JITNORM_BACKEND") or "auto", "JITNORM_BACKEND"
    if backend == "auto":
        return _first_installed(names, target, memo_dir, work_dir)
    if backend not in names:
        allowed = ", ".join(("auto", *names))
        raise ValueError(f"{chosen_by}: {backend!r} does not build for {target}; use one of {allowed}")
    return toolchain_class(backend)(memo_dir, work_dir)


def toolchain_class(name: str) -> type[Toolchain]:
    """The class behind one of `TOOLCHAIN_NAMES`; imports only this one."""
    if name == "nvrtc":
        from jitnorm.toolchains.nvrtc import Nvrtc

        return Nvrtc
    if name == "nvcc":
        from jitnorm.toolchains.nvcc import Nvcc

        return Nvcc
    if name == "cxx":
        from jitnorm.toolchains.cxx import Cxx

        return Cxx
    raise ValueError(f"toolchain: {name!r} is not known; use one of {', '.join(TOOLCHAIN_NAMES)}")


def _first_installed(names: tuple[str, ...], target: Target, memo_dir: Path | None, work_dir: Path | None) -> Toolchain:
    missing = []
    for name in names:
        try:
            return toolchain_class(name)(memo_dir, work_dir)
        except ToolchainMissingError as error:
            missing.append(error)
    if len(missing) == 1:
        raise missing[0]
    looked = [f"{error.what} {', '.join(error.looked)}" for error in missing]
    remedy = "; or: ".join(error.remedy for error in missing)
    raise ToolchainMissingError(f"a compiler for {target}", looked, remedy)
