"""The PTX of CUDA C++ kernels that rotate heads, run on the host, writes the reference's bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cute_on_host import cuda_ptx_of
from inputs import ALL_DTYPES, make_frequencies, make_input, make_weight
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.launch_recipe import launch_recipe
from jitnorm.kernels.target import Target
from ptx_machine import run_ptx
from recipe_extents import evaluate

from jitnorm import reference

TOKENS, HEADS = 5, {"q": 3, "k": 2}
SCALES = {"q_scale": 0.037, "k_scale": 1.5}
EPS = 1e-5
# Halves of which a lane has chunks or halves of them, that are whole chunks of several, parts of them, with a part of
# the head left as it is; of all dtypes.
KERNELS = (
    ("rmsnorm:hidden_size=128,pair=true,rope=neox", "sm_90a"),
    ("rmsnorm:hidden_size=64,pair=true,rope=neox,quant=e4m3/tensor/f32,angles=float16,rounding=output", "sm_80"),
    ("rmsnorm:hidden_size=256,pair=true,rope=neox,row_dims=2,input=float32,positions=int32", "sm_90a"),
    ("rmsnorm:hidden_size=96,pair=true,rope=neox,row_dims=2", "sm_90a"),
    ("rmsnorm:hidden_size=192,pair=true,rope=neox,quant=e4m3/tensor/f32", "sm_90a"),
    ("rmsnorm:hidden_size=128,pair=true,rope=neox,rotary_size=64,rounding=hf", "sm_90a"),
    ("rmsnorm:hidden_size=80,pair=true,rope=neox,rotary_size=32,input=float32", "sm_80"),
    ("rmsnorm:hidden_size=144,pair=true,rope=neox,rotary_size=96,angles=bfloat16", "sm_90a"),
    ("quantize:hidden_size=256,pair=true,rope=neox,rotary_size=64,quant=e4m3/tensor/f32,rounding=output", "sm_90a"),
    ("rmsnorm:hidden_size=80,pair=true,rope=neox,angles=bfloat16,quant=e4m3/tensor/f32", "sm_80"),
    ("rmsnorm:hidden_size=512,pair=true,rope=neox,rotary_size=192,input=float16,positions=int32", "sm_90a"),
    ("rmsnorm:hidden_size=112,pair=true,rope=neox,rounding=hf,unit_bias=true", "sm_90a"),
    ("rmsnorm:hidden_size=112,pair=true,rope=neox,input=float32,weight=float32", "sm_90a"),
    ("rmsnorm:hidden_size=48,pair=true,rope=neox,weight=float32,angles=int32", "sm_90a"),
    ("quantize:hidden_size=208,pair=true,rope=neox,quant=e4m3/tensor/f32,input=float16", "sm_90a"),
    ("rmsnorm:hidden_size=13,pair=true,rope=neox,rotary_size=10,vector_bytes=1,input=float16", "sm_80"),
    ("rmsnorm:hidden_size=192,pair=true,rope=interleaved,rotary_size=64,angles=float16,input=float32", "sm_90a"),
    ("rmsnorm:hidden_size=576,pair=true,rope=neox,head_size=64,rotary_size=32,quant=e4m3/tensor/f32", "sm_90a"),
    ("rmsnorm:hidden_size=96,pair=true,rope=interleaved,rotary_size=36,quant=e4m3/tensor/f32,rounding=output", "sm_80"),
    ("quantize:hidden_size=128,pair=true,rope=neox,row_dims=2", "sm_90a"),
    ("rmsnorm:hidden_size=128,pair=true,rope=neox,row_dims=2,angles=int32", "sm_90a"),
    ("quantize:hidden_size=96,pair=true,rope=interleaved,rotary_size=36,angles=int32,positions=int32", "sm_80"),
    ("quantize:hidden_size=64,pair=true,rope=neox,quant=e4m3/tensor/f32,rounding=output", "sm_80"),
    ("quantize:hidden_size=96,pair=true,rope=neox,rotary_size=32,input=float32,rounding=hf", "sm_90a"),
    ("quantize:hidden_size=13,pair=true,rope=interleaved,rotary_size=10,vector_bytes=1,rounding=hf", "sm_80"),
)  # fmt: skip


@pytest.mark.parametrize(("text", "target"), KERNELS)
def test_heads_are_turned_as_the_reference_turns_them(text: str, target: str) -> None:
    config = KernelConfig.parse(text)
    for kind in ("random", "nan"):
        arrays = inputs_of(config, kind)
        found = run(config, Target(target), arrays, is_last_of_heads=kind == "random")
        for name in HEADS:
            assert found[name].tobytes() == expected(config, arrays, name).tobytes(), (kind, name)


def inputs_of(config: KernelConfig, kind: str) -> dict[str, Any]:
    size, half = config.hidden_size, config.rotary_size // 2
    turns = np.random.default_rng(0).uniform(0, 2 * np.pi, (7, half))
    is_row = config.angles == "int32"
    table = make_frequencies(2 * half) if is_row else np.hstack([np.cos(turns), np.sin(turns)])
    return {
        **{
            name: make_input(kind, TOKENS * heads, size, config.input, seed)
            for seed, (name, heads) in enumerate(HEADS.items())
        },
        **{f"{name}_weight": make_weight(size, config.weight, i) for i, name in enumerate(HEADS) if config.has_weight},
        "cos_sin_cache": table if is_row else table.astype(ALL_DTYPES[config.angles]),
        "positions": np.array([6, 0, 7, 3, -1], config.positions),
        **{name: np.full(1, value, np.float32) for name, value in SCALES.items() if config.quant},
    }  # fmt: skip


def expected(config: KernelConfig, arrays: dict[str, Any], name: str) -> Any:
    x, dtype, rounding = arrays[name], arrays[name].dtype, config.rounding
    steps: Any = "once" if rounding == "output" else rounding
    y = x.astype(np.float32)
    if config.normalizes:
        y = reference.rmsnorm_f32(x, arrays[f"{name}_weight"], EPS, weight_bias=float(config.unit_bias), rounding=steps)
    heads_of_row = config.hidden_size // (config.head_size or config.hidden_size)
    positions = np.repeat(arrays["positions"], HEADS[name] * heads_of_row)
    heads, is_neox = y.reshape(len(positions), -1), config.rope == "neox"
    turned = reference.rotate_f32(
        heads, arrays["cos_sin_cache"], positions, is_neox=is_neox, rounding=rounding, dtype=dtype
    )
    turned = turned.reshape(x.shape)
    if config.quant is None:
        return reference.round_to(turned, dtype)
    return reference.quantize_fp8_static(turned, SCALES[f"{name}_scale"])


def run(config: KernelConfig, target: Target, arrays: dict[str, Any], *, is_last_of_heads: bool) -> dict[str, Any]:
    """Run the kernel by the recipe that the launcher would follow, and return its outputs.

    Two dimensions of rows are tokens and heads, or however else the launcher may have merged them.
    """
    memory = np.zeros(1 << 18, np.uint8)
    places, end = {}, 256
    dtype = np.dtype(np.uint8) if config.quant else arrays["q"].dtype
    outputs = {f"{name}_out": np.zeros_like(arrays[name], dtype) for name in HEADS}
    for name, array in {**arrays, **outputs}.items():
        places[name] = end
        memory[end:][: array.nbytes] = array.reshape(-1).view(np.uint8)
        end += -(-array.nbytes // 256) * 256
    lasts = {name: heads if is_last_of_heads else TOKENS for name, heads in HEADS.items()}
    parameters: list[int | float] = []
    for name in [*arrays, *outputs]:
        parameters.append(places[name])
        if name in HEADS or name in outputs:
            strides = [lasts[name.removesuffix("_out")] * config.hidden_size, config.hidden_size]
            parameters += strides[-config.row_dims :]
        if name == "cos_sin_cache" and config.angles != "int32":
            parameters += [config.rotary_size, len(arrays[name])]
    parameters += [float(np.float32(EPS))] * config.normalizes
    for name, heads in HEADS.items():
        parameters += [TOKENS * heads, *[lasts[name]] * (config.row_dims - 1), heads]
    recipe = launch_recipe(config, target)
    grid = evaluate(recipe["grid"], TOKENS * HEADS["q"], second_rows=TOKENS * HEADS["k"])
    run_ptx(cuda_ptx_of(config, target), memory, parameters, grid, recipe["block"], recipe["cluster"])
    return {
        name: memory[places[f"{name}_out"] :][: arrays[name].size * dtype.itemsize].copy() for name in HEADS
    }  # fmt: skip
