"""When kernels signal their dependents: as late as the next launch, which takes as long as few rows, allows."""

from __future__ import annotations

import pytest
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.generator import generate
from jitnorm.kernels.row_schedule import RowSchedule
from jitnorm.kernels.schedule import why_unfit
from jitnorm.kernels.signals import awaits_stores, awaits_values, late_blocks
from jitnorm.kernels.target import Target

HOPPER = Target("sm_90a")


@pytest.mark.parametrize(("schedule", "blocks"), [("8x1wuql", 0), ("8x1wuqld", 64), ("8x1wuqd", 2**31 - 1)])
def test_norms_signal_dependents_late_if_the_schedule_says_so(schedule: str, blocks: int) -> None:
    config = KernelConfig("rmsnorm", 4096, schedule=schedule)
    assert late_blocks(config, RowSchedule.parse(schedule)) == blocks
    assert f"kLateBlocks = {blocks}," in generate(config, HOPPER).text


@pytest.mark.parametrize(
    ("size", "schedule", "is_late"),
    [(3584, "7x1wuqld", False), (4096, "8x1wuqld", True), (5120, "5x2wqld", True), (5120, "10x1wuqd", False)],
)
def test_norms_of_few_long_rows_compute_their_values_before_the_signal(size: int, schedule: str, is_late: bool) -> None:
    config = KernelConfig("rmsnorm", size, schedule=schedule)
    assert awaits_values(config, RowSchedule.parse(schedule)) is is_late
    assert f"kLateSignalsAwaitValues = {str(is_late).lower()}," in generate(config, HOPPER).text


@pytest.mark.parametrize(("schedule", "is_last"), [("8x1wuqld", False), ("8x1wuqd", True), ("8x1wuq", False)])
def test_norms_of_many_rows_store_them_before_the_signal(schedule: str, is_last: bool) -> None:
    config = KernelConfig("rmsnorm", 4096, schedule=schedule)
    assert awaits_stores(RowSchedule.parse(schedule)) is is_last
    assert f"kLateSignalsAwaitStores = {str(is_last).lower()}," in generate(config, HOPPER).text


def test_with_a_residual_only_many_rows_signal_late() -> None:
    config = KernelConfig("rmsnorm", 4096, residual=True)
    assert not why_unfit(config, HOPPER, RowSchedule.parse("8x1wqd"))
    assert "residual" in why_unfit(config, HOPPER, RowSchedule.parse("8x1wqld"))


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("quantize:hidden_size=4096,weight=none,quant=e4m3/128/f32,gate_columns=4096,schedule=8x1b2o8", 1 << 20),
        ("quantize:hidden_size=4096,weight=none,gate_columns=4096,activation=gelu,schedule=8x1b4o16", 64),
        ("quantize:hidden_size=4096,weight=none,quant=e2m1/16/e4m3,activation=relu2,schedule=8x1o4", 1 << 20),
        ("quantize:hidden_size=4096,weight=none,quant=e4m3/128/f32,schedule=8x1b2o8", 0),
        ("quantize:hidden_size=4096,weight=none,quant=e4m3/row/f32,gate_columns=4096,schedule=8x1lo2", 0),
        ("rmsnorm:hidden_size=4096,quant=e4m3/128/f32,activation=silu,activates_norm=true,schedule=8x1wql", 0),
    ],
)
def test_activations_of_separate_parts_are_computed_before_the_signal(text: str, blocks: int) -> None:
    config = KernelConfig.parse(text)
    assert late_blocks(config, RowSchedule.parse(config.schedule)) == blocks
    assert f"kLateBlocks = {blocks}," in generate(config, HOPPER).text
