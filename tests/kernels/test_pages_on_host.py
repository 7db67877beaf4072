"""The PTX of CUDA C++ kernels that insert heads into pages, run on the host, writes the reference's bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cute_on_host import cuda_ptx_of
from inputs import ALL_DTYPES, make_input, make_weight
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.launch_recipe import launch_recipe
from jitnorm.kernels.target import Target
from ptx_machine import run_ptx
from recipe_extents import evaluate

from jitnorm import reference

TOKENS, HEADS = 5, {"q": 3, "k": 2, "v": 2}
PAGES, PAGE_SIZE = 2, 3
SLOTS = np.array([4, -1, 0, 6])  # the last token has none, and the one before no page
SCALES = {"k_scale": np.array([0.037, 0.5], np.float32), "v_scale": np.array([1.5], np.float32)}
EPS = 1e-5
KERNELS = (
    ("rmsnorm:hidden_size=128,pair=true,rope=neox,paged=true", "sm_90a"),
    ("rmsnorm:hidden_size=64,pair=true,rope=neox,paged=true,keep_heads=true,quant=e4m3/tensor/f32", "sm_90a"),
    (
        "rmsnorm:hidden_size=13,pair=true,rope=neox,rotary_size=10,vector_bytes=1,paged=true,keep_heads=true,slots=int32",
        "sm_80",
    ),
    ("rmsnorm:hidden_size=192,pair=true,rope=neox,rotary_size=64,paged=true,keep_heads=true", "sm_90a"),
    ("quantize:hidden_size=96,pair=true,rope=neox,paged=true,quant=e4m3/tensor/f32", "sm_90a"),
    ("quantize:hidden_size=128,pair=true,rope=neox,paged=true", "sm_90a"),
    ("quantize:hidden_size=64,pair=true,rope=neox,paged=true,keep_heads=true,quant=e4m3/tensor/f32", "sm_80"),
    ("rmsnorm:hidden_size=80,pair=true,rope=neox,paged=true,quant=e4m3/tensor/f32", "sm_90a"),
    ("quantize:hidden_size=112,pair=true,rope=neox,paged=true,input=float16", "sm_90a"),
)


@pytest.mark.parametrize(("text", "target"), KERNELS)
def test_heads_are_in_their_slots(text: str, target: str) -> None:
    config = KernelConfig.parse(text)
    arrays = inputs_of(config)
    found = run(config, Target(target), arrays)
    heads = expected_heads(config, arrays)
    assert found["q_out"].tobytes() == reference.round_to(heads["q"], arrays["q"].dtype).tobytes()
    for name, cache in (("k", "key_cache"), ("v", "value_cache")):
        kept = reference.round_to(heads[name], arrays[name].dtype)
        inserted = codes_of(heads[name], SCALES[f"{name}_scale"]) if config.quant else kept
        expected = reference.insert_heads(arrays[cache], inserted, arrays["slot_mapping"])
        assert found[cache].tobytes() == expected.tobytes(), cache
        if config.keep_heads:
            assert found[f"{name}_out"].tobytes() == kept.tobytes(), name


def inputs_of(config: KernelConfig) -> dict[str, Any]:
    size, dtype = config.hidden_size, ALL_DTYPES[config.input]
    turns = np.random.default_rng(0).uniform(0, 2 * np.pi, (7, config.rotary_size // 2))
    cache = np.ones((PAGES, PAGE_SIZE, HEADS["k"], size), np.uint8 if config.quant else dtype)
    return {
        **{
            name: make_input("random", TOKENS * heads, size, config.input, seed).reshape(TOKENS, heads, size)
            for seed, (name, heads) in enumerate(HEADS.items())
        },
        **{f"{name}_weight": make_weight(size, config.weight, i) for i, name in enumerate("qk") if config.has_weight},
        "cos_sin_cache": np.hstack([np.cos(turns), np.sin(turns)]).astype(np.float32),
        "positions": np.array([6, 0, 7, 3, -1]),
        "slot_mapping": SLOTS.astype(config.slots), "key_cache": cache, "value_cache": cache + cache.dtype.type(1),
        **(SCALES if config.quant else {}),
    }  # fmt: skip


def expected_heads(config: KernelConfig, arrays: dict[str, Any]) -> dict[str, Any]:
    """Rotated queries and keys, and values, in float32."""
    found = {"v": arrays["v"].astype(np.float32)}
    for name in "qk":
        y = arrays[name].reshape(-1, config.hidden_size).astype(np.float32)
        if config.normalizes:
            y = reference.rmsnorm_f32(arrays[name].reshape(y.shape), arrays[f"{name}_weight"], EPS)
        of_rows = np.repeat(arrays["positions"], HEADS[name])
        found[name] = reference.rotate_f32(y, arrays["cos_sin_cache"], of_rows).reshape(arrays[name].shape)
    return found


def codes_of(heads: Any, scales: Any) -> Any:
    """The codes of (tokens, heads, size), with a scale for each head."""
    by_head = np.broadcast_to(scales, heads.shape[1:2])
    codes = [reference.quantize_fp8_static(heads[:, i], float(scale)) for i, scale in enumerate(by_head)]
    return np.stack(codes, 1)


def run(config: KernelConfig, target: Target, arrays: dict[str, Any]) -> dict[str, Any]:
    """Run the kernel by the recipe that the launcher would follow, and return its outputs."""
    outputs = ("q_out", "k_out", "v_out") if config.keep_heads else ("q_out",)
    arrays = {**arrays, **{name: np.zeros_like(arrays[name[0]]) for name in outputs}}
    memory, places, end = np.zeros(1 << 16, np.uint8), {}, 256
    readable = np.zeros(memory.size, bool)
    parameters: list[int | float] = []
    for name, array in arrays.items():
        places[name] = end
        memory[end:][: array.nbytes] = array.reshape(-1).view(np.uint8)
        readable[end:][: array.nbytes] = True
        end += -(-array.nbytes // 256) * 256
        parameters.append(places[name])
        if name in HEADS or name in outputs:
            parameters.append(config.hidden_size)
        if name in ("cos_sin_cache", "slot_mapping", "key_cache", "value_cache", *SCALES):
            dims = 3 if name in ("key_cache", "value_cache") else 1
            parameters += [stride // array.itemsize for stride in array.strides[:dims]]
            parameters += array.shape[:dims]
    parameters += [float(np.float32(EPS))] * config.normalizes
    for name in "qk":
        parameters += [TOKENS * HEADS[name], HEADS[name]]
    recipe = launch_recipe(config, target)
    grid = evaluate(recipe["grid"], TOKENS * HEADS["q"], second_rows=TOKENS * HEADS["k"])
    run_ptx(
        cuda_ptx_of(config, target), memory, parameters, grid, recipe["block"], recipe["cluster"], readable=readable
    )
    return {name: memory[places[name] :][: array.nbytes].copy() for name, array in arrays.items()}
