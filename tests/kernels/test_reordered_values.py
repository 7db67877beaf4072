"""Values in the order in which lanes load float32 parameters: which kernels and schedules bring them into it."""

from __future__ import annotations

import pytest
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.generator import generate
from jitnorm.kernels.reordered_values import reorders_values
from jitnorm.kernels.row_schedule import RowSchedule
from jitnorm.kernels.target import Target

HOPPER = Target("sm_90a")


@pytest.mark.parametrize(
    "text",
    [
        "layernorm:hidden_size=2048",
        "layernorm:hidden_size=2000,input=float16,keep_statistics=true",
        "layernorm:hidden_size=112",
        "layernorm:hidden_size=2048,quant=e4m3/row/f32,keep_norm=true",
        "layernorm:hidden_size=2048,quant=e4m3/32/ue8m0",
        "layernorm:hidden_size=2048,quant=int8/tensor/f32",
    ],
)
def test_layer_normalization_with_float32_parameters_reorders_values(text: str) -> None:
    assert reorders_values(KernelConfig.parse(text), RowSchedule.parse("4x1wq"))
    assert reorders_values(KernelConfig.parse(text), RowSchedule.parse("4x1qh"))


@pytest.mark.parametrize(
    "text",
    [
        "rmsnorm:hidden_size=2048,weight=float32,bias=true",
        "layernorm:hidden_size=2048,weight=bfloat16",
        "layernorm:hidden_size=2048,weight=none",
        "layernorm:hidden_size=2048,input=float32",
        "layernorm:hidden_size=2040",
        "layernorm:hidden_size=2048,vector_bytes=8",
        "layernorm:hidden_size=2048,quant=e2m1/16/e4m3",
        "layernorm:hidden_size=2048,residual=true",
        "layernorm:hidden_size=2048,backward=true",
    ],
)
def test_others_do_not(text: str) -> None:
    assert not reorders_values(KernelConfig.parse(text), RowSchedule.parse("4x1wq"))


@pytest.mark.parametrize("schedule", ["4x1u", "4x1r2", "4x1qc", "4x1uap2o1"])
def test_parameters_that_are_sorted_once_or_never_stay_so(schedule: str) -> None:
    assert not reorders_values(KernelConfig("layernorm", 2048), RowSchedule.parse(schedule))


def test_a_source_reorders_either_parameters_or_values() -> None:
    either = {
        schedule: generate(KernelConfig.parse(f"layernorm:hidden_size=2048,schedule={schedule}"), HOPPER).text
        for schedule in ("4x1", "4x1u")
    }
    assert {schedule: text.count("reorder_quarters(") for schedule, text in either.items()} == {"4x1": 3, "4x1u": 2}
