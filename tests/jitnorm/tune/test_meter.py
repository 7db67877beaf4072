"""Kernels are called on tensors that their interface asks for; on the CPU, as there every op can be called."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.target import Target

from jitnorm.tune.cases import OPS, Case, plan
from jitnorm.tune.meter import DeviceMeter

CPU = Target("cpu")


def on_cpu(name: str) -> Case:
    (case,) = plan([name], [1536], ["few"], Target("sm_90a")).cases
    return replace(case, rows=(2, 3), config=case.key, schedules=())


@pytest.mark.parametrize("name", ["add fp8", "layernorm", "silu nvfp4", "mhc 4"])
def test_a_kernel_is_measured_for_each_number_of_rows(name: str) -> None:
    assert name in OPS
    case = on_cpu(name)
    meter = DeviceMeter(case, CPU, "cxx", "cpu")
    for times in (meter.time(case.config), meter.copy()):
        assert len(times) == 2
        assert all(0 < time < 1e6 for time in times)


def test_kernels_that_write_the_same_bytes_are_told_from_those_that_do_not() -> None:
    case = on_cpu("add_rmsnorm")
    meter = DeviceMeter(case, CPU, "cxx", "cpu")
    assert meter.is_same(case.config, case.config)
    other = KernelConfig.parse("rmsnorm:hidden_size=1536,residual=true,unit_bias=true")
    assert not meter.is_same(case.config, other)


def test_a_sum_and_its_norm_are_stored_in_place_and_comparing_leaves_them_alone() -> None:
    case = on_cpu("add_rmsnorm")
    meter = DeviceMeter(case, CPU, "cxx", "cpu")
    arguments = meter._runs[0].arguments[0]
    tensors = [each for each in arguments if isinstance(each, torch.Tensor)]
    assert len({id(each) for each in tensors}) == len(tensors) - 2
    before = [each.clone() for each in tensors]
    meter.is_same(case.config, case.config)
    assert all(torch.equal(a, b) for a, b in zip(before, tensors, strict=True))
