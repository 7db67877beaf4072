"""Schedules for rows of lengths that no table lists."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.numerics import ceil_div
from jitnorm.kernels.registers import groups_of
from jitnorm.kernels.row_schedule import RowSchedule
from jitnorm.kernels.schedule import why_unfit
from jitnorm.kernels.target import Target

from jitnorm.nearest_tuned import HIDDEN_SIZES, fitted, nearest_tuned
from jitnorm.tuning import schedule_for, tuning_key

HOPPER = Target("sm_90a")
WIDE, NARROW = KernelConfig("rmsnorm", 5376), KernelConfig("rmsnorm", 640)


def table(hidden_size: int, schedule: str, **options: bool) -> dict[tuple[str, str], str]:
    """A table with an entry for RMSNorm."""
    return {(str(tuning_key(KernelConfig("rmsnorm", hidden_size, **options))), "usual"): schedule}


@pytest.mark.parametrize(
    ("hidden_size", "nearest"), [(5376, 5120), (2560, 3072), (28672, 32768), (49152, 32768), (1024, 1536)]
)
def test_the_nearest_length_is_so_in_proportion(hidden_size: int, nearest: int) -> None:
    found = nearest_tuned(KernelConfig("rmsnorm", hidden_size))
    assert found is not None
    assert found.hidden_size == nearest


@pytest.mark.parametrize("hidden_size", [64, 1000, 49168, 262144, *HIDDEN_SIZES])
def test_a_length_that_is_tuned_or_far_has_none(hidden_size: int) -> None:
    assert nearest_tuned(KernelConfig("rmsnorm", hidden_size)) is None


def test_gates_of_a_whole_half_stay_so() -> None:
    found = nearest_tuned(KernelConfig("quantize", 5376, gate_columns=5376))
    assert found == KernelConfig("quantize", 5120, gate_columns=5120)
    interleaved = nearest_tuned(KernelConfig("quantize", 5376, gate_columns=8))
    assert interleaved == KernelConfig("quantize", 5120, gate_columns=8)


@given(
    warps=st.integers(1, 16),
    chunks=st.integers(1, 4),
    blocks=st.sampled_from([1, 2, 4, 8]),
    residents=st.integers(0, 16),
    hidden_size=st.integers(33, 2048).map(lambda chunks: 16 * chunks),
)
def test_a_fitted_schedule_divides_the_row(
    warps: int, chunks: int, blocks: int, residents: int, hidden_size: int
) -> None:
    """Into as many chunks per lane, or one fewer; only a lane with few registers may prevent that."""
    config = KernelConfig("rmsnorm", hidden_size)
    schedule = RowSchedule(warps * blocks, chunks, blocks_per_row=blocks, resident_blocks=residents)
    found = fitted(schedule, config)
    groups = groups_of(config)
    assert found.chunks_per_lane == ceil_div(groups, found.warps_per_row)
    assert found.warps_per_row % blocks == 0
    assert found.warps_per_row // blocks <= 16
    assert (found.resident_blocks > 0) == (residents > 0 and found.chunks_per_lane <= chunks)
    assert found.resident_blocks * found.threads <= 1536 or found.resident_blocks == 1


def test_an_unlisted_length_has_the_schedule_of_the_nearest() -> None:
    found = [table(5120, "10x1wo3")]
    assert schedule_for(WIDE, HOPPER, "usual", found) == "11x1wo3"
    assert schedule_for(WIDE, HOPPER, "some", found) == ""
    assert schedule_for(NARROW, HOPPER, "usual", found) == ""


def test_an_entry_for_the_length_itself_comes_first_also_in_another_table() -> None:
    for own in ("6x2", ""):
        assert schedule_for(WIDE, HOPPER, "usual", [table(5120, "10x1"), table(5376, own)]) == own


def test_what_does_not_fit_the_row_or_the_target_is_left_to_the_rules() -> None:
    found = [table(32768, "16x4b2")]
    config = KernelConfig("rmsnorm", 28672)
    assert schedule_for(config, HOPPER, "usual", found) == "14x4b2"
    assert schedule_for(config, Target("sm_80"), "usual", found) == ""
    assert why_unfit(config, Target("sm_80"), RowSchedule.parse("14x4b2"))
