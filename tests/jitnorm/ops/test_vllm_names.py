"""The FP8 norms under vLLM's names, and FlashInfer's in groups, return the bytes of the reference."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from encoded import normalized
from expected import assert_same_bytes
from frameworks import CPU_FRAMEWORKS, to_torch
from inputs import ALL_DTYPES, INPUT_KINDS, make_input, make_weight

from jitnorm import (
    fused_add_rms_norm_static_fp8_quant,
    fused_add_rmsnorm_fp8_block_quant,
    rms_norm_dynamic_per_token_quant,
    rms_norm_per_block_quant,
    rms_norm_static_fp8_quant,
)
from jitnorm.reference import (
    column_major_scales,
    quantize_fp8_group,
    quantize_fp8_static,
    quantize_fp8_token,
    round_to,
    stored_residual,
)

E4M3 = np.dtype(ml_dtypes.float8_e4m3fn)
EPS = 1e-5


@pytest.mark.parametrize(
    ("element", "adds", "bound"),
    [("e4m3", False, None), ("e4m3", True, 0.75), ("e5m2", False, 0.75), ("e5m2", True, None)],
)
def test_a_scale_for_each_token(element: Any, adds: bool, bound: float | None) -> None:
    weight, dtype = make_weight(40, "float16"), {"e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}[element]
    for kind in INPUT_KINDS:
        x = make_input(kind, 5, 40, "float16")
        residual = make_input("random", 5, 40, "float16", seed=2) if adds else None
        added = None if residual is None else residual.copy()
        given = None if bound is None else np.array([bound], np.float32)
        codes, scales = rms_norm_dynamic_per_token_quant(x, weight, EPS, dtype, given, added)
        wanted_codes, wanted_scales = quantize_fp8_token(normalized(x, weight, residual, eps=EPS), element, bound)
        assert_same_bytes(codes, wanted_codes, kind)
        assert scales.shape == (5, 1)
        assert_same_bytes(scales, wanted_scales, kind)
        if residual is not None:
            assert_same_bytes(added, stored_residual(x, residual), kind)


@pytest.mark.parametrize(
    ("group", "transposed", "aligned"),
    [(64, False, False), (128, False, False), (128, True, False), (64, True, True)],
)
def test_a_scale_for_each_group(group: int, transposed: bool, aligned: bool) -> None:
    weight = make_weight(384, "bfloat16")
    for kind in INPUT_KINDS:
        x, residual = make_input(kind, 5, 384, "bfloat16"), make_input("random", 5, 384, "bfloat16", seed=2)
        y, total = normalized(x, weight, residual, eps=EPS), stored_residual(x, residual)
        codes, scales = rms_norm_per_block_quant(x, weight, EPS, E4M3, [1, group], None, residual, transposed, aligned)
        wanted_codes, wanted_scales = quantize_fp8_group(y, group)
        assert_same_bytes(codes, wanted_codes, kind)
        assert scales.shape == wanted_scales.shape
        assert_same_bytes(np.ascontiguousarray(scales), wanted_scales, kind)
        assert_same_bytes(residual, total, kind)
        if transposed:
            assert scales.strides == (4, 4 * (8 if aligned else 5))
            assert scales.base is not None


def test_groups_may_be_bounded() -> None:
    x, weight = make_input("random", 5, 128, "float16"), make_weight(128, "float16")
    _, scales = rms_norm_per_block_quant(x, weight, EPS, E4M3, [1, 128], np.array([0.5], np.float32))
    assert_same_bytes(scales, quantize_fp8_group(normalized(x, weight, eps=EPS), 128, "f32", 0.5)[1])


@pytest.mark.parametrize("adds", [False, True])
def test_a_scale_that_is_given(adds: bool) -> None:
    weight, scale = make_weight(40, "float16"), np.array([0.03], np.float32)
    for kind in INPUT_KINDS:
        x = make_input(kind, 5, 40, "float16")
        result = np.empty(x.shape, E4M3)
        residual = make_input("random", 5, 40, "float16", seed=2) if adds else None
        y = normalized(x, weight, residual, eps=EPS)
        if residual is None:
            rms_norm_static_fp8_quant(result, x, weight, scale, EPS)
        else:
            total = stored_residual(x, residual)
            fused_add_rms_norm_static_fp8_quant(result, x, residual, weight, scale, EPS)
            assert_same_bytes(residual, total, kind)
        assert_same_bytes(result, quantize_fp8_static(y, float(scale[0])), kind)


@pytest.mark.parametrize("rows", [0, 1, 5, 8])
@pytest.mark.parametrize("dtype", ALL_DTYPES)
def test_groups_with_column_major_scales_and_the_norm_itself(dtype: str, rows: int) -> None:
    weight = make_weight(256, dtype)
    for kind in INPUT_KINDS:
        x, residual = make_input(kind, rows, 256, dtype), make_input("random", rows, 256, dtype, seed=2)
        y, total = normalized(x, weight, residual), stored_residual(x, residual)
        out, kept = np.empty(x.shape, E4M3), np.empty_like(x)
        scales = np.empty((2, -(-rows // 4) * 4), np.float32)
        assert fused_add_rmsnorm_fp8_block_quant(out, scales, kept, x, residual, weight) is None
        codes, linear = quantize_fp8_group(y)
        assert_same_bytes(out, codes, kind)
        assert_same_bytes(scales.reshape(-1), column_major_scales(linear, True), kind)
        assert_same_bytes(kept, round_to(y, x.dtype), kind)
        assert_same_bytes(residual, total, kind)


@pytest.mark.parametrize(
    "quant_dtype",
    ["float8_e4m3fn", E4M3, ml_dtypes.float8_e4m3fn, torch.float8_e4m3fn],
    ids=["name", "numpy", "ml_dtypes", "torch"],
)
def test_a_dtype_is_of_any_framework(quant_dtype: Any) -> None:
    x, weight = make_input("real", 2, 40, "float16"), make_weight(40, "float16")
    codes, _ = rms_norm_dynamic_per_token_quant(x, weight, EPS, quant_dtype)
    assert codes.dtype == E4M3


@pytest.mark.parametrize("framework", CPU_FRAMEWORKS)
def test_every_framework_gets_the_same_bytes(framework: str) -> None:
    make = CPU_FRAMEWORKS[framework]
    x, weight = make_input("real", 5, 128, "bfloat16"), make_weight(128, "bfloat16")
    for op, group in ((rms_norm_dynamic_per_token_quant, ()), (rms_norm_per_block_quant, ([1, 64],))):
        got = op(make(x), make(weight), EPS, "float8_e4m3fn", *group)
        for tensor, wanted in zip(got, op(x, weight, EPS, "float8_e4m3fn", *group), strict=True):
            assert_same_bytes(tensor, wanted, framework)


def test_transposed_scales_of_torch_are_a_view() -> None:
    x, weight = make_input("real", 5, 128, "bfloat16"), make_weight(128, "bfloat16")
    _, scales = rms_norm_per_block_quant(
        to_torch(x), to_torch(weight), EPS, torch.float8_e4m3fn, [1, 64], None, None, True, True
    )
    assert (tuple(scales.shape), scales.stride()) == ((5, 2), (1, 8))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"quant_dtype": "int8"}, "quant_dtype: is int8; allowed are float8_e4m3fn"),
        ({"quant_dtype": torch.int8}, "quant_dtype: is int8; allowed are float8_e4m3fn"),
        ({"quant_dtype": "float8_e5m2"}, "quant_dtype: is float8_e5m2; allowed are float8_e4m3fn"),
        ({"group_size": [1, 32]}, r"group_size: is \[1, 32\]; allowed are \[1, 64\] and \[1, 128\]"),
        ({"group_size": 128}, r"group_size: is 128; allowed are \[1, 64\] and \[1, 128\]"),
        ({"has_tma_aligned_scales": True}, "has_tma_aligned_scales: is True, but the scales are row-major"),
    ],
)
def test_what_does_not_exist_is_refused(options: dict[str, Any], message: str) -> None:
    call = {"quant_dtype": "float8_e4m3fn", "group_size": [1, 128]} | options
    with pytest.raises(ValueError, match=message):
        rms_norm_per_block_quant(np.ones((2, 128), np.float16), np.ones(128, np.float16), EPS, **call)


def test_int8_is_refused_for_tokens_too() -> None:
    with pytest.raises(ValueError, match="quant_dtype: is int8; allowed are float8_e4m3fn, float8_e5m2"):
        rms_norm_dynamic_per_token_quant(np.ones((2, 128), np.float16), np.ones(128, np.float16), EPS, np.int8)


def test_errors_name_the_arguments_as_vllm_does() -> None:
    x, weight, scale = np.ones((2, 128), np.float16), np.ones(128, np.float16), np.ones(1, np.float32)
    with pytest.raises(ValueError, match="result: dtype is float16, expected float8_e4m3fn or float8_e5m2"):
        rms_norm_static_fp8_quant(x.copy(), x, weight, scale, EPS)
    with pytest.raises(ValueError, match=r"result: shape is \(1, 128\), expected \(2, 128\)"):
        rms_norm_static_fp8_quant(np.empty((1, 128), E4M3), x, weight, scale, EPS)
    with pytest.raises(ValueError, match=r"normed_out: shape is \(1, 128\), expected \(2, 128\)"):
        fused_add_rmsnorm_fp8_block_quant(
            np.empty((2, 128), E4M3), np.empty((1, 4), np.float32), x[:1].copy(), x, x.copy(), weight
        )
