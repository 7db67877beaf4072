"""The GPU's bytes are the CPU target's where blocks look activations up, for every bfloat16."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from encoded import assert_same_encoding
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.quant_spec import FP8_GROUP, FP8_TENSOR, MXFP8, NVFP4, QuantSpec
from jitnorm.kernels.row_classes import class_of
from jitnorm.kernels.tabulated_rows import tabulated_schedule
from jitnorm.kernels.target import Target

import jitnorm

ROWS = 4500
SPECS = (NVFP4.with_layout("128x4"), QuantSpec("e2m1", 32, "ue8m0"), MXFP8, FP8_GROUP, FP8_TENSOR)
# With a lane for each chunk, lanes without one, and two chunks per lane.
SIZES = (4096, 4224, 8192)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_such_calls_have_a_table(spec: QuantSpec, size: int) -> None:
    """Otherwise, the tests below would not test them."""
    for gate_columns in (0, size):
        config = KernelConfig("quantize", size, weight="none", quant=spec, gate_columns=gate_columns, activation="gelu")
        assert tabulated_schedule(config, Target("sm_90a"), class_of(ROWS, size))


@pytest.mark.gpu
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.parametrize(("activation", "rounding"), [("gelu", "once"), ("silu", "output"), ("swish:1.702", "once")])
def test_activations_alone(spec: QuantSpec, size: int, activation: str, rounding: str) -> None:
    x = every_bfloat16(ROWS, size)
    expected, actual = (
        jitnorm.quantize(each, spec=spec, activation=activation, rounding=rounding, **scale_on(each, spec))
        for each in (x, x.cuda())
    )
    assert_same_encoding(actual, expected, activation)


@pytest.mark.gpu
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.parametrize(("activation", "rounding"), [("gelu", "once"), ("gelu_tanh", "hf"), ("swigluoai", "output")])
def test_activations_of_gates(spec: QuantSpec, size: int, activation: str, rounding: str) -> None:
    x = torch.cat([every_bfloat16(ROWS, size), random(ROWS, size)], dim=1)
    expected, actual = (
        jitnorm.silu_and_mul_quantize(each, spec=spec, activation=activation, rounding=rounding, **scale_on(each, spec))
        for each in (x, x.cuda())
    )
    assert_same_encoding(actual, expected, activation)


def every_bfloat16(rows: int, size: int) -> torch.Tensor:
    """Random values, and in every second row all bits in order, so that chunks are of one kind, but for every 37th."""
    x = random(rows, size)
    bits = torch.arange(rows // 2 * size).remainder(1 << 16).to(torch.int16)
    bits[::37] = bits[::37].flip(0)
    x[::2] = bits.view(torch.bfloat16).reshape(-1, size)
    return x


def random(rows: int, size: int) -> torch.Tensor:
    return torch.randn(rows, size, generator=torch.Generator().manual_seed(rows)).to(torch.bfloat16)


def scale_on(x: torch.Tensor, spec: QuantSpec) -> dict[str, Any]:
    return {"scale": torch.tensor([0.037], device=x.device)} if spec.block_size == "tensor" else {}
