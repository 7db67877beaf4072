"""Extents: sizes of tensors and grids as formulas of a call's numbers of rows and matrices.

Python evaluates them, sources contain them as C++, and launch recipes as JSON, which the launcher evaluates.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from operator import add, mod, mul
from typing import Any

from .numerics import ceil_div, round_up


class Extent(ABC):
    """A number, a symbol, or an operation on two extents.

    Example:
        >>> padded = ROWS.round_up(128) * 4
        >>> padded.evaluate(rows=130), padded.expression(), padded.to_json()
        (1024, '((((a.rows + 128 - 1) / 128) * 128) * 4)', ['*', ['round_up', 'M', 128], 4])
    """

    __slots__ = ()

    @abstractmethod
    def evaluate(self, rows: int, matrices: int = 1, second_rows: int = 0, tokens: int = 1) -> int:
        """The value for a call; the launcher has the same evaluator in C++.

        Args:
            rows: the number of rows, per matrix in a batch.
            matrices: the number of matrices.
            second_rows: the number of rows in the second row set.
            tokens: the number of tokens whose heads are the rows.
        """

    @abstractmethod
    def expression(self) -> str:
        """The formula in C++, of the `Arguments` called ``a``."""

    @abstractmethod
    def to_json(self) -> Any:
        """The form in launch recipes: a number, the name of a symbol, or ``[operator, operand, operand]``."""

    def __add__(self, other: Extent | int) -> Extent:
        return self if other == 0 else Operation(_ADD, self, extent(other))

    def __mul__(self, other: Extent | int) -> Extent:
        return Operation(_MULTIPLY, self, extent(other))

    def __mod__(self, divisor: int) -> Extent:
        return Operation(_REMAINDER, self, Number(divisor))

    def at_most(self, limit: int) -> Extent:
        """The minimum of the extent and a limit."""
        return Operation(_MIN, self, Number(limit))

    def ceil_div(self, divisor: int) -> Extent:
        """The quotient, rounded up."""
        return self if divisor == 1 else Operation(_CEIL_DIV, self, Number(divisor))

    def round_up(self, multiple: int) -> Extent:
        """The smallest multiple that is not below this extent."""
        return self if multiple == 1 else Operation(_ROUND_UP, self, Number(multiple))


@dataclass(frozen=True, slots=True)
class Number(Extent):
    """A size that every call has."""

    value: int

    def evaluate(self, rows: int, matrices: int = 1, second_rows: int = 0, tokens: int = 1) -> int:
        return self.value

    def expression(self) -> str:
        return str(self.value)

    def to_json(self) -> int:
        return self.value


@dataclass(frozen=True, slots=True)
class Symbol(Extent):
    """A count that a call brings; the names are those of launch recipes."""

    name: str

    def evaluate(self, rows: int, matrices: int = 1, second_rows: int = 0, tokens: int = 1) -> int:
        return {"M": rows, "B": matrices, "M2": second_rows, "T": tokens}[self.name]

    def expression(self) -> str:
        return {"M": "a.rows", "M2": "a.rows"}[self.name]  # a kernel sees one row set

    def to_json(self) -> str:
        return self.name


ROWS, SECOND_ROWS, MATRICES, TOKENS = Symbol("M"), Symbol("M2"), Symbol("B"), Symbol("T")
# The leading dimensions that all tensors of a row set share; only the first extent of a shape.
LEADING = Symbol("...")


@dataclass(frozen=True, slots=True)
class _Operator:
    """An operator: its name in recipes, what it computes, and its text in C++."""

    name: str
    apply: Callable[[int, int], int]
    text: str


_ADD = _Operator("+", add, "({a} + {b})")
_MULTIPLY = _Operator("*", mul, "({a} * {b})")
_MIN = _Operator("min", min, "({a} < {b} ? {a} : {b})")
_CEIL_DIV = _Operator("ceil_div", ceil_div, "(({a} + {b} - 1) / {b})")
_REMAINDER = _Operator("%", mod, "({a} % {b})")
_ROUND_UP = _Operator("round_up", round_up, "((({a} + {b} - 1) / {b}) * {b})")


@dataclass(frozen=True, slots=True)
class Operation(Extent):
    """An operator with its operands."""

    operator: _Operator
    left: Extent
    right: Extent

    def evaluate(self, rows: int, matrices: int = 1, second_rows: int = 0, tokens: int = 1) -> int:
        sizes = rows, matrices, second_rows, tokens
        return self.operator.apply(self.left.evaluate(*sizes), self.right.evaluate(*sizes))

    def expression(self) -> str:
        return self.operator.text.format(a=self.left.expression(), b=self.right.expression())

    def to_json(self) -> list[Any]:
        return [self.operator.name, self.left.to_json(), self.right.to_json()]


Shape = tuple[Extent, ...]


def extent(size: Extent | int) -> Extent:
    """Convert a number to an extent; extents are returned unchanged."""
    return Number(size) if isinstance(size, int) else size


def shape(*sizes: Extent | int) -> Shape:
    """The shape with these extents and numbers."""
    return tuple(map(extent, sizes))


def sizes_of(
    shape: Shape, leading: tuple[int, ...], rows: int, matrices: int = 1, second_rows: int = 0, tokens: int = 1
) -> tuple[int, ...]:
    """The sizes of a tensor in a call.

    Args:
        shape: its shape.
        leading: the leading dimensions of its row set.
        rows: as of `Extent.evaluate`.
        matrices: likewise.
        second_rows: likewise.
        tokens: likewise.
    """
    first = leading if LEADING in shape else ()
    return (*first, *(each.evaluate(rows, matrices, second_rows, tokens) for each in shape if each != LEADING))
