"""An input in E4M3 is widened exactly, and then it is an input like any other."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from float32_oracle import bits, random_rows

from jitnorm.reference import (
    decode_e4m3,
    layernorm_f32,
    quantize_fp4,
    quantize_fp8_token,
    quantize_mxfp8,
    rmsnorm_f32,
    round_to,
    stored_residual,
)

E4M3 = ml_dtypes.float8_e4m3fn
CODES = np.arange(256, dtype=np.uint8)
X = np.resize(np.delete(CODES, [0x7F, 0xFF]), (3, 64)).view(E4M3)
WIDE = X.astype(np.float32)


def test_every_code_has_its_value() -> None:
    assert bits(round_to(CODES.view(E4M3), np.float32)) == bits(decode_e4m3(CODES))
    assert bits(round_to(CODES[[0x7F, 0xFF]].view(E4M3), np.float32)) == [0x7FFFFFFF] * 2


@pytest.mark.parametrize("weight_dtype", [np.float16, ml_dtypes.bfloat16, np.float32])
def test_rmsnorm_takes_it_with_a_weight_of_any_dtype(weight_dtype: Any) -> None:
    weight = random_rows(1, 64)[0].astype(weight_dtype)
    residual = random_rows(3, 64).astype(np.float16)
    expected = rmsnorm_f32(WIDE, weight.astype(np.float32), residual=residual)
    assert bits(rmsnorm_f32(X, weight, residual=residual)) == bits(expected)


def test_layernorm_takes_it() -> None:
    gamma, beta = random_rows(2, 64)
    assert bits(layernorm_f32(X, gamma, beta)) == bits(layernorm_f32(WIDE, gamma, beta))


def test_quantization_takes_it() -> None:
    for quantize in (
        lambda y: quantize_fp4(y, block_size=16, scale_format="e4m3"),
        quantize_mxfp8,
        quantize_fp8_token,
    ):
        assert [part.tobytes() for part in quantize(X)] == [part.tobytes() for part in quantize(WIDE)]


def test_it_is_neither_a_weight_nor_a_stored_residual() -> None:
    with pytest.raises(TypeError, match="weight is float8_e4m3fn; with an x of float8_e4m3fn, use float16 or bfloat16"):
        rmsnorm_f32(X, X[0])
    with pytest.raises(TypeError, match="dtype is float8_e4m3fn"):
        stored_residual(X, WIDE)
