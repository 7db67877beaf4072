"""Rows summed over ranks: if each row's sum is awaited separately, each row has a block, whatever its length."""

from __future__ import annotations

from itertools import product

import pytest
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.row_schedule import WARP_LANES
from jitnorm.kernels.schedule import row_schedule
from jitnorm.kernels.target import Target

TARGETS = (Target("sm_80"), Target("sm_90a"), Target("sm_100a"))


@pytest.mark.parametrize("norm", ["rmsnorm", "layernorm"])
@pytest.mark.parametrize("quant", ["none", "e4m3/row/f32", "e4m3/tensor/f32", "e5m2/row/f32"])
@pytest.mark.parametrize("size", [8, 40, 512, 544, 1000, 2048, 4096, 5120, 7168])
def test_a_row_that_ranks_pass_on_has_a_block(norm: str, quant: str, size: int) -> None:
    sums, rows = (
        KernelConfig.parse(f"{norm}:hidden_size={size},quant={quant},all_reduce={how},ranks=2,rounds_sum=true")
        for how in ("two_shot", "one_shot_scatter")
    )
    for config, target in product((sums, rows), TARGETS):
        schedule = row_schedule(config, target)
        assert (schedule.rows_per_block, schedule.rows_at_once, schedule.loads_ahead) == (1, 1, False)
        assert schedule.threads % WARP_LANES == 0


@pytest.mark.parametrize("how", ["two_shot", "one_shot_scatter"])
def test_a_schedule_by_which_rows_share_a_block_is_refused(how: str) -> None:
    text = f"rmsnorm:hidden_size=4096,all_reduce={how},ranks=2,rounds_sum=true,schedule=4x2r2"
    with pytest.raises(ValueError, match="schedule: is '4x2r2', with which rows share a block"):
        row_schedule(KernelConfig.parse(text), TARGETS[1])
