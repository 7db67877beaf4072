"""E4M3 inputs are widened exactly; a given global scale determines the scale of the encoded tensor."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from float32_oracle import F32, bits, exact, nearest_float32, random_rows
from fp4_oracle import E2M1_VALUES, exact_e4m3_block, unpack

from jitnorm.reference import (
    decode_e2m1,
    decode_e4m3,
    layernorm_f32,
    quantize_fp4,
    quantize_fp4_columns,
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


def rescaled(x: Any, global_scale: float) -> F32:
    """The values times 6 / global_scale, each operation rounded once, in exact rationals."""
    scale = exact(nearest_float32(6 * exact(nearest_float32(1 / exact(global_scale)))))
    return np.array([[nearest_float32(exact(v) * scale) for v in row] for row in x.astype(np.float32)])


@pytest.mark.parametrize("block_size", [16, 32])
@pytest.mark.parametrize("global_scale", [6.0, 38.4, 2688.0, 1e-30, 1e30])
def test_a_given_global_scale_rescales_it_first(global_scale: float, block_size: int) -> None:
    scale = float(np.float32(global_scale))
    x = random_rows(5, 96, seed=7).astype(E4M3)
    codes, scales = quantize_fp4(x, block_size=block_size, scale_format="e4m3", global_scale=scale)
    blocks = rescaled(x, scale).reshape(-1, block_size)
    for block, byte, of_block in zip(blocks, scales.ravel(), unpack(codes).reshape(-1, block_size), strict=True):
        assert (byte, of_block.tolist()) == exact_e4m3_block(block, scale)


def test_a_block_s_scale_is_then_its_amax_and_its_codes_are_six_times_its_values_over_that() -> None:
    """In exact arithmetic no global scale matters. In float16, to which FlashInfer rounds what is rescaled, it may
    where a value lies within 2^-10 of the middle between two codes: so it may here, within 2^-20."""
    x = random_rows(64, 256, seed=3).astype(E4M3)
    x[1::4, ::5] = x[1::4, 1:2] * np.float32(0.125)  # six times an eighth is the middle between two codes
    magnitudes = np.abs(x.astype(np.float64)).reshape(-1, 16)
    ratios = 6 * magnitudes / magnitudes.max(axis=1, keepdims=True)
    values = np.array(E2M1_VALUES, np.float64)
    midpoints = (values[1:] + values[:-1]) / 2
    distance = np.abs(ratios[..., None] / midpoints - 1).min(axis=-1)
    nearest = np.abs(ratios[..., None] - values).argmin(axis=-1)
    for global_scale in (1.0, 38.4, 448.0 * 6 / 5):
        codes, scales = quantize_fp4(x, block_size=16, scale_format="e4m3", global_scale=global_scale)
        assert bits(decode_e4m3(scales).ravel()) == bits(magnitudes.max(axis=1).astype(np.float32))
        found = unpack(codes).reshape(-1, 16) & 7
        assert (found == nearest)[distance > 2**-20].all()
        assert (found == in_float16(x, global_scale))[distance > 2**-10].all()
        assert (np.signbit(decode_e2m1(unpack(codes))) == np.signbit(x)).all()


def in_float16(x: Any, global_scale: float) -> Any:
    """Magnitudes of the codes where what is rescaled is rounded to float16."""
    y = (np.abs(x.astype(np.float64)) * (6 / global_scale)).astype(np.float16).astype(np.float64).reshape(-1, 16)
    scales = (y.max(axis=1, keepdims=True) * global_scale / 6).astype(E4M3).astype(np.float64)
    return np.abs((y * global_scale / scales)[..., None] - np.array(E2M1_VALUES, np.float64)).argmin(axis=-1)


def test_a_column_is_rescaled_as_a_row_is() -> None:
    x = random_rows(32, 5, seed=9).astype(E4M3)
    options: Any = {"block_size": 16, "scale_format": "e4m3", "global_scale": 38.4}
    turned = quantize_fp4(x.T, **options)
    for got, wanted in zip(quantize_fp4_columns(x, **options), turned, strict=True):
        assert got.T.tobytes() == wanted.tobytes()


def test_without_a_global_scale_it_is_not() -> None:
    for options in ({"scale_format": "e4m3"}, {"scale_format": "ue8m0"}):
        got, wide = (quantize_fp4(y, block_size=32, **options) for y in (X, WIDE))  # type: ignore[arg-type]
        assert [part.tobytes() for part in got] == [part.tobytes() for part in wide]


def test_it_is_neither_a_weight_nor_a_stored_residual() -> None:
    with pytest.raises(TypeError, match="weight is float8_e4m3fn; with an x of float8_e4m3fn, use float16 or bfloat16"):
        rmsnorm_f32(X, X[0])
    with pytest.raises(TypeError, match="dtype is float8_e4m3fn"):
        stored_residual(X, WIDE)
