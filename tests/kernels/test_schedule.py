"""A schedule assigns every chunk of a row to exactly one lane, whatever the hidden size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.config_rules import MAX_HIDDEN_SIZE
from jitnorm.kernels.numerics import CHUNK_SIZE, GROUP_CHUNKS, round_up
from jitnorm.kernels.quant_spec import QuantSpec
from jitnorm.kernels.registers import MAX_HELD_BYTES
from jitnorm.kernels.row_schedule import WARP_LANES
from jitnorm.kernels.schedule import CLUSTERS, MAX_WARPS, RowSchedule, for_many_rows, row_schedule
from jitnorm.kernels.short_rows import SINGLE_WARP_GROUPS
from jitnorm.kernels.side_by_side import FOLDING_LANES
from jitnorm.kernels.target import Target

from jitnorm.reference import CHUNK

AMPERE, HOPPER = Target("sm_80"), Target("sm_90a")
# A held row takes two or four bytes an element.
NARROW, WIDE = KernelConfig("rmsnorm", 16), KernelConfig("rmsnorm", 16, residual=True)
MANY_NARROW, MANY_WIDE = replace(NARROW, many_rows=True), replace(WIDE, many_rows=True)
MANY_LAYERNORM = KernelConfig("layernorm", 16, many_rows=True)
MANY_ENCODED = KernelConfig("rmsnorm", 16, quant=QuantSpec(), many_rows=True)
ALL = (NARROW, WIDE, MANY_NARROW, MANY_WIDE, MANY_LAYERNORM, MANY_ENCODED)
# All of a short row, and those around each whole group, within which schedules do not differ.
MOST_CHUNKS = MAX_HIDDEN_SIZE // CHUNK_SIZE
AROUND_GROUPS = (end + d for end in range(GROUP_CHUNKS, MOST_CHUNKS + 1, GROUP_CHUNKS) for d in (-1, 0, 1))
CHUNKS = sorted({*range(1, 4 * GROUP_CHUNKS), *AROUND_GROUPS} - {MOST_CHUNKS + 1})
HELD = [replace(config, hidden_size=size) for config in (NARROW, WIDE) for size in (64, 2048, 4096, 8192, 32768)]


@cache
def schedules_of(config: KernelConfig, target: Target = HOPPER) -> dict[int, RowSchedule]:
    """Schedules by their number of chunks."""
    return {chunks: row_schedule(replace(config, hidden_size=chunks * CHUNK_SIZE), target) for chunks in CHUNKS}


def all_schedules() -> Iterator[tuple[int, RowSchedule]]:
    """One hidden size for each of these numbers of chunks, and its schedules."""
    for config in ALL:
        for target in (AMPERE, HOPPER):
            yield from schedules_of(config, target).items()


def test_the_chunk_is_the_reference_s() -> None:
    assert CHUNK_SIZE == CHUNK


def test_only_the_number_of_chunks_counts() -> None:
    for chunks, expected in schedules_of(NARROW).items():
        for hidden_size in (chunks * CHUNK_SIZE - 15, chunks * CHUNK_SIZE - 1):
            assert row_schedule(replace(NARROW, hidden_size=hidden_size), HOPPER) == expected, hidden_size


@settings(deadline=None, max_examples=300)
@given(
    st.integers(SINGLE_WARP_GROUPS * GROUP_CHUNKS + 1, MOST_CHUNKS),
    st.sampled_from(ALL),
    st.sampled_from((AMPERE, HOPPER)),
)
def test_within_a_group_schedules_do_not_differ(chunks: int, config: KernelConfig, target: Target) -> None:
    """This is why testing the sizes around each whole group is enough."""
    whole = round_up(chunks, GROUP_CHUNKS)
    one, other = (replace(config, hidden_size=count * CHUNK_SIZE) for count in (chunks, whole))
    assert row_schedule(one, target) == row_schedule(other, target)


def test_every_chunk_is_owned_by_exactly_one_lane() -> None:
    most_chunks: dict[tuple[int, int, int], int] = {}
    for chunks, schedule in all_schedules():
        divided = schedule.chunks_per_lane, schedule.warps_per_row, schedule.lanes_per_row
        most_chunks[divided] = max(chunks, most_chunks.get(divided, 0))
    for (chunks_per_lane, warps, lanes), chunks in most_chunks.items():
        # As cuda/row.cuh has it: (j * warps + warp) * lanes + lane.
        j, warp, lane = np.ogrid[:chunks_per_lane, :warps, :lanes]
        owned = ((j * warps + warp) * lanes + lane).ravel()
        count = np.bincount(owned, minlength=chunks)
        assert (count[:chunks] == 1).all(), (chunks_per_lane, warps, lanes)


def test_no_lane_is_idle_that_a_smaller_schedule_would_do_without() -> None:
    for chunks, schedule in all_schedules():
        capacity = schedule.threads_per_row * schedule.chunks_per_lane
        assert chunks <= capacity, chunks
        if schedule.warps_per_row == 1:
            assert capacity < 2 * chunks, chunks
        else:
            # A row that is not held is spread over the most warps: what is idle is part of their last chunks. A
            # cluster's blocks have as many warps each.
            idle_warps = schedule.chunks_per_lane * schedule.blocks_per_row
            spare = idle_warps * GROUP_CHUNKS if schedule.holds_row else schedule.threads_per_row
            assert capacity - chunks < spare, chunks


def test_lanes_of_a_row_are_a_power_of_two_within_a_warp_or_meet_in_a_block() -> None:
    for chunks, schedule in all_schedules():
        is_in_block = schedule.lanes_per_row % FOLDING_LANES == schedule.threads % WARP_LANES == 0
        assert schedule.lanes_per_row in (1, 2, 4, 8, 16, 32) or is_in_block, chunks
        assert schedule.warps_per_row == 1 or schedule.lanes_per_row == 32, chunks


def test_blocks_fit_every_gpu() -> None:
    for chunks, schedule in all_schedules():
        assert schedule.threads <= 1024, chunks
        assert schedule.threads % 32 == 0, chunks


def test_the_last_block_ends_with_the_last_padding_row_of_a_swizzled_layout() -> None:
    for chunks, schedule in all_schedules():
        assert 128 % schedule.rows_per_block == 0, chunks
        assert schedule.rows_per_block == 1 or schedule.warps_per_row == 1, chunks


def test_the_warps_of_a_row_take_every_group_that_has_a_sum() -> None:
    """cuda/row_reduce.cuh has a sum for each warp and slot, and zeroes the rest up to a power of two."""
    for chunks, schedule in all_schedules():
        groups = -(-chunks // GROUP_CHUNKS)
        assert groups <= schedule.warps_per_row * schedule.chunks_per_lane, chunks


def test_a_row_is_held_exactly_if_the_registers_of_a_block_or_a_cluster_can_hold_it() -> None:
    for config, element_bytes in ((NARROW, 2), (WIDE, 4), (MANY_NARROW, 2), (MANY_WIDE, 4)):
        most = MAX_WARPS * GROUP_CHUNKS * MAX_HELD_BYTES // (CHUNK_SIZE * element_bytes)
        for chunks, schedule in schedules_of(config).items():
            assert schedule.holds_row == (chunks <= most * CLUSTERS[-1]), chunks
            assert (schedule.blocks_per_row == 1) == (chunks <= most), chunks
        for chunks, schedule in schedules_of(config, AMPERE).items():
            assert schedule.holds_row == (chunks <= most), chunks
            assert schedule.blocks_per_row == 1, chunks


def test_many_rows_have_a_kernel_of_their_own_only_where_its_schedule_differs() -> None:
    configs = [*HELD, *(replace(config, quant=QuantSpec.parse("e2m1/16/e4m3")) for config in HELD)]
    different = [
        row_schedule(replace(config, many_rows=True), HOPPER) != row_schedule(config, HOPPER) for config in configs
    ]
    assert [for_many_rows(config, HOPPER) != config for config in configs] == different
    assert True in different
    assert False in different


def test_a_float32_row_is_held_like_a_sum() -> None:
    assert schedules_of(KernelConfig("rmsnorm", 16, "float32")) == schedules_of(replace(WIDE, weight="float32"))
