"""Layer norms of a residual plus a gated branch, modulated or not: the reference's bytes, close to float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cute_on_host import assert_same
from encoded import found_outputs
from expected import assert_same_bytes
from frameworks import CPU_FRAMEWORKS, to_torch
from inputs import INPUT_KINDS, make_input, make_weight
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.target import Target

from jitnorm import (
    MXFP8,
    NVFP4,
    adaptive_layernorm,
    adaptive_layernorm_quantize,
    gated_add_layernorm,
    quantize,
)
from jitnorm.reference import adaptive_layernorm_f32, branch_sum_f32, layernorm_f32, round_to

SIZE, ROWS = 513, 5  # part of a chunk
BIASES = tuple(make_weight(SIZE, "float32", seed=seed) for seed in range(3))
NUMBER = np.float32([0.375])


def tensors(kind: str, count: int, dtype: str, size: int = SIZE) -> list[Any]:
    return [make_input(kind, ROWS, size, dtype, seed=seed) for seed in range(count)]


def test_a_gated_branch_is_added_and_normalized() -> None:
    for kind in INPUT_KINDS:
        x, residual, gate = tensors(kind, 3, "bfloat16")
        gamma, beta, gate_bias = BIASES
        norm, total = gated_add_layernorm(
            x, residual, gate, gamma, beta, gate_bias=gate_bias, input_scale=NUMBER, residual_out=residual.copy()
        )
        h = branch_sum_f32(x, residual, gate, gate_bias, NUMBER[0])
        assert_same_bytes(total, round_to(h, x.dtype), kind)
        assert_same_bytes(norm, round_to(layernorm_f32(h, gamma, beta), x.dtype), kind)


@pytest.mark.parametrize(("dtype", "has_residual"), [("float16", True), ("float32", False)])
def test_a_norm_is_modulated(dtype: str, has_residual: bool) -> None:
    for kind in INPUT_KINDS:
        x, scale, shift, residual = tensors(kind, 4, dtype)
        options = {"scale_bias": BIASES[0], "shift_bias": BIASES[1]} if has_residual else {}
        of_sum = {"residual": residual} if has_residual else {}
        h = branch_sum_f32(x, **of_sum)
        norm, total = adaptive_layernorm(x, scale, shift, **of_sum, **options)
        assert_same_bytes(norm, round_to(adaptive_layernorm_f32(h, scale, shift, **options), x.dtype), kind)
        if has_residual:
            assert_same_bytes(total, round_to(h, x.dtype), kind)
        else:
            assert total is None


def test_it_is_near_what_float64_gives() -> None:
    """The sum replaces the residual; gates and modulations are views of one tensor."""
    x, residual = tensors("random", 2, "float16")
    of_token = make_input("random", ROWS, 3 * SIZE, "float16", seed=9).reshape(ROWS, 3, SIZE)
    gate, scale, shift = of_token.transpose(1, 0, 2)
    options = dict(zip(("gate_bias", "scale_bias", "shift_bias"), BIASES, strict=True))
    h = residual.astype(np.float64) + x.astype(np.float64) * (gate + options["gate_bias"])
    d = h - h.mean(1, keepdims=True)
    exact = d / np.sqrt(np.square(d).mean(1, keepdims=True) + 1e-6)
    exact = exact * (1 + scale + options["scale_bias"]) + shift + options["shift_bias"]
    norm, total = adaptive_layernorm(x, scale, shift, residual=residual, gate=gate, residual_out=residual, **options)
    assert total is residual
    np.testing.assert_allclose(total.astype(np.float64), h, rtol=2**-10, atol=1e-2)
    np.testing.assert_allclose(norm.astype(np.float64), exact, rtol=2**-10, atol=2e-2)


@pytest.mark.parametrize("name", CPU_FRAMEWORKS)
def test_every_framework_gets_the_codes_of_the_parts(name: str) -> None:
    """Each of two matrices has its own padded scales."""
    make, spec = CPU_FRAMEWORKS[name], NVFP4.with_layout("128x4")
    x, scale, shift = (make_input("real", 6, 192, "bfloat16", seed=seed).reshape(2, 3, 192) for seed in range(3))
    options: dict[str, Any] = {"spec": spec, "batched": True}
    factor = np.float32([100])
    q, total = adaptive_layernorm_quantize(
        *map(make, (x, scale, shift)), global_scale=make(factor), rounding="output", **options
    )
    norm, _ = adaptive_layernorm(x, scale, shift)
    wanted = quantize(norm, global_scale=factor, **options)
    assert total is None
    for found, expected in zip(found_outputs(q), found_outputs(wanted), strict=True):
        assert_same_bytes(found, expected)


X, ONES = np.ones((2, 64), np.float16), np.ones(64, np.float32)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: adaptive_layernorm(X, X, X, scale_bias=ONES), "scale_bias: is given, but shift_bias is None; pass"),
        (lambda: adaptive_layernorm(X, X, X, shift_bias=ONES), "shift_bias: is given, but scale_bias is None; pass"),
        (lambda: adaptive_layernorm(X, X, X, gate_bias=ONES), "gate_bias: is given, but gate is None; pass both"),
        (lambda: adaptive_layernorm(X, X[:1], X), r"scale: shape is \(1, 64\), expected \(2, 64\)"),
        (lambda: adaptive_layernorm(X, X, X[:, :32]), r"shift: shape is \(2, 32\), expected \(2, 64\)"),
        (lambda: gated_add_layernorm(X, X, X[:1], ONES, ONES), r"gate: shape is \(1, 64\), expected \(2, 64\)"),
        (lambda: gated_add_layernorm(X, X, X, ONES, ONES, gate_bias=X[0]), "gate_bias: dtype is float16, expected"),
        (lambda: KernelConfig("layernorm", 64, modulated=True), "modulated: is True, which takes the place"),
        (lambda: KernelConfig("layernorm", 64, modulation_bias=True), "modulation_bias: is True, which needs"),
        (lambda: KernelConfig("layernorm", 64, branch_gate=True, backward=True), "branch_gate, branch_scale, mod"),
    ],
)  # fmt: skip
def test_bad_input_is_refused(call: Callable[[], Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        call()


# Rows that share a warp; narrow accesses; a block, whose codes are those of the rounded norm.
ON_HOST = (
    "layernorm:hidden_size=64,residual=true,gate_bias=true",
    "layernorm:hidden_size=1000,residual=true,branch_gate=true,modulated=true,modulation_bias=true,weight=none,"
    "input=float16,vector_bytes=8",
    "layernorm:hidden_size=3072,residual=true,gate_bias=true,branch_scale=true,modulated=true,modulation_bias=true,"
    "weight=none,quant=e2m1/16/e4m3/128x4/given,rounding=output",
)


@pytest.mark.parametrize("text", ON_HOST)
def test_cuda_writes_what_the_cpu_writes(text: str) -> None:
    assert_same(KernelConfig.parse(text), Target("sm_90a"), 3, "random", is_cuda=True)


@pytest.mark.gpu
@pytest.mark.parametrize("size", [513, 3072, 8192, 65536])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_a_gpu_writes_what_the_cpu_writes(dtype: str, size: int) -> None:
    biases = [to_torch(make_weight(size, "float32", seed=seed)) for seed in range(3)]
    for kind in ("random", "nan", "huge"):
        given = [to_torch(each) for each in tensors(kind, 5, dtype, size)]
        results = []
        for device in ("cpu", "cuda"):
            x, residual, gate, scale, shift = (each.to(device) for each in given)
            a, b, c = (each.to(device) for each in biases)
            options: dict[str, Any] = {"residual": residual, "gate": gate, "gate_bias": a}
            found = [*gated_add_layernorm(x, residual, gate, a, b, gate_bias=c)]
            found += adaptive_layernorm(x, scale, shift, scale_bias=b, shift_bias=c, **options)
            if size % 32 == 0:
                q, total = adaptive_layernorm_quantize(x, scale, shift, spec=MXFP8, rounding="output", **options)
                found += [q.data, q.scale, total]
            results.append(found)
        for on_cpu, on_gpu in zip(*results, strict=True):
            assert_same_bytes(on_gpu, on_cpu, kind)
