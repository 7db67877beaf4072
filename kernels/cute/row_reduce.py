"""Reductions over a row. The sum is one tree of additions, fixed by the hidden size alone, so that every schedule gives
the same bits; a maximum has the same bits in any order.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..numerics import CHUNK_SIZE, GROUP_CHUNKS
from .constants import Constants
from .intrinsics import add_rn, f32, fma_rn, lane_exchanged, max_magnitude
from .normalize import Normalize
from .row_sharing import Sharing
from .values import UInt, Value, select_value, when


def chunk_sum(floats: Sequence[Value]) -> Value:
    """The sum of a chunk."""
    total = f32(0.0)
    for h in floats:
        total = add_rn(total, h)
    return total


def chunk_sum_of_squares(
    constants: Constants, normalize: Normalize, floats: Sequence[Value], mean: Value, index: UInt
) -> Value:
    """The sum of squares of a chunk; what lies past the row counts as zero, also where the mean does not."""
    total = f32(0.0)
    for i, h in enumerate(floats):
        d = normalize.centered(h, mean)
        if normalize.centers and constants.has_idle_slots:
            d = select_value(is_in_row(constants, index, i), d, f32(0.0))
        total = fma_rn(d, d, total)
    return total


def is_in_row(constants: Constants, index: UInt, i: int) -> UInt:
    """Whether element i of chunk `index` belongs to the row."""
    return index * CHUNK_SIZE + i < constants.row_size


def butterfly_sum(value: Value, width: int) -> Value:
    """The sum over `width` neighbouring lanes; each of them gets it."""
    for mask in _halves(width):
        value = add_rn(value, lane_exchanged(value, mask))
    return value


def butterfly_max(value: Value, width: int) -> Value:
    """The largest magnitude over `width` neighbouring lanes; each of them gets it."""
    for mask in _halves(width):
        value = max_magnitude(value, lane_exchanged(value, mask))
    return value


class RowSum:
    """The sum over a row of a thread's chunks: add() is called by whole warps, total() by all threads of the row."""

    def __init__(self, constants: Constants, sharing: Sharing) -> None:
        self._constants, self._sharing = constants, sharing
        self._single: Value | None = None
        self._sums = sharing.allocate(constants.padded_groups) if constants.groups > 1 else None
        self._first_group = sharing.first_chunk // GROUP_CHUNKS
        self._group_stride = sharing.chunk_stride // GROUP_CHUNKS

    def add(self, of_chunk: Value, slot: UInt | int) -> None:
        """Adds the sum of the chunk in a slot."""
        sharing, schedule = self._sharing, self._constants.schedule
        total = butterfly_sum(of_chunk, schedule.lanes_per_row)
        if self._sums is None:
            self._single = total
            return
        group = self._first_group + slot * self._group_stride
        is_first = sharing.lane.equals(0)
        has_slots_past_sums = schedule.chunks_per_lane * schedule.warps_per_row > self._constants.padded_groups
        with when(is_first & (group < self._constants.padded_groups) if has_slots_past_sums else is_first):
            sharing.share(self._sums + group * 4, total)

    def total(self) -> Value:
        """The sum."""
        if self._sums is None:
            assert self._single is not None
            return self._single
        self._clear_missing_groups(self._sums)
        self._sharing.barrier()
        return self._fold(self._sums)

    def _clear_missing_groups(self, sums: UInt) -> None:
        schedule = self._constants.schedule
        covered = schedule.chunks_per_lane * schedule.warps_per_row
        for first in range(covered, self._constants.padded_groups, schedule.threads):
            group = self._sharing.thread_of_block + first
            with when(group < self._constants.padded_groups):
                self._sharing.store(sums + group * 4, f32(0.0))

    def _fold(self, sums: UInt) -> Value:
        lanes = min(self._constants.padded_groups, 32)
        first = sums + self._sharing.lane % lanes * 4
        partial = [self._sharing.shared(first + 4 * lanes * i) for i in range(self._constants.padded_groups // lanes)]
        while len(partial) > 1:
            half = len(partial) // 2
            partial = [add_rn(a, b) for a, b in zip(partial[:half], partial[half:], strict=True)]
        return butterfly_sum(partial[0], lanes)


def row_max(constants: Constants, sharing: Sharing, amax: Value) -> Value:
    """Makes of the largest magnitudes that each thread has seen that of the row."""
    schedule = constants.schedule
    amax = butterfly_max(amax, schedule.lanes_per_row)
    if schedule.warps_per_row == 1:
        return amax
    of_warps = sharing.allocate(schedule.warps_per_row)
    with when(sharing.lane.equals(0)):
        sharing.share(of_warps + sharing.warp * 4, amax)
    sharing.barrier()
    amax = f32(0.0)
    for warp in range(schedule.warps_per_row):
        amax = max_magnitude(amax, sharing.shared(of_warps + 4 * warp))
    return amax


def _halves(width: int) -> list[int]:
    """Width / 2, width / 4, ... 1."""
    return [1 << bit for bit in reversed(range(width.bit_length() - 1))]
