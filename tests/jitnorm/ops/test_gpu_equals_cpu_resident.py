"""The GPU's bytes are the CPU target's where blocks, or pairs of them, keep copies of the parameters of a norm."""

from __future__ import annotations

import pytest
import torch
from encoded import assert_same_encoding
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.quant_spec import FP8_TENSOR, MXFP8, NVFP4, QuantSpec
from jitnorm.kernels.row_classes import class_of
from jitnorm.kernels.row_schedule import RowSchedule
from jitnorm.kernels.target import Target

import jitnorm
from jitnorm.tuning import forms_of, schedule_for, without_user_tables

# One, two or many rows for each block, also an odd number.
ROWS = (385, 1001, 1280)
# Of one block and of two, with lanes that have no chunk, and with all.
SIZES = (9216, 17184, 22048, 32768)
SPECS = (None, FP8_TENSOR, MXFP8.with_layout("128x4"), NVFP4.with_layout("128x4"))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_such_calls_keep_copies_of_the_parameters(spec: QuantSpec | None, size: int) -> None:
    """Otherwise, the tests below would not test them."""
    config, target = KernelConfig("layernorm", size, weight="float32", quant=spec, pdl=True), Target("sm_90a")
    with without_user_tables():
        forms = forms_of("sm_90a")
    for rows in ROWS:
        chosen = RowSchedule.parse(schedule_for(config, target, class_of(rows, size), {}, forms))
        assert chosen.stays_resident
        assert chosen.copies_parameters


@pytest.mark.gpu
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_layer_normalization(spec: QuantSpec | None, size: int, rows: int) -> None:
    on_cpu = random(rows, size), random(size), random(size)
    on_gpu = tuple(each.cuda() for each in on_cpu)
    if spec is None:
        assert torch.equal(jitnorm.layernorm(*on_gpu).cpu(), jitnorm.layernorm(*on_cpu))
        return
    scale = {"scale": torch.tensor([0.05])} if spec == FP8_TENSOR else {}
    expected = jitnorm.layernorm_quantize(*on_cpu, spec=spec, **scale)
    actual = jitnorm.layernorm_quantize(*on_gpu, spec=spec, **{name: each.cuda() for name, each in scale.items()})
    assert_same_encoding(actual, expected, str(spec))


def random(*shape: int) -> torch.Tensor:
    numbers = torch.Generator().manual_seed(len(shape) + shape[-1])
    drawn = torch.randn(shape, generator=numbers)
    return drawn.to(torch.bfloat16) if len(shape) == 2 else drawn
