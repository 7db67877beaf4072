"""Blocks that pad scales: enough that rows do not wait for them, and no more than have something to do."""

from __future__ import annotations

from dataclasses import replace

import pytest
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.launch_recipe import launch_recipe
from jitnorm.kernels.padding import padding_blocks, padding_shares, padding_turns, pads_scales
from jitnorm.kernels.row_schedule import RowSchedule
from jitnorm.kernels.target import Target
from recipe_extents import evaluate

CONFIG = KernelConfig.parse("quantize:hidden_size=7168,weight=none,quant=e2m1/16/e4m3/128x4,schedule=14x1")
OF_EXPERTS = replace(CONFIG, experts=8)
SCHEDULE = RowSchedule.parse(CONFIG.schedule)
HOPPER, CPU = Target("sm_90a"), Target("cpu")


def grid(config: KernelConfig, rows: int, target: Target = HOPPER, matrices: int = 1) -> int:
    return evaluate(launch_recipe(config, target)["grid"], rows, matrices)


@pytest.mark.parametrize("config", [CONFIG, OF_EXPERTS])
def test_a_thread_zeroes_a_few_times_sixteen_bytes(config: KernelConfig) -> None:
    assert padding_shares(config, SCHEDULE) * SCHEDULE.threads * 4 * 16 >= 128 * 448
    assert (padding_shares(config, SCHEDULE) - 1) * SCHEDULE.threads * 4 * 16 < 128 * 448


@pytest.mark.parametrize("experts", [1, 8, 100, 256, 1000])
def test_many_experts_have_a_block_each(experts: int) -> None:
    config = replace(CONFIG, experts=experts, schedule="14x1b2")
    shares = padding_shares(config, RowSchedule.parse(config.schedule))
    assert shares == (4 if experts <= 8 else 2 if experts == 100 else 1)


def test_a_thread_stores_no_more_than_16_times() -> None:
    config = replace(CONFIG, experts=1000, hidden_size=32768, schedule="64x1b8")
    assert padding_shares(config, RowSchedule.parse(config.schedule)) == 4


def test_a_grid_has_blocks_of_padding_only_if_there_is_some() -> None:
    assert [grid(CONFIG, rows) for rows in (0, 1, 127, 128, 129, 256)] == [0, 3, 129, 128, 131, 256]
    assert [grid(replace(CONFIG, schedule="14x1b2"), rows) for rows in (1, 128)] == [2 * (1 + 2), 2 * 128]
    assert [grid(CONFIG, rows, CPU) for rows in (0, 1, 128)] == [0, 2, 128]


def test_each_matrix_has_its_own() -> None:
    batch = replace(CONFIG, batched=True)
    assert [grid(batch, rows, matrices=5) for rows in (0, 1, 128)] == [0, 5 * 3, 5 * 128]
    assert grid(replace(batch, schedule=""), 1, CPU, matrices=5) == 10


def test_experts_share_a_grid() -> None:
    assert grid(OF_EXPERTS, 1000) == 1000 + 8 * 2
    assert grid(replace(OF_EXPERTS, schedule="14x1b2"), 1000) == 2 * (1000 + 16)
    assert padding_blocks(replace(CONFIG, schedule="14x1b2", experts=65), RowSchedule.parse("14x1b2")) == 98
    assert grid(replace(OF_EXPERTS, schedule=""), 1000, CPU) == 1000 + padding_turns(OF_EXPERTS) == 1008


@pytest.mark.parametrize("config", [CONFIG, OF_EXPERTS])
def test_without_tiles_of_scales_there_is_none(config: KernelConfig) -> None:
    assert CONFIG.quant
    linear = replace(config, quant=CONFIG.quant.with_layout("linear"))
    assert padding_blocks(linear, SCHEDULE) == padding_turns(linear) == 0


def test_persistent_blocks_pad_together() -> None:
    config = replace(CONFIG, op="rmsnorm", weight="bfloat16", schedule="7x2ao4")
    assert pads_scales(config)
    assert padding_blocks(config, RowSchedule.parse(config.schedule)) == 0
    assert grid(config, 5) == 5


def test_what_a_mask_leaves_out_is_not_padded() -> None:
    assert not pads_scales(replace(CONFIG, batched=True, masked=True))
    assert grid(replace(CONFIG, batched=True, masked=True), 1, matrices=5) == 5
