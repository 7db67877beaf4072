"""Golden cases of ops, and their tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from golden_cases import Case
from numpy.typing import NDArray

import jitnorm

Array = NDArray[Any]
Make = Callable[[Array], Any]
Outputs = tuple[Any, ...]


@dataclass(frozen=True)
class OpCase:
    """One op: its result for arrays created by `make`, and the reference's result."""

    name: str
    call: Callable[[Make], Outputs]
    expected: Callable[[], Outputs]

    @property
    def kind_in_every_run(self) -> str:
        return self.name

    def __str__(self) -> str:
        return self.name


X = Case(384, "bfloat16", "float32")
HALVES = Case(192, "float16", "float16")


def x() -> Array:
    return X.input()


def weight() -> Array:
    return X.weight()


def wide() -> Array:
    """Float32 values of both signs, with magnitudes from 1/8 to 32."""
    return Case(4608, "float16", "float32").weight().reshape(12, 384)


def bias() -> Array:
    return Case(384, "float16", "float32").weight()[::-1].copy()


def heads() -> Array:
    """Twelve rows of three heads of 128."""
    return x().reshape(12, 3, 128)


def parts(q: jitnorm.QuantizedTensor) -> Outputs:
    return q.data, q.scale
