"""Calls of kernels through their bare interface, with inputs of any kind and poisoned outputs."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
from inputs import make_input, make_weight
from jitnorm.kernels.arguments import ScalarArgument, TensorArgument
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.extents import LEADING, sizes_of
from jitnorm.kernels.interface import interface
from placement import poisoned

from jitnorm.interop import framework_of

_DTYPES: dict[str, np.dtype[Any]] = {
    "Float16": np.dtype(np.float16),
    "BFloat16": np.dtype(ml_dtypes.bfloat16),
    "float": np.dtype(np.float32),
    "Float8E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "UInt8": np.dtype(np.uint8),
    "Int32": np.dtype(np.int32),
}
_NUMBERS = {"global_scale": 0.75, "scale": 0.02, "scale_ub": 2.5}


def make_arguments(config: KernelConfig, kind: str, rows: int, matrices: int = 1) -> list[Any]:
    """The arguments of a configuration's kernel for that many rows (per matrix)."""
    return [_make(a, config, kind, rows, matrices) for a in interface(config) if a.is_present]


def call(kernel: Any, *arguments: Any) -> None:
    """Call a kernel with arrays of dtypes that NumPy has only through ml_dtypes."""
    kernel(*(framework_of(a, "").argument("", a, False) if isinstance(a, np.ndarray) else a for a in arguments))


def outputs_of(config: KernelConfig, arguments: list[Any]) -> dict[str, Any]:
    """The outputs among a kernel's arguments, by name."""
    present = [a for a in interface(config) if a.is_present]
    return {
        a.name: value
        for a, value in zip(present, arguments, strict=True)
        if isinstance(a, TensorArgument) and a.is_output
    }


def _make(argument: TensorArgument | ScalarArgument, config: KernelConfig, kind: str, rows: int, matrices: int) -> Any:
    if isinstance(argument, ScalarArgument):
        return 1e-6
    leading = (matrices, rows) if config.batched else (rows,)
    shape = sizes_of(argument.shape, leading, rows, matrices, rows)
    dtype = _DTYPES[argument.c_type]
    if argument.is_output:
        return poisoned(math.prod(shape) * dtype.itemsize).view(dtype).reshape(shape)
    if argument.name == "amax_parts":
        return np.roll(np.linspace(0, 3.5, shape[0], dtype=np.float32), 100)
    if argument.name in _NUMBERS:
        return np.full(shape, _NUMBERS[argument.name], np.float32)
    if argument.name == "mask":
        return np.full(shape, rows - 1, np.int32)
    if LEADING not in argument.shape:
        return make_weight(shape[0], dtype.name)
    if dtype.itemsize == 1:
        return np.random.default_rng(0).integers(0, 256, shape, np.uint8).view(dtype)
    seed = len(argument.name)  # the input and the residual differ
    return make_input(kind, math.prod(leading), shape[-1], dtype.name, seed).reshape(shape)
