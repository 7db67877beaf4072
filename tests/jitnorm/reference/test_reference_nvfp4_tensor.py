"""NVFP4 with one global scale found from the tensor, and the largest magnitude that it comes from."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from float32_oracle import F32, FLT_MAX, INF, NAN, NANS, bits, exact, nearest_float32, random_rows
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from jitnorm.reference import amax_f32, dequantize_fp4, quantize_nvfp4_row, quantize_nvfp4_tensor

NVFP4: Any = {"block_size": 16, "scale_format": "e4m3"}
every_block_size = pytest.mark.parametrize("block_size", [16, 32])


@every_block_size
@settings(deadline=None, max_examples=50)
@given(y=arrays(np.float32, (3, 64), elements=st.floats(width=32)))
def test_a_tensor_is_quantized_as_one_long_row(block_size: int, y: F32) -> None:
    codes, scales, tensor_scale = quantize_nvfp4_tensor(y, block_size)
    row_codes, row_scales_, row_scale = quantize_nvfp4_row(y.reshape(1, -1), block_size)
    assert (codes.shape, scales.shape, tensor_scale.shape) == ((3, 32), (3, 64 // block_size), (1,))
    assert codes.tobytes() == row_codes.tobytes()
    assert scales.tobytes() == row_scales_.tobytes()
    assert tensor_scale.tobytes() == row_scale.tobytes()


def test_a_tensor_of_nothing_or_of_zeros_has_the_scale_zero() -> None:
    for y in (np.ones((0, 64), np.float32), np.ones((2, 0), np.float32), np.full((2, 64), -0.0, np.float32)):
        codes, scales, tensor_scale = quantize_nvfp4_tensor(y)
        assert codes.shape == (len(y), y.shape[1] // 2)
        assert not codes.any()
        assert not scales.any()
        assert bits(tensor_scale) == [0]


@pytest.mark.parametrize("nan", NANS)
def test_a_nan_takes_the_whole_tensor(nan: np.float32) -> None:
    y = np.ones((2, 32), np.float32)
    y[1, 17] = nan
    codes, scales, tensor_scale = quantize_nvfp4_tensor(y)
    assert (codes == 0x77).all()
    assert (scales == 0x7F).all()
    assert bits(tensor_scale) == [0x7FFFFFFF]


# ---- decoding --------------------------------------------------------------------------------------------


def test_decoding_multiplies_by_the_row_or_the_tensor_scale_last() -> None:
    y = random_rows(5, 64)
    for quantize in (quantize_nvfp4_row, quantize_nvfp4_tensor):
        codes, scales, decode_scale = quantize(y)
        without = dequantize_fp4(codes, scales, **NVFP4)
        decoded = dequantize_fp4(codes, scales, **NVFP4, decode_scale=decode_scale)
        factors = np.broadcast_to(decode_scale, 5)
        for row, without_row, factor in zip(decoded, without, factors, strict=True):
            assert row.tolist() == [nearest_float32(exact(d) * exact(factor)) for d in without_row]
        assert np.abs(decoded - y).max() < 0.4


def test_a_nan_or_zero_decode_scale_is_taken_as_it_is() -> None:
    y = np.ones((3, 16), np.float32)
    y[0], y[1, 3] = 0, NAN
    codes, scales, row_scales = quantize_nvfp4_row(y)
    decoded = dequantize_fp4(codes, scales, **NVFP4, decode_scale=row_scales)
    assert bits(decoded[0]) == [0] * 16
    assert bits(decoded[1]) == [0x7FFFFFFF] * 16
    assert np.abs(decoded[2] - 1).max() < 1e-6


CODES, SCALES = np.zeros((2, 16), np.uint8), np.zeros((2, 2), np.uint8)
ONES: Any = np.ones(2, np.float32)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: dequantize_fp4(CODES, SCALES, **NVFP4, decode_scale=ONES.astype(np.float64)), TypeError, "is float64"),
        (lambda: dequantize_fp4(CODES, SCALES, **NVFP4, decode_scale=ONES[:, None]), ValueError, r"\(2,\) or \(1,\)"),
        (
            lambda: dequantize_fp4(CODES, SCALES, **NVFP4, decode_scale=ONES, global_scale=1.0),
            ValueError,
            "e4m3 scales and no global_scale",
        ),
        (
            lambda: dequantize_fp4(CODES, SCALES[:, :1], block_size=32, scale_format="ue8m0", decode_scale=ONES),
            ValueError,
            "needs e4m3 scales",
        ),
        (lambda: quantize_nvfp4_tensor(ONES[None].astype(np.float64)), TypeError, "y is float64"),
        (lambda: quantize_nvfp4_tensor(np.ones((2, 64), np.float32), 8), ValueError, "block_size is 8"),
        (lambda: quantize_nvfp4_tensor(np.ones((2, 24), np.float32)), ValueError, "multiple of 16"),
    ],
)
def test_what_is_not_defined_is_an_error(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


# ---- the largest magnitude -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, ml_dtypes.float8_e4m3fn])
def test_amax_is_the_largest_magnitude_in_float32(dtype: Any) -> None:
    y = random_rows(3, 20).reshape(3, 4, 5).astype(dtype)
    amax = amax_f32(y)
    assert (amax.shape, amax.dtype) == ((1,), np.float32)
    assert Fraction(float(amax[0])) == max(abs(exact(v)) for v in y.ravel())


@pytest.mark.parametrize(
    ("elements", "expected"),
    [([], 0.0), ([-0.0], 0.0), ([1, -INF], INF), ([-FLT_MAX, 3], FLT_MAX), ([-(2.0**-149)], 2.0**-149)],
)
def test_amax_at_the_edges(elements: list[float], expected: float) -> None:
    assert bits(amax_f32(np.array(elements, np.float32))) == bits(np.array([expected], np.float32))


@pytest.mark.parametrize("nan", NANS)
def test_amax_of_a_nan_is_the_nan_of_jitnorm(nan: np.float32) -> None:
    assert bits(amax_f32(np.array([INF, nan, 1], np.float32))) == [0x7FFFFFFF]
