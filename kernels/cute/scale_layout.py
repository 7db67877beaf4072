"""Where scales are stored, in one layout or two, and what pads them."""

from __future__ import annotations

from ..dtypes import DTYPE_OF_FORMAT, DTYPES
from ..quant_spec import SWIZZLED_COLUMNS
from .arguments import Arguments
from .constants import Constants
from .intrinsics import float_of
from .values import UInt, u32, when
from .vector_access import store_f32, store_u8


class Scales:
    """The scales of a row.

    Args:
        constants: of the kernel.
        arguments: of the kernel.
        row: the number of the row.
    """

    def __init__(self, constants: Constants, arguments: Arguments, row: UInt) -> None:
        self._constants = constants
        quant = constants.quant
        self._is_float = quant.scale_format.startswith("f32")
        self._bytes = DTYPES[DTYPE_OF_FORMAT[quant.scale_format]].bytes
        self._swizzled: UInt | None = None
        self._linear: UInt | None = None
        self._column_rows: UInt | None = None
        if quant.is_swizzled:
            self._swizzled = arguments.address("block_scale") + self._swizzled_row(row)
        if quant.both_layouts:
            self._linear = arguments.address("block_scale_unswizzled") + row * (constants.scale_columns * self._bytes)
        elif quant.is_column_major:
            self._linear = arguments.address("block_scale") + row * self._bytes
            multiple = constants.row_multiple
            self._column_rows = (arguments.rows + (multiple - 1)) // multiple * multiple
        elif not quant.is_swizzled:
            self._linear = arguments.address("block_scale") + row * (constants.scale_columns * self._bytes)

    def store(self, column: UInt, bits: UInt) -> None:
        """Stores the scale of a block."""
        if self._swizzled is not None:
            store_u8(self._swizzled + _swizzled_column(column, self._tile), bits)
        if self._linear is not None:
            self._store(self._linear + self._linear_column(column), bits)

    def store_zeros(self, first: int, thread: UInt, threads: int) -> None:
        """Zeroes what pads the row, the columns from `first` on, shared out among the threads of the row."""
        if self._swizzled is None and self._column_rows is None:
            return
        last = self._constants.padded_scale_columns
        for start in range(first, last, threads):
            column = thread + start
            with when(column < last if start + threads > last else None):
                if self._swizzled is not None:
                    store_u8(self._swizzled + _swizzled_column(column, self._tile), u32(0))
                if self._column_rows is not None and self._linear is not None:
                    self._store(self._linear + self._linear_column(column), u32(0))

    @property
    def _tile(self) -> int:
        """Bytes of a tile."""
        return self._constants.row_multiple * SWIZZLED_COLUMNS

    def _swizzled_row(self, row: UInt) -> UInt:
        """128x4: tiles of 128 rows by 4 columns, in which row m % 32 comes first, then m / 32; 8x4: row by row."""
        multiple = self._constants.row_multiple
        tile = row // multiple * (self._constants.padded_scale_columns // SWIZZLED_COLUMNS * self._tile)
        within = row % multiple
        return tile + (within % 32 * 16 + within // 32 * 4 if multiple == 128 else within * 4)

    def _linear_column(self, column: UInt) -> UInt:
        offset = column.wide() * self._bytes
        return offset if self._column_rows is None else offset * self._column_rows

    def _store(self, address: UInt, bits: UInt) -> None:
        if self._is_float:
            store_f32(address, float_of(bits))
        else:
            store_u8(address, bits)


def _swizzled_column(column: UInt, tile: int) -> UInt:
    return (column // SWIZZLED_COLUMNS * tile + column % SWIZZLED_COLUMNS).wide()
