"""Blocks that pad experts' scales: enough that rows do not wait for them, and no more than have something to do."""

from __future__ import annotations

from dataclasses import replace

import pytest
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.expert_padding import padding_blocks, padding_shares
from jitnorm.kernels.launch_recipe import launch_recipe
from jitnorm.kernels.row_schedule import RowSchedule
from jitnorm.kernels.target import Target
from recipe_extents import evaluate

CONFIG = KernelConfig.parse("quantize:hidden_size=7168,weight=none,quant=e2m1/16/e4m3/128x4,experts=8,schedule=14x1")
SCHEDULE = RowSchedule.parse(CONFIG.schedule)
HOPPER = Target("sm_90a")


def test_a_thread_zeroes_a_few_times_sixteen_bytes() -> None:
    assert padding_shares(CONFIG, SCHEDULE) * SCHEDULE.threads * 4 * 16 >= 128 * 448
    assert (padding_shares(CONFIG, SCHEDULE) - 1) * SCHEDULE.threads * 4 * 16 < 128 * 448


@pytest.mark.parametrize("experts", [1, 8, 100, 256, 1000])
def test_many_experts_have_a_block_each(experts: int) -> None:
    config = replace(CONFIG, experts=experts, schedule="14x1b2")
    shares = padding_shares(config, RowSchedule.parse(config.schedule))
    assert shares == (4 if experts <= 8 else 2 if experts == 100 else 1)


def test_a_thread_stores_no_more_than_16_times() -> None:
    config = replace(CONFIG, experts=1000, hidden_size=32768, schedule="64x1b8")
    assert padding_shares(config, RowSchedule.parse(config.schedule)) == 4


def test_padding_is_added_to_the_grid() -> None:
    def grid(config: KernelConfig) -> int:
        return evaluate(launch_recipe(config, HOPPER)["grid"], 1000)

    assert grid(CONFIG) == 1000 + 8 * 2
    assert grid(replace(CONFIG, schedule="14x1b2")) == 2 * (1000 + 16)
    assert padding_blocks(replace(CONFIG, schedule="14x1b2", experts=65), RowSchedule.parse("14x1b2")) == 98


@pytest.mark.parametrize("changed", [{"experts": 0}, {"quant": CONFIG.quant and CONFIG.quant.with_layout("linear")}])
def test_without_experts_or_tiles_of_scales_there_is_none(changed: dict[str, object]) -> None:
    assert padding_blocks(replace(CONFIG, **changed), SCHEDULE) == 0
