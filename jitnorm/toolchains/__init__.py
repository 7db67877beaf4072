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

from jitnorm.kernels.target import Target
from jitnorm.toolchains.base import Toolchain
from jitnorm.toolchains.errors import CompileError, ToolchainMissingError
from jitnorm.toolchains.workplace import DEFAULT_WORKPLACES, Workplace

if TYPE_CHECKING:
    from jitnorm.toolchains.identity import MemoFolder

__all__ = [
    "TOOLCHAIN_NAMES",
    "CompileError",
    "Toolchain",
    "ToolchainMissingError",
    "requested_backend",
    "select",
    "toolchain_class",
]

TOOLCHAIN_NAMES = ("nvrtc", "nvcc", "cute", "cxx")
# In order of preference: NVRTC builds in 0.1 s and has every op; nvcc takes four times as long; CuTe-DSL takes
# 0.6 s to import and lacks ops.
_FOR_CUDA = ("nvrtc", "nvcc", "cute")
_FOR_CPU = ("cxx",)


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
        backend: ``auto``, or a toolchain's name: ``cxx`` for the CPU; ``nvrtc``, ``nvcc`` or ``cute`` for CUDA
            targets, where ``auto`` means JITNORM_BACKEND if set, else the first of the three installed here.
        without: toolchains that ``auto`` does not choose.
        memo_dir: the folder that remembers compiler identities; see `Toolchain`.
        workplaces: factories of its working folders; see `Toolchain`.

    Raises:
        ValueError: the backend is unknown or does not build for the target.
        ToolchainMissingError: the compiler is not installed.
    """
    names = _FOR_CPU if target.is_cpu else _FOR_CUDA
    chosen_by = "backend" if backend != "auto" else "JITNORM_BACKEND"
    backend = requested_backend(target, backend)
    if backend == "auto" or (chosen_by == "JITNORM_BACKEND" and backend in without):
        allowed = tuple(name for name in names if name not in without)
        return _first_installed(allowed, target, memo_dir, workplaces)
    if backend not in names:
        choices = ", ".join(("auto", *names))
        raise ValueError(f"{chosen_by}: {backend!r} does not build for {target}; use one of {choices}")
    return toolchain_class(backend)(memo_dir, workplaces)


def requested_backend(target: Target, backend: str = "auto") -> str:
    """The backend requested for a target, by the caller or JITNORM_BACKEND; ``auto`` if neither names one."""
    if backend != "auto" or target.is_cpu:
        return backend
    return os.environ.get("JITNORM_BACKEND") or "auto"


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
    raise ValueError(f"toolchain: {name!r} is not known; use one of {', '.join(TOOLCHAIN_NAMES)}")


def _first_installed(
    names: tuple[str, ...], target: Target, memo_dir: MemoFolder | None, workplaces: Sequence[Workplace]
) -> Toolchain:
    missing = []
    for name in names:
        try:
            return toolchain_class(name)(memo_dir, workplaces)
        except ToolchainMissingError as error:
            missing.append(error)
    if len(missing) == 1:
        raise missing[0]
    looked = [f"{error.what} {', '.join(error.looked)}" for error in missing]
    remedy = "; or: ".join(error.remedy for error in missing)
    raise ToolchainMissingError(f"a compiler for {target}", looked, remedy)
