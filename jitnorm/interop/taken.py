"""How launches take arguments: as views of a call's parameters, which kernels/launcher/views.h describes, too."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from jitnorm.interop import check_shaped, framework_of
from jitnorm.kernels.numerics import ceil_div, round_up


@dataclass(frozen=True)
class Merged:
    """A tensor with its last two dimensions as one.

    Attributes:
        source: the parameter that has it.
    """

    source: str

    @property
    def numbers(self) -> tuple[int, int, int, int]:
        """The fields of the launcher's description."""
        return 0, 0, 0, 0

    def of(self, tensor: Any, _: Any) -> Any:
        """View the tensor so."""
        return check_shaped(tensor, self.source).merge_last_two(tensor)


@dataclass(frozen=True)
class Heads:
    """Some of the heads that are side by side in the last dimension of a tensor of torch, (..., count, size).

    Attributes:
        source: the parameter that has the tensor.
        start: where, in that dimension, the first begins.
        count: how many they are.
        size: elements of each.
    """

    source: str
    start: int
    count: int
    size: int

    @property
    def numbers(self) -> tuple[int, int, int, int]:
        """The fields of the launcher's description."""
        return 1, self.start, self.count, self.size

    def of(self, tensor: Any, _: Any) -> Any:
        """View the tensor so."""
        return tensor.narrow(-1, self.start, self.count * self.size).unflatten(-1, (self.count, self.size))


@dataclass(frozen=True)
class Joined:
    """The heads of a tensor of torch, (..., count, size), as one head of them all, (..., 1, count * size).

    Attributes:
        source: the parameter that has the tensor.
    """

    source: str

    @property
    def numbers(self) -> tuple[int, int, int, int]:
        """The fields of the launcher's description."""
        return 3, 0, 0, 0

    def of(self, tensor: Any, _: Any) -> Any:
        """View the tensor so."""
        *lead, count, size = tensor.shape
        return tensor.view(*lead, 1, count * size)


@dataclass(frozen=True)
class Columns:
    """The whole columns behind a tensor of torch that has their rows, (..., M, columns), with M rounded up to 4.

    Attributes:
        source: the parameter that has the tensor.
    """

    source: str

    @property
    def numbers(self) -> tuple[int, int, int, int]:
        """The fields of the launcher's description."""
        return 2, 0, 0, 0

    def of(self, tensor: Any, _: Any) -> Any:
        """View the tensor so; None if rows have other strides, or if the memory ends with the last row."""
        return columns_behind(tensor)


@dataclass(frozen=True)
class Tiles:
    """The first rows of a matrix of torch, as bytes: tiles for all rows of the call's first matrix.

    Attributes:
        source: the parameter that has the matrix.
        rows: of a tile.
        groups: how many groups the rows of the first matrix are divided into, each of which begins a tile.
    """

    source: str
    rows: int
    groups: int

    @property
    def numbers(self) -> tuple[int, int, int, int]:
        """The fields of the launcher's description."""
        return 4, 0, self.groups, self.rows

    def of(self, tensor: Any, first: Any) -> Any:
        """View the matrix so; if it has too few rows, a larger one that begins with them."""
        count = (ceil_div(first.shape[0], self.rows) + self.groups) * self.rows
        found = framework_of(tensor, self.source).with_dtype(tensor, "uint8")[:count]
        height = found.shape[0]
        if height == count:
            return found
        larger = found.new_empty((count, *found.shape[1:]))
        larger[:height] = found
        return larger


Taken = Merged | Heads | Joined | Columns | Tiles
"""How an argument is taken."""


def columns_behind(rows: Any) -> Any:
    """The view of `Columns`, for a batch, too."""
    found = _columns_behind(rows.shape, rows.stride())
    if found is None:
        return None
    shape, strides, elements = found
    last = rows.storage_offset() + elements
    has_all = last * rows.element_size() <= rows.untyped_storage().nbytes()
    return rows.as_strided(shape, strides) if has_all else None


# Cached, because it takes 3 us.
@lru_cache(maxsize=1024)
def _columns_behind(
    of_rows: tuple[int, ...], strides_of_rows: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...], int] | None:
    """The shape, strides and number of elements of the whole columns; None if rows have other strides."""
    *batch, rows, columns = of_rows
    shape = (*batch, columns, round_up(rows, 4))
    strides = tuple(math.prod(max(1, extent) for extent in shape[i + 1 :]) for i in range(len(shape)))
    return (shape, strides, math.prod(shape)) if strides_of_rows == (*strides[:-2], 1, shape[-1]) else None
