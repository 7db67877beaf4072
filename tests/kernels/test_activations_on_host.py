"""Activations on GPUs give the bytes of the CPU target.

SiLU's fast path does so where one argument of a chunk is at a bound, or past it; GELU and tables for every bfloat16.
"""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.tabulated_rows import tabulated_bits
from jitnorm.kernels.target import Target

from jitnorm.toolchains import ToolchainMissingError
from jitnorm.toolchains.nvrtc import Nvrtc

try:
    Nvrtc()
except ToolchainMissingError as error:
    pytest.skip(str(error), allow_module_level=True)

from cute_on_host import make_arrays, run_on_cpu, run_on_host

# Around the last value that takes the fast path, SiLU's bound of 86.587, and where powers of two would leave the range.
MAGNITUDES = (85.5, 86.0, 86.25, 86.5, 86.75, 87.0, 87.5, 88.5, 89.0, 89.5, 90.0, 177.0, 6e4, 1e30, math.inf, math.nan)
# The tensor with the arguments, or the weight that makes norms as large as them.
CONFIGS = {
    "quantize:hidden_size=512,gate_columns=512": "input",
    "quantize:hidden_size=512,input=float16,gate_columns=512,quant=e2m1/32/ue8m0": "input",
    "quantize:hidden_size=512,gate_columns=512,values_first=true,rounding=hf,quant=e4m3/128/f32": "input",
    "rmsnorm:hidden_size=512,gate=norm,quant=e2m1/16/e4m3": "gate",
    "rmsnorm:hidden_size=512,input=float16,weight=float16,gate=input": "gate",
    "rmsnorm:hidden_size=512,activation=silu,activates_norm=true": "weight",
    "rmsnorm:hidden_size=512,weight=float32,activation=silu,activates_norm=true,quant=e2m1/16/e4m3": "weight",
}


@pytest.mark.parametrize("text", CONFIGS)
def test_arguments_past_the_bounds_are_bounded(text: str) -> None:
    """All magnitudes in a warp, which takes the fast path as a whole or not, then those around the bound alone."""
    config, rows = KernelConfig.parse(text), 1
    for magnitudes in (MAGNITUDES, *((each,) for each in MAGNITUDES[2:5])):
        expected, actual = (make_arrays(config, rows, "random") for _ in range(2))
        for arrays in (expected, actual):
            if CONFIGS[text] == "weight":
                arrays["input"].view(_dtype_of(config, "input"))[...] = 1
            chunks = arrays[CONFIGS[text]].view(_dtype_of(config, CONFIGS[text])).reshape(-1, 16)
            with np.errstate(over="ignore"):
                for i, chunk in enumerate(chunks):  # at every place of a chunk
                    chunk[i * 5 % 16] = math.copysign(magnitudes[i // 2 % len(magnitudes)], i % 2 - 0.5)
        run_on_cpu(config, expected, 1e-5)
        run_on_host(config, Target("sm_90a"), actual, rows, 1e-5, is_cuda=True)
        for name, array in expected.items():
            assert (actual[name].view(np.uint8) == array.view(np.uint8)).all(), (name, magnitudes)


@pytest.mark.parametrize("name", ["gelu", "gelu_tanh"])
def test_gelu_of_every_bfloat16_is_rounded_to_the_same(name: str) -> None:
    config, rows = KernelConfig.parse(f"quantize:hidden_size=8192,activation={name}"), 8
    expected, actual = (make_arrays(config, rows, "random") for _ in range(2))
    for arrays in (expected, actual):
        arrays["input"].view(np.uint16).reshape(-1)[: 1 << 16] = np.arange(1 << 16)
    run_on_cpu(config, expected, 1e-5)
    run_on_host(config, Target("sm_90a"), actual, rows, 1e-5, is_cuda=True)
    assert (actual["out"].view(np.uint16) == expected["out"].view(np.uint16)).all()


@pytest.mark.parametrize("activation", ["gelu", "silu", "swish:1.702", "swish:0.25", "swigluoai", "swiglu:200:1:0"])
def test_every_bfloat16_has_the_same_activation_in_a_table(activation: str) -> None:
    """In order, so that chunks are looked up or computed as a whole, and with one value of each chunk elsewhere.

    Warps look up or compute as a whole, too: in the last row, each has one of the values at the ends of the table. Of
    large values, some activations have one for each sign, or are the value; others do not settle within the table.
    """
    text = f"quantize:hidden_size=8192,weight=none,quant=none,gate_columns=8192,activation={activation}"
    config, rows = KernelConfig.parse(f"{text},schedule=16x1mo1"), 17
    ends = [bits | sign for end in tabulated_bits() for bits in (end - 1, end) for sign in (0, 0x8000)]
    expected, actual = (make_arrays(config, rows, "random") for _ in range(2))
    for arrays in (expected, actual):
        gates = arrays["input"].view(np.uint16).reshape(rows, 2, 8192)[:, 0]
        gates[:16].reshape(2, -1)[:] = np.arange(1 << 16)
        gates[8:16, ::16] = np.arange(0, 1 << 16, 16).reshape(8, -1)[:, ::-1]
        gates[16] = np.repeat(ends, 8192 // len(ends))
    run_on_cpu(config, expected, 1e-5)
    run_on_host(config, Target("sm_90a"), actual, rows, 1e-5, most_blocks=3, is_cuda=True)
    assert (actual["out"].view(np.uint16) == expected["out"].view(np.uint16)).all()


def _dtype_of(config: KernelConfig, name: str) -> np.dtype:
    named = config.weight if name == "weight" else config.input
    return np.dtype(getattr(ml_dtypes, named) if named == "bfloat16" else named)
