"""Kernels in CuTe-DSL and in CUDA C++, run on the host and compared with the CPU target's."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from inputs import make_input, make_weight
from jitnorm.kernels.arguments import WIDEST_ACCESS, TensorArgument
from jitnorm.kernels.backward import most_segments, segments_of_cluster
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.cute.recipe import cute_recipe
from jitnorm.kernels.extents import LEADING, sizes_of
from jitnorm.kernels.generator import generate
from jitnorm.kernels.interface import interface, tensor_arguments
from jitnorm.kernels.launch_recipe import launch_recipe
from jitnorm.kernels.target import Target
from numpy.typing import NDArray
from ptx_machine import run_ptx
from recipe_extents import evaluate
from unoptimized import unoptimized_kernel
from warp_orders import NewOrder, Together

from jitnorm.interop.numpy import NumPy
from jitnorm.reference import sum_rows_f32
from jitnorm.toolchains.nvrtc import Nvrtc
from jitnorm.toolchains.nvrtc_program import ptx_of as compiled_ptx

Arrays = dict[str, NDArray[Any]]
Place = Callable[[TensorArgument], int]
"""How many bytes a tensor is behind an aligned address."""
DTYPES_IN_C = {
    "Float16": np.uint16,
    "BFloat16": np.uint16,
    "float": np.float32,
    "UInt8": np.uint8,
    "Float8E4M3": np.uint8,
}
_ALIGNMENT = 256
# With reciprocals that are none, or no normal floats, or of a negative number.
_UNUSUAL_SCALES = (0.0, 1e-41, 3e38, np.inf, np.nan, -0.0, 2.0**126, 2.0**-126, -0.5)
POISON = 0xA5


def _aligned(argument: TensorArgument) -> int:
    return 0


def as_narrow_as_allowed(config: KernelConfig, *, moves_all: bool) -> Place:
    """Places at addresses that are aligned no further than a configuration says: of inputs, or also of parameters and
    outputs.
    """

    def place(argument: TensorArgument) -> int:
        is_moved = argument.chunk_bytes > 0 if moves_all else argument.is_strided and not argument.is_output
        return 7 * argument.access_bytes(config.vector_bytes) % WIDEST_ACCESS if is_moved else 0

    return place


@cache
def ptx_of(config: KernelConfig, target: Target) -> str:
    from jitnorm.kernels.cute.build import build

    with tempfile.TemporaryDirectory() as folder:
        build(config, target, Path(folder))
        (path,) = Path(folder).glob("*.ptx")
        return path.read_text(encoding="utf-8")


@cache
def cuda_ptx_of(config: KernelConfig, target: Target) -> str:
    return ptx_of_text(generate(config, target).text, target)


def ptx_of_text(source: str, target: Target) -> str:
    nvrtc = Nvrtc()
    flags = tuple(flag.replace("=sm_", "=compute_") for flag in nvrtc.flags(target))
    return compiled_ptx(nvrtc.location, source, "kernel.cu", flags)


def make_arrays(config: KernelConfig, rows: int, kind: str, seed: int = 0) -> Arrays:
    """The tensors of a call: inputs of a kind, outputs poisoned."""
    arrays: Arrays = {}
    for number, argument in enumerate(tensor_arguments(config)):
        shape = sizes_of(argument.shape, (rows,), rows, second_rows=rows)
        arrays[argument.name] = _array(config, argument, shape, rows, kind, seed + number)
    return arrays


def _array(
    config: KernelConfig, argument: TensorArgument, shape: tuple[int, ...], rows: int, kind: str, seed: int
) -> NDArray[Any]:
    dtype = np.dtype(np.int32 if argument.dtypes == ("int32",) else DTYPES_IN_C[argument.c_type])
    if argument.is_output:
        size = int(np.prod(shape)) * dtype.itemsize
        fill = POISON
        return np.full(size, fill, np.uint8).view(dtype).reshape(shape)
    if dtype == np.int32:
        return np.zeros(shape, dtype)
    if config.op == "dequantize":
        numbers = np.random.default_rng(seed)
        return (
            numbers.integers(0, 256, shape, dtype) if dtype == np.uint8 else numbers.uniform(-4, 4, shape).astype(dtype)
        )
    if argument.name == "scale" and config.quant and config.quant.has_given_scales:
        scales = np.exp2(np.random.default_rng(seed).uniform(-12, 4, shape)).astype(np.float32)
        unusual = scales.ravel()[5::67]  # some chunks of columns have none
        unusual[:] = np.resize(np.array(_UNUSUAL_SCALES, np.float32), unusual.shape)
        return scales
    if argument.shape[0] == LEADING:
        if config.input == "float8_e4m3fn":
            return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
        if len(shape) == 1:
            return make_input(kind, 1, rows, "float32", seed)[0]
        return make_input(kind, rows, shape[1], config.input, seed).view(dtype)
    if argument.field in ("weight", "bias", "input_weight"):
        return make_weight(math.prod(shape), config.weight, seed).view(dtype).reshape(shape)
    if argument.field.endswith("_bias"):
        return make_weight(shape[0], "float32", seed)
    if config.sinkhorn:
        return np.random.default_rng(seed).uniform(0, 4, shape).astype(np.float32)
    constants = {"global_scale": 37.5, "scale": 0.037, "scale_ub": 1.5, "branch_scale": 0.75}
    if argument.name == "amax_parts":
        return np.roll(np.linspace(0, 5.25, shape[0], dtype=np.float32), 100)
    return np.full(shape, constants[argument.name], np.float32)


def run_on_host(
    config: KernelConfig,
    target: Target,
    arrays: Arrays,
    rows: int,
    eps: float,
    most_blocks: int | None = None,
    order: NewOrder = Together,
    is_cuda: bool = False,
    place: Place = _aligned,
) -> None:
    """Run the kernel for `target` by the recipe that the launcher would follow, or in fewer, persistent blocks.

    A kernel in CUDA C++ may read nothing but the arrays, and what is before them up to an aligned address.
    """
    recipe = (launch_recipe if is_cuda else cute_recipe)(config, target)
    named = {argument.name: argument for argument in tensor_arguments(config)}
    offsets, end = {}, _ALIGNMENT
    for name, array in arrays.items():
        offsets[name] = end + place(named[name])
        end += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT + 2 * _ALIGNMENT
    memory = np.full(end, POISON, np.uint8)
    readable = np.full(end, not is_cuda)
    for name, array in arrays.items():
        first, size = offsets[name], array.nbytes
        memory[first:][:size] = array.reshape(-1).view(np.uint8)
        readable[first // WIDEST_ACCESS * WIDEST_ACCESS : first + size] = True
    parameters: list[int | float] = []
    for argument in (a for a in interface(config) if a.is_present):
        if not isinstance(argument, TensorArgument):
            parameters.append(float(np.float32(eps)))
            continue
        parameters.append(offsets[argument.name])
        if argument.is_strided:
            parameters.append(arrays[argument.name].shape[-1])
    parameters += [rows] * (2 if config.gathers or config.pair else 1)  # as many of either
    if recipe.get("items") is not None:
        parameters.append(evaluate(recipe["items"], rows))
    grid = min(evaluate(recipe["grid"], rows, second_rows=rows), most_blocks or 1 << 31)
    run_ptx(
        (cuda_ptx_of if is_cuda else ptx_of)(config, target),
        memory,
        parameters,
        grid,
        recipe["block"],
        recipe["cluster"],
        order=order,
        readable=readable,
    )
    for name, array in arrays.items():
        found = memory[offsets[name] :][: array.nbytes + _ALIGNMENT]
        assert (found[array.nbytes :] == POISON).all(), f"{name}: something was written behind it"
        array[...] = found[: array.nbytes].view(array.dtype).reshape(array.shape)


def run_on_cpu(config: KernelConfig, arrays: Arrays, eps: float) -> None:
    """Run the CPU target's kernel, which launches no other and is the same for any number of rows."""
    config = replace(config, pdl=False, schedule="", many_rows=False)
    tensors = [
        NumPy().argument(argument.name, array.view(_named(argument)), argument.is_output)
        for array, argument in zip(arrays.values(), tensor_arguments(config), strict=True)
    ]
    numbers = [eps for argument in interface(config) if not isinstance(argument, TensorArgument)]
    unoptimized_kernel(config)(*tensors, *numbers)


