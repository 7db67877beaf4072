"""How alike kernels are, and which of those that were measured stands for one that was not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from jitnorm.kernels.config import KernelConfig

from jitnorm.likeness import likeness, nearest

NORM = KernelConfig("rmsnorm", 4096)
NVFP4 = KernelConfig.parse("rmsnorm:hidden_size=4096,quant=e2m1/16/e4m3")
MXFP4 = KernelConfig.parse("rmsnorm:hidden_size=4096,quant=e2m1/32/ue8m0")
FLOATS = KernelConfig.parse("rmsnorm:hidden_size=4096,weight=float32,quant=e2m1/32/ue8m0")
ALONE = KernelConfig.parse("quantize:hidden_size=4096,weight=none,quant=e2m1/32/ue8m0")


def test_kernels_are_the_more_alike_the_less_they_differ_in() -> None:
    assert likeness(NORM, NORM) == 1.0
    assert 1 > likeness(NVFP4, MXFP4) > likeness(NVFP4, NORM) > likeness(NORM, ALONE) > 0
    assert likeness(NVFP4, MXFP4) > likeness(FLOATS, MXFP4) > likeness(NVFP4, FLOATS)
    assert likeness(MXFP4, ALONE) == likeness(ALONE, MXFP4)


def test_the_nearest_kernel_does_the_same_work_in_the_same_format_if_there_is_one() -> None:
    without_weight = KernelConfig.parse("rmsnorm:hidden_size=4096,weight=none,quant=e2m1/16/e4m3")
    assert nearest(without_weight, [NORM, MXFP4, NVFP4, ALONE]) == NVFP4
    assert nearest(without_weight, [NORM, ALONE]) == NORM
    assert nearest(without_weight, [ALONE]) is None


@pytest.mark.parametrize(
    "other",
    ["activation=gelu,activates_norm=true", "quant=e2m1/16/e4m3/linear/row", "quant=e2m1/16/e4m3/linear/none/up/true"],
)
def test_one_that_does_other_work_stands_in_if_none_does_the_same(other: str) -> None:
    wanted = KernelConfig.parse(f"rmsnorm:hidden_size=4096,{other}")
    alike = NVFP4 if wanted.quant else NORM
    assert nearest(wanted, [NORM, NVFP4, FLOATS, ALONE]) == alike
    of_floats = replace(wanted, input="float32", weight="float32")
    assert nearest(wanted, [NVFP4, NORM, of_floats]) == of_floats


@pytest.mark.parametrize("other", ["residual=true", "backward=true", "pair=true,second_size=512", "activation=silu"])
def test_a_kernel_of_other_tensors_has_no_nearest(other: str) -> None:
    assert nearest(KernelConfig.parse(f"rmsnorm:hidden_size=4096,{other}"), [NORM, NVFP4]) is None
