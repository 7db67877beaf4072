"""Lanes that have halves of two chunks: which kernels and schedules allow it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from jitnorm.kernels.candidates import candidates
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.row_classes import ROW_CLASSES
from jitnorm.kernels.row_schedule import RowSchedule
from jitnorm.kernels.schedule import why_unfit
from jitnorm.kernels.split_chunks import may_split
from jitnorm.kernels.stores import stores_together
from jitnorm.kernels.target import Target

HOPPER = Target("sm_90a")
SPLIT = (
    "rmsnorm:hidden_size=4096",
    "rmsnorm:hidden_size=1168,residual=true,weights=2",
    "rmsnorm:hidden_size=4096,residual=true,sandwich=true,quant=e4m3/row/f32",
    "rmsnorm:hidden_size=4096,residual=true,quant=e4m3/32/ue8m0/128x4",
    "layernorm:hidden_size=4096,weight=float32,residual=true,branch_gate=true",
    "quantize:hidden_size=4096,activation=gelu",
)
WHOLE = (
    "rmsnorm:hidden_size=4104",  # a partial chunk
    "rmsnorm:hidden_size=4096,input=float32",
    "rmsnorm:hidden_size=4096,vector_bytes=8",
    "rmsnorm:hidden_size=4096,quant=e2m1/16/e4m3",
    "rmsnorm:hidden_size=4608,quant=e4m3/96/f32",
    "rmsnorm:hidden_size=4096,quant=e4m3/column/f32/linear/given",
    "quantize:hidden_size=4096,gate_columns=4096",
    "rmsnorm:hidden_size=4096,backward=true",
    "quantize:hidden_size=4096,quant=e4m3/row/f32",
)


@pytest.mark.parametrize("text", SPLIT)
def test_rows_of_16_bit_values_split_chunks_and_store_without_exchanges(text: str) -> None:
    config, schedule = KernelConfig.parse(text), RowSchedule.parse("8x1h")
    schedule = schedule if config.hidden_size == 4096 else RowSchedule.parse("3x1h")
    assert may_split(config)
    assert why_unfit(config, HOPPER, schedule) == ""
    assert not stores_together(config, schedule)
    assert any(each.splits_chunks for each in candidates(config, HOPPER, "few"))


@pytest.mark.parametrize("text", WHOLE)
def test_other_rows_have_whole_chunks(text: str) -> None:
    config = KernelConfig.parse(text)
    assert not may_split(config)
    assert not any(each.splits_chunks for of in ROW_CLASSES for each in candidates(config, HOPPER, of))
    if not config.backward:
        assert "split chunks" in why_unfit(
            config, HOPPER, RowSchedule.parse("9x1h" if "4104" in text or "4608" in text else "8x1h")
        )


@pytest.mark.parametrize("text", ["8x1wao4", "4x2uap6o1"])
def test_rows_that_are_loaded_ahead_have_whole_chunks(text: str) -> None:
    schedule = replace(RowSchedule.parse(text), splits_chunks=True)
    assert "loaded ahead" in why_unfit(KernelConfig("rmsnorm", 4096), HOPPER, schedule)


def test_a_row_of_one_warp_has_whole_chunks() -> None:
    assert "several warps" in why_unfit(KernelConfig("rmsnorm", 1536), HOPPER, RowSchedule.parse("1x3h"))
