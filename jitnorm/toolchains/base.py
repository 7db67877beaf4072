"""Toolchain: the interface between a source text and an artifact's payload."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jitnorm.toolchains.workplace import DEFAULT_WORKPLACES, Workplace

if TYPE_CHECKING:
    from typing import ClassVar

    from jitnorm.kernels.target import Target
    from jitnorm.toolchains.identity import MemoFolder


class Toolchain(ABC):
    """One compiler of this machine. Making one only looks for files; it starts and loads nothing.

    ``identity()`` and ``flags(target)`` belong in the cache key: together with the source they
    determine every byte of ``compile(source, target)``.

    Args:
        memo_dir: where identities are remembered across processes; None for no memory.
        workplaces: what makes the folders that it works in, the best first.

    Raises:
        ToolchainMissingError: the compiler is not on this machine.
    """

    name: ClassVar[str]

    def __init__(
        self, memo_dir: MemoFolder | None = None, workplaces: Sequence[Workplace] = DEFAULT_WORKPLACES
    ) -> None:
        self._memo_dir = memo_dir
        self._workplaces = workplaces

    @property
    def machine(self) -> str:
        """What its host code runs on, as ``uname -m`` calls it; this machine unless it compiles for others."""
        return os.uname().machine

    @property
    @abstractmethod
    def location(self) -> Path:
        """The compiler's file, to show to people; it has no place in a cache key."""

    @abstractmethod
    def identity(self) -> str:
        """The compiler's own version and build: one line of ASCII, the same in every process, no path."""

    @abstractmethod
    def flags(self, target: Target) -> tuple[str, ...]:
        """Every option that changes the output."""

    @abstractmethod
    def compile(self, source: str, target: Target) -> bytes:
        """The payload: a cubin for a CUDA target, a shared library for the CPU.

        Raises:
            CompileError: the compiler refused the source, crashed or exceeded the time limit.
            ValueError: this toolchain does not build for the target.
        """
