"""Orders in which the warps of a grid advance, and in which blocks receive what others send them: a kernel's bytes
depend on neither."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from ptx_registers import Array

_MOST_STEPS = 256
_SMALL_SHARE = 1 / 32


class WarpOrder(Protocol):
    """An order; warps are in an array of blocks by warps."""

    def advancing(self, can_advance: Array) -> Array:
        """Which of the warps that can advance do so by an instruction: at least one."""

    def arriving(self, count: int) -> Array:
        """Which of the values that are on their way arrive before the next instruction."""


NewOrder = Callable[[], WarpOrder]


class Together:
    """All warps at once; what blocks send arrives at once."""

    def advancing(self, can_advance: Array) -> Array:
        return can_advance

    def arriving(self, count: int) -> Array:
        return np.arange(count)


class FirstAhead(Together):
    """The first warp of each block goes ahead as far as barriers let it: what it overwrites, others still need."""

    def advancing(self, can_advance: Array) -> Array:
        is_first = np.arange(can_advance.shape[1]) == 0
        first = can_advance & is_first
        return first if first.any() else can_advance


class Drawn:
    """Some warps for some instructions, then others; what blocks send arrives late, and not in its order.

    Often few of them: of many that advance, those that wait in a loop for another would otherwise stay the last.
    """

    def __init__(self, seed: int) -> None:
        self._numbers = np.random.default_rng(seed)
        self._favoured: Array | None = None
        self._steps = 0

    def advancing(self, can_advance: Array) -> Array:
        self._steps -= 1
        if self._favoured is None or self._steps < 0 or not (self._favoured & can_advance).any():
            share = self._numbers.choice((_SMALL_SHARE, self._numbers.random()))
            self._favoured = self._numbers.random(can_advance.shape) < share
            self._favoured[tuple(self._numbers.choice(np.argwhere(can_advance)))] = True
            self._steps = int(self._numbers.integers(_MOST_STEPS))
        return can_advance & self._favoured

    def arriving(self, count: int) -> Array:
        return np.flatnonzero(self._numbers.random(count) < 1 / _MOST_STEPS)


class HalfLater(Drawn):
    """The second half of all blocks, such as those of another rank, begins after so many instructions."""

    def __init__(self, seed: int, steps: int) -> None:
        super().__init__(seed)
        self._before = steps

    def advancing(self, can_advance: Array) -> Array:
        self._before -= 1
        first = can_advance.copy()
        first[len(first) // 2 :] &= self._before < 0
        return super().advancing(first if first.any() else can_advance)
