"""The encode stage with a scale for each block: NVFP4, MXFP4, MXFP8 and FP8 groups."""

from __future__ import annotations

from typing import NamedTuple

from cutlass.cutlass_dsl import T

from ..numerics import CHUNK_SIZE
from .arguments import Arguments
from .block_scale import BlockScale, GlobalScale, prepare_global_scale, scale_of
from .codes import encode_word, word_bound
from .constants import Constants
from .fp8_scale import global_scale_of
from .intrinsics import f32, is_less, mul_rn
from .row_reduce import butterfly_max
from .scale_layout import Scales
from .values import UInt, Value, choose, when
from .vector_access import store_chunk


class Context(NamedTuple):
    """Facts that the blocks of a row share."""

    scales: Scales
    codes: UInt
    global_scale: GlobalScale


class Encode:
    """Encodes chunks of normalized values into codes and block scales."""

    def __init__(self, constants: Constants) -> None:
        self._constants = constants
        self._lanes_per_block = constants.config.block_size // CHUNK_SIZE

    def begin_row(self, arguments: Arguments, row: UInt, row_amax: Value | None, is_writer: UInt) -> Context:
        """The context of a row, made of its largest magnitude where the scales are."""
        global_scale = global_scale_of(self._constants, arguments, row, row_amax, is_writer)
        return Context(
            Scales(self._constants, arguments, row),
            arguments.row_address("codes", row),
            prepare_global_scale(self._constants, arguments, global_scale),
        )

    def chunk(self, context: Context, index: UInt, y: list[Value], amax: Value) -> None:
        """Stores the codes of chunk `index`, and the scale of its block."""
        constants = self._constants
        block_amax = butterfly_max(amax, self._lanes_per_block)
        scale = scale_of(constants, block_amax, context.global_scale)
        codes = self._codes(y, block_amax, scale)
        with when(index < constants.chunks if constants.has_idle_slots else None):
            store_chunk(constants, context.codes, index, codes, 1, constants.access_bytes["codes"])
            is_first = None if self._lanes_per_block == 1 else (index % self._lanes_per_block).equals(0)
            with when(is_first):
                context.scales.store(index // self._lanes_per_block, scale.stored)

    def end_row(self, context: Context, thread: UInt) -> None:
        """Zeroes the columns that pad the scales of a row."""
        context.scales.store_zeros(self._constants.scale_columns, thread, self._constants.schedule.threads_per_row)

    def pad_row(self, arguments: Arguments, row: UInt, thread: UInt) -> None:
        """Zeroes the scales of a row that pads them."""
        scales = Scales(self._constants, arguments, row)
        scales.store_zeros(0, thread, self._constants.schedule.threads_per_row)

    def _codes(self, y: list[Value], block_amax: Value, scale: BlockScale) -> list[UInt]:
        bound = word_bound(self._constants)
        if not bound:
            return self._words(y, scale, is_bounded=False)
        words = choose(
            is_less(mul_rn(block_amax, scale.encode), f32(bound)),
            lambda: [word.value for word in self._words(y, scale, is_bounded=True)],
            lambda: [word.value for word in self._words(y, scale, is_bounded=False)],
            [T.i32()] * (CHUNK_SIZE // self._constants.codes_per_word),
        )
        return [UInt(word) for word in words]

    def _words(self, y: list[Value], scale: BlockScale, *, is_bounded: bool) -> list[UInt]:
        count = self._constants.codes_per_word
        return [
            (encode_word(self._constants, y[i : i + count], scale.encode, is_bounded=is_bounded) & scale.keep)
            | scale.fill
            for i in range(0, CHUNK_SIZE, count)
        ]
