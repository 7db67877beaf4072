"""The interface of toolchains, which compile a source text to an artifact's payload."""

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
    """A compiler on this machine. The constructor only looks for files; it starts and loads nothing.

    ``identity()`` and ``flags(target)`` belong in the cache key: together with the source they
    determine every byte of ``compile(source, target)``.

    Args:
        memo_dir: the folder that remembers identities across processes; None to not remember them.
        workplaces: factories of its working folders, in order of preference.

    Raises:
        ToolchainMissingError: the compiler is not on this machine.
    """

    name: ClassVar[str]
    # Whether it only stands in for better toolchains that are missing: their artifacts are preferred to building.
    stands_in: ClassVar[bool] = False

    def __init__(
        self, memo_dir: MemoFolder | None = None, workplaces: Sequence[Workplace] = DEFAULT_WORKPLACES
    ) -> None:
        self._memo_dir = memo_dir
        self._workplaces = workplaces

    @classmethod
    def building_for(cls, target: Target, memo_dir: MemoFolder | None, workplaces: Sequence[Workplace]) -> Toolchain:
        """The toolchain for a target, if the target matters; arguments and errors are those of the constructor."""
        return cls(memo_dir, workplaces)

    @property
    def machine(self) -> str:
        """The machine that its host code runs on, as in ``uname -m``; this one unless it cross-compiles."""
        return os.uname().machine

    @property
    @abstractmethod
    def location(self) -> Path:
        """The compiler's file, for display only; never part of a cache key."""

    @abstractmethod
    def identity(self) -> str:
        """The compiler's version and build: one line of ASCII, the same in every process, without paths."""

    @abstractmethod
    def flags(self, target: Target) -> tuple[str, ...]:
        """Every option that affects the output."""

    @abstractmethod
    def compile(self, source: str, target: Target) -> bytes:
        """Compile to a payload: a cubin for a CUDA target, a shared library for the CPU.

        Raises:
            CompileError: the compiler rejected the source, crashed or exceeded the time limit.
            ValueError: this toolchain does not build for the target.
        """
