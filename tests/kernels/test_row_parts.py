"""Blocks that share a row without exchanging anything: they cover it on every GPU, and form no cluster."""

from __future__ import annotations

import pytest
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.few_rows import few_rows_schedule
from jitnorm.kernels.launch_recipe import launch_recipe
from jitnorm.kernels.registers import groups_of
from jitnorm.kernels.row_parts import (
    MOST_BLOCKS,
    has_separate_parts,
    of_few_rows,
    of_long_row,
)
from jitnorm.kernels.row_schedule import RowSchedule
from jitnorm.kernels.schedule import row_schedule, why_unfit
from jitnorm.kernels.target import Target

SWIGLU = "quantize:hidden_size={0},weight=none,quant=e4m3/128/f32,gate_columns={0}"
ALONE = "quantize:hidden_size={0},weight=none,quant=e2m1/16/e4m3/128x4"
SIZES = (640, 1024, 2560, 3328, 4480, 7168, 11648, 26880, 131072, 1 << 18)
TARGETS = (Target("sm_80"), Target("sm_90a"), Target("sm_100a"))


@pytest.mark.parametrize("text", [SWIGLU, ALONE])
@pytest.mark.parametrize("size", SIZES)
def test_few_rows_have_small_blocks_that_fit_every_target(text: str, size: int) -> None:
    config = KernelConfig.parse(text.format(size))
    schedule = RowSchedule.parse(few_rows_schedule(config, TARGETS[1], "few") or str(row_schedule(config, TARGETS[0])))
    assert [why_unfit(config, target, schedule) for target in TARGETS] == [""] * len(TARGETS)
    assert schedule.warps_per_row * schedule.chunks_per_lane >= groups_of(config)
    assert few_rows_schedule(config, TARGETS[1], "usual") == ""


@pytest.mark.parametrize("groups", [*range(1, 80), 255, 256, 300])
def test_no_block_is_without_work_and_few_lanes_are(groups: int) -> None:
    schedule = of_few_rows(groups, (4, 5, 6, 7, 8, 3))
    assert schedule is not None
    of_block = schedule.warps_per_row // schedule.blocks_per_row
    assert of_block * (schedule.blocks_per_row - 1) < groups <= schedule.warps_per_row <= groups + 3
    assert of_block <= 8


def test_more_blocks_than_a_schedule_can_say_are_not_offered() -> None:
    assert of_few_rows(8 * MOST_BLOCKS + 1, (4, 8)) is None
    assert of_long_row(KernelConfig.parse(ALONE.format(1 << 18)), 16 * MOST_BLOCKS + 1) is None
    assert few_rows_schedule(KernelConfig.parse(ALONE.format(1 << 18)), TARGETS[1], "few") == ""


@pytest.mark.parametrize(
    "text",
    [
        "rmsnorm:hidden_size=4096",
        "quantize:hidden_size=4096,weight=none,quant=e4m3/row/f32",  # the scale of a row
        "quantize:hidden_size=4096,weight=none,quant=e2m1/16/e4m3/linear/row",
        "quantize:hidden_size=4608,weight=none,quant=e4m3/96/f32",  # blocks that two warps share
        "quantize:hidden_size=4096,weight=none,quant=e4m3/128/f32,batched=true,masked=true",
    ],
)
def test_rows_with_something_to_exchange_have_none(text: str) -> None:
    config = KernelConfig.parse(text)
    assert not has_separate_parts(config)
    assert "b" not in few_rows_schedule(config, TARGETS[1], "few")


def test_only_blocks_that_meet_are_a_cluster() -> None:
    hopper = TARGETS[1]
    for text, cluster in ((SWIGLU.format(4096) + ",schedule=8x1b2", 1), ("rmsnorm:hidden_size=4096,schedule=8x1b2", 2)):
        recipe = launch_recipe(KernelConfig.parse(text), hopper)
        assert (recipe["cluster"], recipe["block"]) == (cluster, 128)
    with pytest.raises(ValueError, match="blocks that share a row's statistic are 2, 4, 8"):
        row_schedule(KernelConfig.parse("rmsnorm:hidden_size=4608,schedule=9x1b3"), hopper)
