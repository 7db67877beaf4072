"""Kernels of the CPU target as `jitnorm.get_kernel` has them, but not optimized: that changes no bit and takes less.

For tests of what leads to kernels; those of the ops and the golden digests run the optimized ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from compile_once import ZIGS_CLANG
from forgetful import forget_dispatchers
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.generator import generate
from jitnorm.kernels.target import Target

from jitnorm import dispatch
from jitnorm.building import compile_kernel
from jitnorm.launcher import launcher
from jitnorm.toolchains.cxx import Cxx
from jitnorm.toolchains.search import on_path

_CPU = Target("cpu")

# No kernel throws or needs more than libc, which Python has loaded; the libraries of C++ and tables for exceptions
# would take a fifth of such a build.
_LESS_TO_LINK = ("-fno-exceptions", "-fno-asynchronous-unwind-tables", "-nostdlib", "-lm", "-lgcc")
# Else GCC copies functions into each other, also without optimization.
_INLINES = "__attribute__((always_inline))"


class _Unoptimized(Cxx):
    """Builds with the clang of zig where it is installed: without optimization it takes two thirds of GCC's time."""

    def __init__(self) -> None:
        super().__init__()
        self._compiler = on_path(ZIGS_CLANG) or self._compiler

    def flags(self, target: Target = _CPU) -> tuple[str, ...]:
        return (*("-O0" if flag == "-O3" else flag for flag in super().flags(target)), *_LESS_TO_LINK)

    def compile(self, source: str, target: Target = _CPU) -> bytes:
        return super().compile(source.replace(_INLINES, ""), target)


@cache
def unoptimized_kernel(config: KernelConfig) -> Any:
    artifact = compile_kernel(generate(config, _CPU), _Unoptimized())
    return launcher().load_kernel(artifact.manifest["recipe"], artifact.payload)


@pytest.fixture
def unoptimized(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make calls on the CPU run such kernels."""
    get_kernel = dispatch.get_kernel

    def get(config: KernelConfig, target: Target) -> Any:
        return unoptimized_kernel(config) if target.is_cpu else get_kernel(config, target)

    forget_dispatchers()
    monkeypatch.setattr(dispatch, "get_kernel", get)
    yield
    forget_dispatchers()
