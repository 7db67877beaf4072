"""The combine stage with a residual: a row is the float32 sum, which may be stored, too, in the input's dtype."""

from __future__ import annotations

from typing import NamedTuple

from ..dtypes import DTYPES
from .arguments import Arguments
from .constants import Constants
from .half_types import pack, unpack
from .intrinsics import add_rn
from .values import UInt, Value
from .vector_access import load_chunk, store_chunk


class RowSource(NamedTuple):
    """Where a row and its residual come from, and where the sum goes."""

    input: UInt
    residual: UInt
    sum: UInt | None


class Combine:
    """Loads chunks of a row and of its residual, whose sum is held as floats."""

    def __init__(self, constants: Constants) -> None:
        self._constants = constants
        self._dtype = constants.config.input

    def source_of(self, arguments: Arguments, row: UInt) -> RowSource:
        """Where row `row` comes from."""
        return RowSource(
            arguments.row_address("input", row),
            arguments.row_address("residual", row),
            arguments.row_address("residual_out", row),
        )

    def loaded(self, source: RowSource) -> tuple[UInt, ...]:
        """The tensors that are loaded."""
        return source.input, source.residual

    def staged(self, input: UInt, residual: UInt) -> RowSource:
        """A source that lies in shared memory."""
        return RowSource(input, residual, None)

    def load(self, source: RowSource, index: UInt) -> list[Value]:
        """Chunk `index`, as it is held."""
        access_bytes = self._constants.access_bytes
        x = load_chunk(self._constants, source.input, index, self._dtype, access_bytes["input"])
        r = load_chunk(self._constants, source.residual, index, self._dtype, access_bytes["residual"])
        pairs = zip(unpack(x, self._dtype), unpack(r, self._dtype), strict=True)
        return [add_rn(a, b) for a, b in pairs]

    def floats(self, held: list[Value]) -> list[Value]:
        """The elements of a held chunk."""
        return held

    def forget_unpacked(self, held: list[Value]) -> list[Value]:
        """The chunk: it holds floats already."""
        return held

    def store_sum(self, source: RowSource, held: list[Value], index: UInt) -> None:
        """Only once nobody will load the residual again: the sum may take its place."""
        if source.sum is None:
            return
        words = pack(held, self._dtype)
        access_bytes = self._constants.access_bytes["residual_out"]
        store_chunk(self._constants, source.sum, index, words, DTYPES[self._dtype].bytes, access_bytes)
