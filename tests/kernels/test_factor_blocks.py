"""Blocks that compute the factors of streams: one row per thread, beside the blocks of rows."""

from __future__ import annotations

import pytest
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.factor_blocks import factor_rows
from jitnorm.kernels.launch_recipe import launch_recipe
from jitnorm.kernels.row_schedule import RowSchedule
from jitnorm.kernels.target import Target
from recipe_extents import evaluate

STREAMS = "quantize:hidden_size=2048,weight=none,streams=4,sinkhorn=20"


def blocks(rows: int, schedule: str, options: str = "") -> int:
    config = KernelConfig.parse(f"{STREAMS},schedule={schedule}{options}")
    return evaluate(launch_recipe(config, Target("sm_90a"))["grid"], rows)


@pytest.mark.parametrize(
    ("schedule", "rows"), [("1x4", 32), ("2x2", 64), ("4x1", 64), ("4x1b2", 128), ("4x1b4", 128), ("1x4p2", 64)]
)
def test_two_warps_of_each_block_have_a_row_per_thread(schedule: str, rows: int) -> None:
    assert factor_rows(RowSchedule.parse(schedule)) == rows


def test_they_are_added_to_the_grid() -> None:
    assert [blocks(rows, "4x1") for rows in (1, 64, 65, 1000)] == [2, 65, 67, 1016]
    assert [blocks(rows, "4x1b2") for rows in (1, 128, 129)] == [4, 258, 262]
    assert [blocks(rows, "1x4p2") for rows in (1, 64, 65)] == [2, 33, 35]


def test_where_squares_are_summed_first_blocks_of_rows_compute_the_factors_of_these() -> None:
    assert blocks(1000, "4x1", ",prenorm=true") == 1000
