"""The encode stage of a plain norm: y rounded to the input's type; also where it is kept beside its codes."""

from __future__ import annotations

from ..dtypes import DTYPES
from .arguments import Arguments
from .constants import Constants
from .half_types import pack
from .values import UInt, Value
from .vector_access import store_chunk


class Encode:
    """Rounds chunks of normalized values.

    Args:
        constants: of the kernel.
        field: of the output.
    """

    def __init__(self, constants: Constants, field: str = "out") -> None:
        self._constants, self._field = constants, field

    def begin_row(self, arguments: Arguments, row: UInt, row_amax: Value | None, is_writer: UInt) -> UInt:
        """Where row `row` goes."""
        return arguments.row_address(self._field, row)

    def chunk(self, context: UInt, index: UInt, y: list[Value], amax: Value) -> None:
        """Stores chunk `index`."""
        dtype = self._constants.config.input
        access_bytes = self._constants.access_bytes[self._field]
        store_chunk(self._constants, context, index, pack(y, dtype), DTYPES[dtype].bytes, access_bytes)

    def end_row(self, context: UInt, thread: UInt) -> None:
        """Nothing: no scales are padded."""

    def pad_row(self, arguments: Arguments, row: UInt, thread: UInt) -> None:
        """Nothing: no scales are padded."""
