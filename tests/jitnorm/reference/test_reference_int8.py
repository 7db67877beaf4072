"""INT8 with float32 scales, by exact rational arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from float32_oracle import F32, INF, NAN, NANS, around, bits, exact, nearest_float32, random_rows
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from jitnorm.reference import (
    dequantize_int8,
    encode_int8,
    quantize_int8_group,
    quantize_int8_static,
    quantize_int8_tensor,
    quantize_int8_token,
)

ONES = np.ones((2, 64), np.float32)
DOUBLES = ONES.astype(np.float64)


def nearest_integer(value: np.float32) -> int:
    """The nearest of -128 to 127, the even one at a tie."""
    return 0 if np.isnan(value) else round(max(min(exact(np.clip(value, -1000, 1000)), 127), -128))


def exact_scale(amax: np.float32, scale_ub: float | None = None) -> np.float32:
    bounded = amax if scale_ub is None else min(amax, np.float32(scale_ub))
    return nearest_float32(exact(max(bounded, np.float32(1e-10))) / 127)


def exact_codes(y: F32, scale: np.float32) -> list[int]:
    """The exact codes for a finite positive scale, rounded where the definition rounds."""
    inverse = exact(nearest_float32(1 / exact(scale)))
    return [nearest_integer(nearest_float32(exact(v) * inverse)) for v in y]


def test_codes_are_the_nearest_integers() -> None:
    halves = np.arange(0, 262, dtype=np.float32) / 2
    values = np.concatenate([around(halves[1:]), np.float32([0, -0.0, 1e-45, 1e9, -1e9, 3e38, INF, -INF]), NANS])
    assert encode_int8(values).tolist() == [nearest_integer(v) for v in values]
    assert encode_int8(values).dtype == np.int8


@pytest.mark.parametrize(
    ("scale", "codes"),
    [
        (0.0, [127, -128, 0]),  # zero times infinity is NaN
        (INF, [0, 0, 0]),
        (-1.0, [-1, 1, 0]),
        (NAN, [0, 0, 0]),
        (2.0**-149, [127, -128, 0]),  # its inverse is infinite
    ],
)
def test_a_static_scale_is_taken_as_it_is(scale: float, codes: list[int]) -> None:
    assert quantize_int8_static(np.array([1, -1, 0], np.float32), scale).tolist() == codes


def test_static_codes_have_the_shape_of_the_input() -> None:
    assert quantize_int8_static(np.array([[[INF, -INF, NAN]]], np.float16), 1.0).tolist() == [[[127, -128, 0]]]


@pytest.mark.parametrize("scale_ub", [None, 2.7])
@settings(deadline=None, max_examples=50)
@given(y=arrays(np.float32, (2, 20), elements=st.floats(-4, 4, width=32) | st.floats(-(2.0**100), 2.0**100, width=32)))
def test_a_token_rounds_after_every_operation(scale_ub: float | None, y: F32) -> None:
    codes, scales = quantize_int8_token(y, scale_ub)
    expected = [exact_scale(np.abs(row).max(), scale_ub) for row in y]
    assert scales.tolist() == [[scale] for scale in expected]
    assert codes.tolist() == [exact_codes(row, scale) for row, scale in zip(y, expected, strict=True)]


def test_a_token_multiplies_by_the_reciprocal_of_its_scale() -> None:
    amax = np.abs(random_rows(30, 1)) + np.float32(1)
    ties = around(np.arange(127, dtype=np.float32) + np.float32(0.5)) * (amax / np.float32(127))
    y = np.concatenate([amax, np.clip(ties, -amax, amax)], axis=1)
    codes, scales = quantize_int8_token(y)
    for row, row_codes, scale in zip(y[:3], codes, scales[:, 0], strict=False):
        assert row_codes.tolist() == exact_codes(row, scale)
    assert (codes != encode_int8(y / scales)).any(), "the cases do not tell a division from a multiplication"


def test_without_a_bound_no_code_saturates_and_errors_are_half_a_scale() -> None:
    y = random_rows(64, 256)
    codes, scales = quantize_int8_token(y)
    assert (np.abs(codes.astype(np.int16)).max(axis=1) == 127).all()
    assert (np.abs(dequantize_int8(codes, scales) - y) <= scales * np.float32(0.5001)).all()


def test_a_token_of_zeros_has_the_least_scale() -> None:
    codes, scales = quantize_int8_token(np.array([[0.0, -0.0]], np.float32))
    assert scales.tolist() == [[nearest_float32(exact(np.float32(1e-10)) / 127)]]
    assert codes.tolist() == [[0, 0]]


def test_an_upper_bound_saturates_what_lies_above_it() -> None:
    y = np.array([[448, 100, -1, 0], [INF, -INF, 1, 0], [NAN, 1, 1, 1]], np.float32)
    codes, scales = quantize_int8_token(y, scale_ub=127.0)
    assert scales[:2].tolist() == [[1.0], [1.0]]
    assert codes.tolist() == [[127, 100, -1, 0], [127, -128, 1, 0], [0, 0, 0, 0]]
    assert bits(scales[2]) == [0x7FFFFFFF], "a bound does not hide a NaN"


def test_a_floor_is_the_least_scale_of_rows_and_groups() -> None:
    y = np.float32([[1e-6], [200.0], [NAN]]) * np.ones((3, 64), np.float32)
    floor = np.float32(0.37)
    for codes, scales in (quantize_int8_token(y, None, 0.37), quantize_int8_group(y, 64, None, 0.37)):
        assert scales[:2, 0].tolist() == [floor, exact_scale(np.float32(200))]
        assert codes[:, 0].tolist() == [0, 127, 0]
        assert bits(scales[2]) == [0x7FFFFFFF]


def test_an_infinity_and_a_nan_take_their_row() -> None:
    codes, scales = quantize_int8_token(np.array([[INF, -INF, 3, -3], [NAN, 1, INF, 2]], np.float32))
    assert codes.tolist() == [[0] * 4] * 2
    assert bits(scales) == [0x7F800000, 0x7FFFFFFF]
    assert np.isnan(dequantize_int8(codes, scales)).all()


@pytest.mark.parametrize("group_size", [16, 32, 48, 64, 96, 128, 256])
def test_a_group_is_encoded_as_a_token(group_size: int) -> None:
    y = random_rows(6, 768) * np.float32([[1e-12], [1], [1e6], [NAN], [INF], [0]])
    codes, scales = quantize_int8_group(y, group_size, 2.5)
    token_codes, token_scales = quantize_int8_token(y.reshape(-1, group_size), 2.5)
    assert codes.tobytes() == token_codes.tobytes()
    assert scales.tobytes() == token_scales.tobytes()


def test_a_tensor_is_encoded_as_one_token() -> None:
    y = random_rows(3, 64)
    (codes, scale), (token_codes, token_scale) = quantize_int8_tensor(y), quantize_int8_token(y.reshape(1, -1))
    assert (codes.shape, scale.shape) == (y.shape, (1,))
    assert codes.tobytes() == token_codes.tobytes()
    assert scale.tobytes() == token_scale.tobytes()


def test_decoding_multiplies_every_code_by_its_scale() -> None:
    codes = np.arange(-128, 128, dtype=np.int8)[None]
    scales = np.float32([[1 / 3, 1e-38]])
    expected = [nearest_float32(int(c) * exact(scales[0, i // 128])) for i, c in enumerate(codes[0])]
    assert dequantize_int8(codes, scales).tolist() == [expected]
    assert dequantize_int8(codes, np.float32([0.5])).tolist() == [[c / 2 for c in codes[0].tolist()]]
    assert Fraction(float(dequantize_int8(codes, np.float32([2.0]))[0, 0])) == -256


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: encode_int8(DOUBLES), TypeError, "v is float64"),
        (lambda: quantize_int8_static(DOUBLES, 1.0), TypeError, "y is float64"),
        (lambda: quantize_int8_token(ONES[:, :0]), ValueError, "at least one element"),
        (lambda: quantize_int8_group(ONES, 80), ValueError, "group_size is 80; use one of 16, 32, 48, 64, 96, 128"),
        (lambda: quantize_int8_group(ONES, 128), ValueError, "multiple of 128"),
        (lambda: dequantize_int8(np.zeros((1, 2), np.uint8), ONES[:1, :1]), TypeError, "codes is uint8"),  # type: ignore[arg-type]
        (lambda: dequantize_int8(np.zeros((1, 2), np.int8), ONES), ValueError, r"use \(1,\) or \(M, G\)"),
        (lambda: dequantize_int8(np.zeros((2, 3), np.int8), ONES[:, :2]), ValueError, "divide the 3 of codes"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
