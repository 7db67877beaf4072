"""A schedule hands every chunk of a row to exactly one lane, whatever the hidden size."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jitnorm.kernels.config import MAX_HIDDEN_SIZE
from jitnorm.kernels.numerics import CHUNK_SIZE, GROUP_CHUNKS
from jitnorm.kernels.schedule import RowSchedule, row_schedule

from jitnorm.reference import CHUNK


def all_schedules() -> Iterator[tuple[int, RowSchedule]]:
    """One hidden size for each number of chunks, and its schedule."""
    for chunks in range(1, MAX_HIDDEN_SIZE // CHUNK_SIZE + 1):
        yield chunks, row_schedule(chunks * CHUNK_SIZE)


def test_the_chunk_is_the_reference_s() -> None:
    assert CHUNK_SIZE == CHUNK


def test_only_the_number_of_chunks_counts() -> None:
    for hidden_size in range(1, MAX_HIDDEN_SIZE + 1):
        chunks = -(-hidden_size // CHUNK_SIZE)
        assert row_schedule(hidden_size) == row_schedule(chunks * CHUNK_SIZE), hidden_size


def test_every_chunk_is_owned_by_exactly_one_lane() -> None:
    for chunks, schedule in all_schedules():
        # As cuda/norm_rows.cuh has it: (j * warps + warp) * lanes + lane.
        j, warp, lane = np.ogrid[: schedule.chunks_per_lane, : schedule.warps_per_row, : schedule.lanes_per_row]
        owned = ((j * schedule.warps_per_row + warp) * schedule.lanes_per_row + lane).ravel()
        count = np.bincount(owned, minlength=chunks)
        assert (count[:chunks] == 1).all(), chunks


def test_no_lane_is_idle_that_a_smaller_schedule_would_do_without() -> None:
    for chunks, schedule in all_schedules():
        capacity = schedule.threads_per_row * schedule.chunks_per_lane
        assert chunks <= capacity, chunks
        if schedule.warps_per_row == 1:
            assert capacity < 2 * chunks, chunks
        else:
            assert capacity - chunks < schedule.chunks_per_lane * GROUP_CHUNKS, chunks


def test_lanes_of_a_row_are_a_power_of_two_within_a_warp() -> None:
    for chunks, schedule in all_schedules():
        assert schedule.lanes_per_row in (1, 2, 4, 8, 16, 32), chunks
        assert schedule.warps_per_row == 1 or schedule.lanes_per_row == 32, chunks


def test_a_warp_s_chunks_are_one_group_of_the_row_sum() -> None:
    for chunks, schedule in all_schedules():
        assert schedule.lanes_per_row == 32 or chunks <= schedule.lanes_per_row <= GROUP_CHUNKS, chunks


def test_blocks_fit_every_gpu() -> None:
    for chunks, schedule in all_schedules():
        assert schedule.threads <= 1024, chunks
        assert schedule.threads % 32 == 0, chunks


def test_the_last_block_ends_with_the_last_padding_row_of_a_swizzled_layout() -> None:
    for chunks, schedule in all_schedules():
        assert 128 % schedule.rows_per_block == 0, chunks
        assert schedule.rows_per_block == 1 or schedule.warps_per_row == 1, chunks


def test_each_group_has_a_thread_to_zero_or_write_its_sum() -> None:
    """cuda/row_sum.cuh pads the groups to a power of two with one store a thread."""
    for chunks, schedule in all_schedules():
        groups = -(-chunks // GROUP_CHUNKS)
        padded = 1 << (groups - 1).bit_length()
        assert groups == 1 or padded <= schedule.threads, chunks
