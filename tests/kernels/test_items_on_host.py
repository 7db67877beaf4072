"""The PTX of CUDA C++ kernels on independent items, run on the host, writes the CPU's bytes.

The CPU computes several columns at once, as vectors; a thread of a GPU computes one.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from cute_on_host import DTYPES_IN_C, Arrays, run_on_cpu, run_on_host
from inputs import ALL_DTYPES, make_input
from jitnorm.kernels.arguments import TensorArgument
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.extents import sizes_of
from jitnorm.kernels.interface import tensor_arguments
from jitnorm.kernels.target import Target

ROWS = 64
# Several vectors of columns, with or without a rest.
KERNELS = (
    "quantize:hidden_size=48,weight=none,quant=e2m1/16/e4m3,axis=0",
    "quantize:hidden_size=35,weight=none,quant=e2m1/32/ue8m0,axis=0",
    "quantize:hidden_size=35,weight=none,quant=e2m1/16/e4m3/linear/given/up/true,axis=0,input=float16",
    "quantize:hidden_size=33,weight=none,quant=e2m1/16/e4m3,axis=0,input=float32",
    "mhc_post:hidden_size=64,streams=4",
    "mhc_post:hidden_size=37,streams=2,input=float16,vector_bytes=2",
    "mhc_post:hidden_size=40,streams=3,input=float32",
)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_100a"])
@pytest.mark.parametrize("text", KERNELS)
def test_items_have_the_bytes_of_the_cpu(text: str, target: str) -> None:
    config = KernelConfig.parse(text)
    for kind in ("random", "spiky", "nan"):
        expected, actual = arrays_of(config, kind), arrays_of(config, kind)
        run_on_cpu(config, expected, 0.0)
        run_on_host(config, Target(target), actual, ROWS, 0.0, is_cuda=True)
        for name, array in expected.items():
            assert (actual[name].view(np.uint8) == array.view(np.uint8)).all(), (kind, name)


def arrays_of(config: KernelConfig, kind: str) -> Arrays:
    return {
        argument.name: _array(config, argument, kind, seed) for seed, argument in enumerate(tensor_arguments(config))
    }


def _array(config: KernelConfig, argument: TensorArgument, kind: str, seed: int) -> np.ndarray:
    shape, dtype = sizes_of(argument.shape, (ROWS,), ROWS), np.dtype(DTYPES_IN_C[argument.c_type])
    if argument.is_output:
        return np.zeros(shape, dtype)
    if argument.name == "global_scale":
        return np.full(shape, 37.5, np.float32)
    named = config.input if dtype != np.float32 else "float32"
    numbers = make_input(kind, shape[0], math.prod(shape[1:]), named, seed)
    assert numbers.dtype == ALL_DTYPES[named]
    return numbers.view(dtype).reshape(shape)
