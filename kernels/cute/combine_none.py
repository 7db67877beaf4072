"""The combine stage without a residual: a row is what is loaded, held as it is."""

from __future__ import annotations

from typing import NamedTuple

from .arguments import Arguments
from .constants import Constants
from .half_types import unpack
from .intrinsics import forget
from .values import UInt, Value
from .vector_access import load_chunk


class RowSource(NamedTuple):
    """Where a row comes from."""

    input: UInt


class Combine:
    """Loads chunks of a row, which are held as words."""

    def __init__(self, constants: Constants) -> None:
        self._constants = constants

    def source_of(self, arguments: Arguments, row: UInt) -> RowSource:
        """Where row `row` comes from."""
        return RowSource(arguments.row_address("input", row))

    def loaded(self, source: RowSource) -> tuple[UInt, ...]:
        """The tensors that are loaded."""
        return (source.input,)

    def staged(self, input: UInt) -> RowSource:
        """A source that lies in shared memory."""
        return RowSource(input)

    def load(self, source: RowSource, index: UInt) -> list[Value]:
        """Chunk `index`, as it is held."""
        access_bytes = self._constants.access_bytes["input"]
        words = load_chunk(self._constants, source.input, index, self._constants.config.input, access_bytes)
        return [word.value for word in words]

    def floats(self, held: list[Value]) -> list[Value]:
        """The elements of a held chunk."""
        return unpack([UInt(word) for word in held], self._constants.config.input)

    def forget_unpacked(self, held: list[Value]) -> list[Value]:
        """The chunk, unpacked anew where it is used next: its floats take twice the registers."""
        return [forget(UInt(word)).value for word in held]

    def store_sum(self, source: RowSource, held: list[Value], index: UInt) -> None:
        """Nothing: there is no sum."""