def _named(argument: TensorArgument) -> Any:
    """The dtype that the launcher expects for an array of its bits."""
    if "uint8" in argument.dtypes:
        return np.dtype(np.uint8)
    return np.dtype(getattr(ml_dtypes, argument.dtypes[0], argument.dtypes[0]))


def assert_same(
    config: KernelConfig,
    target: Target,
    rows: int,
    kind: str,
    *,
    eps: float = 1e-5,
    most_blocks: int | None = None,
    order: NewOrder = Together,
    is_cuda: bool = False,
    place: Place = _aligned,
) -> None:
    """Check that the kernel for `target` writes the same as the CPU target's, wherever tensors are placed."""
    expected, actual = make_arrays(config, rows, kind), make_arrays(config, rows, kind)
    run_on_cpu(config, expected, eps)
    run_on_host(config, target, actual, rows, eps, most_blocks, order, is_cuda, place)
    for name, array in expected.items():
        found, wanted = _written(config, target, name, actual[name]), _written(config, Target("cpu"), name, array)
        same = found.reshape(-1).view(np.uint8) == wanted.reshape(-1).view(np.uint8)
        assert same.all(), f"{config} for {target}, {kind}: {name} differs first at byte {int(np.argmin(same))}"


def _written(config: KernelConfig, target: Target, name: str, array: NDArray[Any]) -> NDArray[Any]:
    """The outputs of a kernel; partial sums, some of which a target may fold, are summed."""
    if name != "partials":
        return array
    most = most_segments(config.hidden_size) // segments_of_cluster(config, target)
    assert (array[most:].view(np.uint8) == POISON).all(), "rows are written that are folded"
    return sum_rows_f32(array[:most])
