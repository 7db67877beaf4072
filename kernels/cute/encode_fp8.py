"""The encode stage of FP8 with one scale for the tensor or for the row."""

from __future__ import annotations

from typing import NamedTuple

from ..numerics import CHUNK_SIZE
from .arguments import Arguments
from .codes import encode_word
from .constants import Constants
from .fp8_scale import fp8_scale_of
from .intrinsics import reciprocal_rn
from .values import UInt, Value
from .vector_access import store_chunk


class Context(NamedTuple):
    """Facts that the chunks of a row share: where their codes go, which are those of y * encode."""

    codes: UInt
    encode: Value


class Encode:
    """Encodes chunks of normalized values into codes."""

    def __init__(self, constants: Constants) -> None:
        self._constants = constants

    def begin_row(self, arguments: Arguments, row: UInt, row_amax: Value | None, is_writer: UInt) -> Context:
        """The context of a row."""
        scale = fp8_scale_of(self._constants, arguments, row, row_amax, is_writer)
        return Context(arguments.row_address("codes", row), reciprocal_rn(scale))

    def chunk(self, context: Context, index: UInt, y: list[Value], amax: Value) -> None:
        """Stores the codes of chunk `index`."""
        constants, count = self._constants, self._constants.codes_per_word
        words = [encode_word(constants, y[i : i + count], context.encode) for i in range(0, CHUNK_SIZE, count)]
        store_chunk(constants, context.codes, index, words, 1, constants.access_bytes["codes"])

    def end_row(self, context: Context, thread: UInt) -> None:
        """Nothing: no scales are padded."""

    def pad_row(self, arguments: Arguments, row: UInt, thread: UInt) -> None:
        """Nothing: no scales are padded."""
