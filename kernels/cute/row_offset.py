"""Where a row starts, in elements: its index written in the mixed radix of the leading dimensions."""

from __future__ import annotations

from collections.abc import Sequence

from .values import UInt


def row_offset(row: UInt, extents: Sequence[UInt], strides: Sequence[UInt]) -> UInt:
    """The offset of a row; all are of 64 bits, and negative strides wrap around."""
    offset = None
    for extent, stride in zip(extents[:0:-1], strides[:0:-1], strict=True):
        part = row % extent * stride
        offset = part if offset is None else offset + part
        row = row // extent
    first = row * strides[0]
    return first if offset is None else offset + first
