"""The schedule of row-wise ops: a row stays in the registers of its threads from its only load to its store.

Short rows share a warp, rows of up to a few groups have a warp each, longer ones a block or a cluster. Rows too long
for the registers of these are loaded again for each pass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cutlass import cute

from ..padding import padding_blocks
from ..registers import has_room_for_weight
from . import combine_add, combine_none, encode_blocks, encode_fp8, encode_half
from .arguments import Arguments
from .constants import Constants
from .intrinsics import f32, max_magnitude
from .normalize import Normalize, Parameters, RowStatistic
from .row_reduce import RowSum, chunk_sum, chunk_sum_of_squares, is_in_row, row_max
from .row_sharing import Sharing
from .values import UInt, Value, loop, select, select_value, u32, when
from .vector_access import store_f32


class RowKernel:
    """The kernel of a row-wise op, traced by `process`."""

    def __init__(self, constants: Constants, arguments: Arguments) -> None:
        config = constants.config
        self._constants, self._arguments = constants, arguments
        self._sharing = Sharing(constants)
        self._normalize = Normalize(constants)
        self._combine: Any = (combine_add if config.residual else combine_none).Combine(constants)
        self._encode: Any = self._encode_stage()
        self._keep = encode_half.Encode(constants, "y_out") if config.keep_norm else None
        schedule = constants.schedule
        has_room = schedule.holds_row and has_room_for_weight(config, schedule.chunks_per_lane)
        self._prefetches_weight = schedule.prefetches_weight and has_room

    def process(self) -> None:
        """Traces the kernel."""
        constants, arguments, sharing = self._constants, self._arguments, self._sharing
        schedule, first_chunk = constants.schedule, sharing.first_chunk
        of_block = schedule.rows_per_block
        row = sharing.block.wide() * of_block
        if of_block > 1:
            row = row + (sharing.thread_of_block // schedule.threads_per_row).wide()
        self._wait_for_kernel_before()
        is_row = row < arguments.rows
        if padding := padding_blocks(constants.config, schedule):
            first = (arguments.rows + (of_block - 1)) // of_block * of_block
            with when(row >= first):
                self._pad_rows(row - first, padding * of_block)
        if of_block == 1:
            with when(is_row):
                self._process_row(row, first_chunk, None)
            return
        # All lanes are needed by the shuffles, also those without a row, which have no chunks either.
        with_row = select(is_row, row, 0)
        self._process_row(with_row, select(is_row, first_chunk, constants.chunks), is_row)

    def _wait_for_kernel_before(self) -> None:
        """Wait: the kernel before may still write what this one reads."""
        if self._constants.config.pdl:
            cute.arch.griddepcontrol_wait()

    def _launch_dependents(self) -> None:
        if self._constants.config.pdl:
            cute.arch.griddepcontrol_launch_dependents()

    def _padded_rows(self) -> UInt:
        multiple = self._constants.row_multiple
        return (self._arguments.rows + (multiple - 1)) // multiple * multiple

    def _pad_rows(self, first: UInt, stride: UInt | int) -> None:
        """Zero each `stride`-th row of scales, from row `first` of the padding on."""

        def body(row: UInt, _: list[Value]) -> list[Value]:
            self._encode.pad_row(self._arguments, row, self._sharing.thread)
            return []

        loop(self._arguments.rows + first, self._padded_rows(), stride, [], body)

    def _encode_stage(self) -> Any:
        constants, quant = self._constants, self._constants.config.quant
        if quant is None:
            return encode_half.Encode(constants)
        return (encode_blocks if quant.has_blocks else encode_fp8).Encode(constants)

    def _process_row(self, row: UInt, first_chunk: UInt, is_row: UInt | None) -> None:
        """Traces what a row takes; without `is_row`, there is one."""
        source = self._combine.source_of(self._arguments, row)
        held = self._load_row(source, first_chunk) if self._constants.schedule.holds_row else []
        parameters = self._prefetch_parameters(first_chunk)
        self._launch_dependents()
        self._sharing.begin()
        statistic, held = self._find_statistic(source, held, first_chunk)
        self._finish_row(row, source, held, parameters, first_chunk, statistic, is_row)

    def _finish_row(
        self, row: UInt, source: Any, held: list[list[Value]], parameters: list[Parameters], first_chunk: UInt,
        statistic: RowStatistic, is_row: UInt | None,
    ) -> None:  # fmt: skip
        """Traces what follows the statistic."""
        constants, arguments, sharing = self._constants, self._arguments, self._sharing
        row_amax: Value | None = None
        of_chunks: list[Value] = []
        if constants.needs_row_amax:
            row_amax, of_chunks, held = self._find_amax(source, held, parameters, first_chunk, statistic)
        is_writer = sharing.thread.equals(0) if is_row is None else sharing.thread.equals(0) & is_row
        if constants.config.keep_rstd:
            with when(is_writer):
                store_f32(arguments.address("rstd") + row * 4, statistic.rstd)
        context = self._encode.begin_row(arguments, row, row_amax, is_writer)
        kept = self._keep.begin_row(arguments, row, None, is_writer) if self._keep else None
        self._encode_row(source, held, parameters, first_chunk, statistic, of_chunks, context, kept)
        with when(is_row):
            self._encode.end_row(context, sharing.thread)

    def _prefetch_parameters(self, first_chunk: UInt) -> list[Parameters]:
        if not self._prefetches_weight:
            return []
        slots = range(self._constants.schedule.chunks_at_once)
        return [self._load_parameters_at(self._index(first_chunk, slot)) for slot in slots]

    def _index(self, first_chunk: UInt, slot: UInt | int) -> UInt:
        return first_chunk + slot * self._sharing.chunk_stride

    def _load_row(self, source: Any, first_chunk: UInt) -> list[list[Value]]:
        slots = range(self._constants.schedule.chunks_per_lane)
        return [self._combine.load(source, self._index(first_chunk, slot)) for slot in slots]

    def _forget(self, held: list[list[Value]]) -> list[list[Value]]:
        """The chunks, their floats no longer in registers, if there are many of them."""
        if self._constants.schedule.chunks_per_lane == self._constants.schedule.chunks_at_once:
            return held
        return [self._combine.forget_unpacked(chunk) for chunk in held]

    def _visit(
        self, source: Any, held: list[list[Value]], first_chunk: UInt, start: Value,
        visit: Callable[[list[Value], UInt | int, Value], Value],
    ) -> Value:  # fmt: skip
        """Calls visit(chunk, slot, last result) for each chunk of the thread; loads those that are not held."""
        chunks_per_lane = self._constants.schedule.chunks_per_lane
        if self._constants.schedule.holds_row:
            for slot, chunk in enumerate(held[:chunks_per_lane]):
                start = visit(chunk, slot, start)
            return start

        def body(slot: UInt, carried: list[Value]) -> list[Value]:
            chunk = self._combine.load(source, self._index(first_chunk, slot))
            return [visit(chunk, slot, carried[0])]

        return loop(u32(0), u32(chunks_per_lane), 1, [start], body)[0]

    def _find_statistic(
        self, source: Any, held: list[list[Value]], first_chunk: UInt
    ) -> tuple[RowStatistic, list[list[Value]]]:
        """The statistic of the row; every thread of the block takes part."""
        normalize, zero = self._normalize, f32(0.0)
        statistic = RowStatistic(zero, f32(1.0))
        if normalize.centers:
            total = RowSum(self._constants, self._sharing)

            def add(chunk: list[Value], slot: UInt | int, last: Value) -> Value:
                total.add(chunk_sum(self._combine.floats(chunk)), slot)
                return last

            self._visit(source, held, first_chunk, zero, add)
            statistic = statistic._replace(mean=normalize.mean_of(total.total()))
            held = self._forget(held)
        if normalize.normalizes:
            squares = RowSum(self._constants, self._sharing)

            def add_squares(chunk: list[Value], slot: UInt | int, last: Value) -> Value:
                floats, index = self._combine.floats(chunk), self._index(first_chunk, slot)
                squares.add(chunk_sum_of_squares(self._constants, normalize, floats, statistic.mean, index), slot)
                return last

            self._visit(source, held, first_chunk, zero, add_squares)
            statistic = statistic._replace(rstd=normalize.reciprocal_rms(squares.total(), self._arguments.eps))
            held = self._forget(held)
        return statistic, held

    def _find_amax(
        self, source: Any, held: list[list[Value]], parameters: list[Parameters], first_chunk: UInt,
        statistic: RowStatistic,
    ) -> tuple[Value, list[Value], list[list[Value]]]:  # fmt: skip
        """The largest |y| of the row, and of each chunk that is held."""
        of_chunks: list[Value] = []

        def visit(chunk: list[Value], slot: UInt | int, last: Value) -> Value:
            index = self._index(first_chunk, slot)
            chosen = parameters[slot] if isinstance(slot, int) and parameters else self._load_parameters_at(index)
            of_chunk = self._chunk_amax(self._normalize.chunk(self._combine.floats(chunk), chosen, statistic), index)
            of_chunks.append(of_chunk)
            return max_magnitude(last, of_chunk)

        amax = self._visit(source, held, first_chunk, f32(0.0), visit)
        if not self._constants.schedule.holds_row:
            of_chunks = []
        of_chunks += [f32(0.0)] * (len(held) - len(of_chunks))
        return row_max(self._constants, self._sharing, amax), of_chunks, self._forget(held)

    def _load_parameters_at(self, index: UInt) -> Parameters:
        return self._normalize.load_parameters(self._arguments, index)

    def _chunk_amax(self, y: list[Value], index: UInt) -> Value:
        """The largest magnitude of a chunk within the row; beyond, zeros become NaN if the statistic is infinite."""
        constants, normalizes, zero = self._constants, self._normalize.normalizes, f32(0.0)
        amax = zero
        for i, v in enumerate(y):
            if normalizes and constants.has_partial_chunk:
                v = select_value(is_in_row(constants, index, i), v, zero)
            amax = max_magnitude(amax, v)
        if not normalizes or not constants.has_idle_slots:
            return amax
        return select_value(index < constants.chunks, amax, zero)

    def _encode_row(
        self, source: Any, held: list[list[Value]], parameters: list[Parameters], first_chunk: UInt,
        statistic: RowStatistic, of_chunks: list[Value], context: Any, kept: Any,
    ) -> None:  # fmt: skip
        """Encodes the chunks of the thread, some at a time; what is held moves down as it is used up."""
        constants = self._constants
        at_once, slots = constants.schedule.chunks_at_once, constants.schedule.chunks_per_lane

        def encode(index: UInt, chunk: list[Value], of: Parameters, amax: Value | None) -> None:
            y = self._normalize.chunk(self._combine.floats(chunk), of, statistic)
            self._combine.store_sum(source, chunk, index)
            if self._keep:
                self._keep.chunk(kept, index, y, amax)
            if amax is None and constants.config.block_size > 1:
                amax = self._chunk_amax(y, index)
            self._encode.chunk(context, index, y, amax)

        if slots == at_once and constants.schedule.holds_row:
            for j in range(at_once):
                index = self._index(first_chunk, j)
                of = parameters[j] if parameters else self._load_parameters_at(index)
                encode(index, held[j], of, of_chunks[j] if of_chunks else None)
            return

        sizes = [len(chunk) for chunk in held]
        flat = [value for chunk in held for value in chunk] + of_chunks

        def body(slot: UInt, carried: list[Value]) -> list[Value]:
            chunks, amaxes = _split(carried, sizes)
            for j in range(at_once):
                index = self._index(first_chunk, slot + j)
                chunk = chunks[j] if chunks else self._combine.load(source, index)
                encode(index, chunk, self._load_parameters_at(index), amaxes[j] if amaxes else None)
            moved = chunks[at_once:] + chunks[len(chunks) - at_once :]
            return [value for chunk in moved for value in chunk] + amaxes[at_once:] + amaxes[len(amaxes) - at_once :]

        loop(u32(0), u32(slots), at_once, flat, body)


def _split(values: list[Value], sizes: list[int]) -> tuple[list[list[Value]], list[Value]]:
    """Chunks of some sizes, and what is left."""
    chunks, at = [], 0
    for size in sizes:
        chunks.append(values[at : at + size])
        at += size
    return chunks, values[at:]
