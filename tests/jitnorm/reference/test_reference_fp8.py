"""FP8 with float32 scales in the reference, against exact rational arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from float32_oracle import (
    F32,
    INF,
    NAN,
    NANS,
    around,
    bits,
    exact,
    nearest_float32,
    random_rows,
)
from fp8_oracle import DECODE, MAX, exact_codes, ties
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from jitnorm.reference import (
    Fp8Dtype,
    GroupScaleFormat,
    dequantize_fp8,
    encode_e4m3,
    quantize_fp8_group,
    quantize_fp8_static,
    quantize_fp8_tensor,
    quantize_fp8_token,
)

every_dtype = pytest.mark.parametrize("dtype", ["e4m3", "e5m2"])
finite_float32 = st.floats(width=32, allow_nan=False, allow_infinity=False)


# ---- one scale -------------------------------------------------------------------------------------------


@every_dtype
@pytest.mark.parametrize("scale", [1.0, 0.7, 1.1, 3e-3, 123.0])
def test_a_static_scale_multiplies_by_its_rounded_inverse(dtype: Fp8Dtype, scale: float) -> None:
    rounded = np.float32(scale)
    y = around(ties(dtype) * rounded)
    assert quantize_fp8_static(y, scale, dtype).tolist() == exact_codes(y, rounded, dtype)


def test_a_static_scale_does_not_divide() -> None:
    scale = np.float32(0.7)
    y = around(ties("e4m3") * scale)
    assert (quantize_fp8_static(y, 0.7) != encode_e4m3(y / scale)).any()


@pytest.mark.parametrize(
    ("scale", "codes"),
    [
        (0.0, [0x7E, 0xFE, 0x7F]),  # zero times infinity is NaN
        (INF, [0x00, 0x80, 0x00]),
        (-1.0, [0xB8, 0x38, 0x80]),
        (NAN, [0x7F, 0x7F, 0x7F]),
        (2.0**-149, [0x7E, 0xFE, 0x7F]),  # its inverse is infinite
    ],
)
def test_a_static_scale_is_taken_as_it_is(scale: float, codes: list[int]) -> None:
    assert quantize_fp8_static(np.array([1, -1, 0], np.float32), scale).tolist() == codes


def test_static_codes_have_the_shape_of_the_input() -> None:
    y = np.array([[[INF, -INF, NAN]]], np.float16)
    assert quantize_fp8_static(y, 1.0).tolist() == [[[0x7E, 0xFE, 0x7F]]]
    assert quantize_fp8_static(y, 1.0, "e5m2").tolist() == [[[0x7B, 0xFB, 0x7F]]]


# ---- one scale a token -----------------------------------------------------------------------------------


def exact_token_scale(amax: np.float32, dtype: str, scale_ub: float | None) -> np.float32:
    if scale_ub is not None:
        amax = min(amax, np.float32(scale_ub))
    least = nearest_float32(Fraction(1, MAX[dtype] * 512))
    return max(nearest_float32(exact(amax) / MAX[dtype]), least, key=float)


@every_dtype
@pytest.mark.parametrize("scale_ub", [None, 2.7])
@settings(deadline=None, max_examples=50)
@given(y=arrays(np.float32, (2, 20), elements=finite_float32 | st.floats(-4, 4, width=32)))
def test_a_token_rounds_after_every_operation(dtype: Fp8Dtype, scale_ub: float | None, y: F32) -> None:
    codes, scales = quantize_fp8_token(y, dtype, scale_ub)
    expected = [exact_token_scale(np.abs(row).max(), dtype, scale_ub) for row in y]
    assert scales.tolist() == [[scale] for scale in expected]
    assert codes.tolist() == [exact_codes(row, s, dtype) for row, s in zip(y, expected, strict=True)]


@every_dtype
def test_a_token_rounds_after_every_operation_next_to_a_boundary(dtype: Fp8Dtype) -> None:
    amax = np.abs(random_rows(30, 1)) + np.float32(1)
    y = np.concatenate([amax, around(ties(dtype)) * (amax / np.float32(MAX[dtype]))], axis=1)
    y = np.clip(y, -amax, amax)
    codes, scales = quantize_fp8_token(y, dtype)
    assert scales[:, 0].tolist() == [nearest_float32(exact(a) / MAX[dtype]) for a in amax[:, 0]]
    for row, row_codes, scale in zip(y[:3], codes, scales[:, 0], strict=False):
        assert row_codes.tolist() == exact_codes(row, scale, dtype)
    divided = np.array([quantize_fp8_static(row / s, 1.0, dtype) for row, s in zip(y, scales, strict=True)])
    assert (codes != divided).any(), "the cases do not tell a division from a multiplication"
    assert (scales != amax * (np.float32(1) / np.float32(MAX[dtype]))).any()


@every_dtype
def test_a_token_of_zeros_has_the_least_scale(dtype: Fp8Dtype) -> None:
    codes, scales = quantize_fp8_token(np.array([[0.0, -0.0]], np.float32), dtype)
    assert scales.tolist() == [[nearest_float32(Fraction(1, MAX[dtype] * 512))]]
    assert codes.tolist() == [[0x00, 0x80]]


@every_dtype
def test_the_least_scale_is_that_of_a_largest_magnitude_of_a_512th(dtype: Fp8Dtype) -> None:
    at = np.float32(2.0**-9)
    below, above = np.nextafter(at, np.float32(0)), at + np.float32(2.0**-32)
    scales = [quantize_fp8_token(np.full((1, 8), v), dtype)[1].item() for v in (below, at, above)]
    assert scales[0] == scales[1] < scales[2]


@every_dtype
def test_a_floor_is_the_least_scale_of_rows_and_groups(dtype: Fp8Dtype) -> None:
    y = np.float32([[1e-6], [6e5], [NAN]]) * np.ones((3, 64), np.float32)
    free, bounded = quantize_fp8_token(y, dtype), quantize_fp8_token(y, dtype, None, 0.37)
    assert bounded[1][:2].tolist() == [[np.float32(0.37)], free[1][1].tolist()]
    assert bounded[0][1:].tolist() == free[0][1:].tolist()
    assert bits(bounded[1][2]) == [0x7FFFFFFF]
    assert quantize_fp8_group(y, 64, "f32", None, 0.37)[1][0] == np.float32(0.37)
    assert quantize_fp8_group(y, 64, "ue8m0_f32", None, 0.37)[1][0] == 0.5, "the power of two is taken last"
    lower = quantize_fp8_token(y, dtype, None, 2.0**-126)[1]
    assert lower[0] == np.float32(1e-6) / np.float32({"e4m3": 448, "e5m2": 57344}[dtype])


def test_an_upper_bound_saturates_what_lies_above_it() -> None:
    y = np.array([[448, 100, -1, 0], [INF, -INF, 1, 0], [NAN, 1, 1, 1], [1, 1, 1, 0.5]], np.float32)
    codes, scales = quantize_fp8_token(y, scale_ub=56.0)
    assert scales[:2].tolist() == [[0.125], [0.125]]
    assert codes[:2].tolist() == [[0x7E, 0x7E, 0xD0, 0x00], [0x7E, 0xFE, 0x50, 0x00]]
    assert bits(scales[2]) == [0x7FFFFFFF], "a bound does not hide a NaN"
    assert (codes[2] == 0x7F).all()
    assert scales[3] == np.float32(1) / np.float32(448)


@pytest.mark.parametrize("scale_format", ["f32", "ue8m0_f32"])
def test_an_upper_bound_takes_a_group_to_what_a_largest_element_of_its_size_would(
    scale_format: GroupScaleFormat,
) -> None:
    y = random_rows(3, 128) * np.float32(10)
    y[0, 0], y[1, :64] = NAN, np.clip(y[1, :64], -2.5, 2.5)
    codes, scales = quantize_fp8_group(y, 64, scale_format, scale_ub=2.7)
    clipped_codes, clipped_scales = quantize_fp8_group(np.clip(y, -2.7, 2.7), 64, scale_format)
    assert bits(scales) == bits(clipped_scales)
    assert (codes != quantize_fp8_group(y, 64, scale_format)[0]).any()
    # A power of two may leave room above the bound.
    is_within = ~(np.abs(y) > np.float32(2.7))
    assert (codes == clipped_codes)[is_within].all()


@pytest.mark.parametrize(("scale_ub", "amax"), [(0.0, 0.0), (-INF, 0.0), (INF, 4.0), (NAN, 4.0), (4.0, 4.0)])
def test_every_upper_bound_is_taken_as_it_is(scale_ub: float, amax: float) -> None:
    y, bounded = np.full((1, 64), -4, np.float32), np.full((1, 64), amax, np.float32)
    assert quantize_fp8_token(y, scale_ub=scale_ub)[1] == quantize_fp8_token(bounded)[1]
    assert quantize_fp8_group(y, 64, scale_ub=scale_ub)[1] == quantize_fp8_group(bounded, 64)[1]


@every_dtype
@pytest.mark.parametrize("nan", NANS)
def test_a_nan_takes_its_whole_token_and_no_other(dtype: Fp8Dtype, nan: np.float32) -> None:
    y = np.ones((2, 5), np.float32)
    y[0, 3:] = nan, INF
    codes, scales = quantize_fp8_token(y, dtype)
    assert bits(scales[0]) == [0x7FFFFFFF]
    assert (codes[0] == 0x7F).all()
    assert (DECODE[dtype](codes[1]) == MAX[dtype]).all()


@every_dtype
def test_an_infinity_makes_the_scale_infinite(dtype: Fp8Dtype) -> None:
    codes, scales = quantize_fp8_token(np.array([[INF, -INF, 3, -3]], np.float32), dtype)
    assert scales.tolist() == [[INF]]
    assert codes.tolist() == [[0x7F, 0x7F, 0x00, 0x80]], "zero times infinity is NaN"


# ---- one scale, found ------------------------------------------------------------------------------------


@every_dtype
@settings(deadline=None, max_examples=50)
@given(y=arrays(np.float32, (2, 3, 5), elements=finite_float32 | st.floats(-4, 4, width=32)))
def test_a_found_scale_is_that_of_all_rows_as_one_token(dtype: Fp8Dtype, y: F32) -> None:
    codes, scale = quantize_fp8_tensor(y, dtype)
    as_token, token_scale = quantize_fp8_token(y.reshape(1, -1), dtype)
    assert (codes.shape, scale.shape) == (y.shape, (1,))
    assert codes.tobytes() == as_token.tobytes()
    assert scale.tobytes() == token_scale.tobytes()
    assert scale.tolist() == [exact_token_scale(np.abs(y).max(), dtype, None)]


@pytest.mark.parametrize("nan", NANS)
def test_a_nan_takes_the_whole_tensor(nan: np.float32) -> None:
    y = np.ones((2, 5), np.float32)
    y[0, 3:] = nan, INF
    codes, scale = quantize_fp8_tensor(y)
    assert bits(scale) == [0x7FFFFFFF]
    assert (codes == 0x7F).all()


def test_a_tensor_of_nothing_has_the_least_scale() -> None:
    codes, scale = quantize_fp8_tensor(np.ones((0, 64), np.float32))
    assert codes.shape == (0, 64)
    assert scale.tolist() == [nearest_float32(Fraction(1, 448 * 512))]


# ---- properties of all -----------------------------------------------------------------------------------


def decoded(codes: NDArray[np.uint8], scales: F32, dtype: str) -> NDArray[np.float64]:
    values: NDArray[np.float64] = DECODE[dtype](codes).astype(np.float64)
    return values * np.repeat(scales, codes.shape[1] // scales.shape[1], axis=1)


@settings(deadline=None, max_examples=50)
@given(y=arrays(np.float32, (2, 128), elements=st.floats(-(2.0**100), 2.0**100, width=32)))
def test_decoding_is_off_by_half_a_step_and_never_saturates(y: F32) -> None:
    outputs: list[tuple[Any, Any]] = [
        (quantize_fp8_token(y), "e4m3"),
        (quantize_fp8_token(y, "e5m2"), "e5m2"),
        (quantize_fp8_group(y, 64), "e4m3"),
        (quantize_fp8_group(y, 128, "ue8m0_f32"), "e4m3"),
    ]
    for (codes, scales), dtype in outputs:
        relative, absolute = {"e4m3": (1 / 16, 2.0**-10), "e5m2": (1 / 8, 2.0**-17)}[dtype]
        step = np.repeat(scales, codes.shape[1] // scales.shape[1], axis=1).astype(float)
        bound = np.maximum(np.abs(y.astype(float)) * relative, step * absolute)
        assert (np.abs(decoded(codes, scales, dtype) - y) <= bound * (1 + 2.0**-20)).all()


every_scales_shape = pytest.mark.parametrize("shape", [(1,), (3, 1), (3, 4)])


@every_dtype
@every_scales_shape
def test_decoding_is_one_multiplication(dtype: Fp8Dtype, shape: tuple[int, ...]) -> None:
    codes = np.arange(3 * 40, dtype=np.uint8).reshape(3, 40) + np.uint8(110)  # of both signs, specials too
    scales = np.abs(random_rows(1, math.prod(shape)).reshape(shape)) + np.float32(2.0**-140)
    values = DECODE[dtype](codes)
    decoded = dequantize_fp8(codes, scales, dtype)
    by_column = np.broadcast_to(scales if len(shape) == 1 else np.repeat(scales, 40 // shape[1], axis=1), (3, 40))
    for value, scale, result in zip(values.ravel(), by_column.ravel(), decoded.ravel(), strict=True):
        if np.isfinite(value):
            assert result == nearest_float32(exact(value) * exact(scale))
            assert np.signbit(result) == np.signbit(value)
        else:
            assert bits(result) == ([0x7FFFFFFF] if np.isnan(value) else bits(value))


def test_a_nan_scale_makes_all_that_it_scales_nan() -> None:
    codes = np.array([[0x00, 0x38, 0x00, 0x38]], np.uint8)
    decoded = dequantize_fp8(codes, np.array([[NAN, 2]], np.float32))
    assert bits(decoded[0, :2]) == [0x7FFFFFFF] * 2
    assert decoded[0, 2:].tolist() == [0.0, 2.0]


def test_no_rows_give_no_codes() -> None:
    nothing = np.ones((0, 128), np.float32)
    assert [part.shape for part in quantize_fp8_token(nothing)] == [(0, 128), (0, 1)]
    assert [part.shape for part in quantize_fp8_group(nothing, 64)] == [(0, 128), (0, 2)]


ONES = np.ones((2, 64), np.float32)
DOUBLES: Any = ONES.astype(np.float64)
CODES = np.zeros((2, 64), np.uint8)
UNKNOWN: Any = "e3m4"


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: quantize_fp8_static(DOUBLES, 1.0), TypeError, "y is float64"),
        (lambda: quantize_fp8_static(ONES, 1.0, UNKNOWN), ValueError, "dtype is 'e3m4'"),
        (lambda: quantize_fp8_token(DOUBLES), TypeError, "y is float64"),
        (lambda: quantize_fp8_token(ONES, UNKNOWN), ValueError, "dtype is 'e3m4'"),
        (lambda: quantize_fp8_token(ONES[:, :0]), ValueError, "at least one element"),
        (lambda: quantize_fp8_tensor(DOUBLES), TypeError, "y is float64"),
        (lambda: quantize_fp8_tensor(ONES, UNKNOWN), ValueError, "dtype is 'e3m4'"),
        (lambda: dequantize_fp8(CODES, ONES[0, :1], UNKNOWN), ValueError, "dtype is 'e3m4'"),
        (lambda: dequantize_fp8(CODES, DOUBLES), TypeError, "scales is float64"),
        (lambda: dequantize_fp8(CODES, ONES[:1]), ValueError, r"use \(1,\) or \(M, G\)"),
        (lambda: dequantize_fp8(CODES, ONES[0]), ValueError, r"use \(1,\) or \(M, G\)"),
        (lambda: dequantize_fp8(CODES, ONES[:, :3]), ValueError, "3 columns; their number must divide the 64"),
        (lambda: dequantize_fp8(CODES, ONES[:, :0]), ValueError, "0 columns"),
        (lambda: quantize_fp8_group(DOUBLES), TypeError, "y is float64"),
        (lambda: quantize_fp8_group(ONES, 80), ValueError, "group_size is 80; use one of 16, 32, 48, 64, 96"),
        (lambda: quantize_fp8_group(ONES, 128), ValueError, "multiple of 128"),
        (lambda: quantize_fp8_group(ONES, 64, UNKNOWN), ValueError, "scale_format is 'e3m4'"),
    ],
)
def test_what_is_not_defined_is_an_error(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
