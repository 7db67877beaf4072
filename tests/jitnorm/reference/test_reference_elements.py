"""The element formats of the reference, against ml_dtypes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from float32_oracle import F32, FLT_MAX, INF, NAN, NANS, around, bits, same_bits

from jitnorm.reference import (
    decode_e2m1,
    decode_e4m3,
    decode_e5m2,
    encode_e2m1,
    encode_e4m3,
    encode_e5m2,
    round_to,
)


@pytest.mark.parametrize(("dtype", "mantissa", "least"), [(np.float16, 10, -14), (ml_dtypes.bfloat16, 7, -126)])
def test_16_bit_outputs_are_rounded_to_nearest_even(dtype: Any, mantissa: int, least: int) -> None:
    infinity = int(np.array(INF, dtype).view(np.uint16))
    values = np.arange(infinity, dtype=np.uint16).view(dtype).astype(np.float64)
    ties = (values[:-1] + values[1:]) / 2
    y = around(ties.astype(np.float32))
    quantum = np.ldexp(1.0, np.maximum(np.frexp(y.astype(np.float64))[1] - 1, least) - mantissa)
    expected = np.rint(y / quantum) * quantum  # np.rint rounds halves to even
    assert same_bits(round_to(y, dtype).astype(np.float64), expected)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_every_nan_is_written_as_7fff_and_infinities_stay(dtype: Any) -> None:
    assert round_to(NANS, dtype).view(np.uint16).tolist() == [0x7FFF] * 4
    assert round_to(np.array([INF, -INF, FLT_MAX], np.float32), dtype).tolist() == [INF, -INF, INF]


def test_float32_outputs_keep_their_bits_but_for_nans() -> None:
    v = np.array([1.1, -0.0, 2.0**-149, -INF], np.float32)
    assert round_to(v, np.float32).tobytes() == v.tobytes()
    assert bits(round_to(NANS, np.float32)) == [0x7FFFFFFF] * 4


@pytest.mark.parametrize(
    ("decode", "codes", "dtype"),
    [
        (decode_e4m3, 256, ml_dtypes.float8_e4m3fn),
        (decode_e5m2, 256, ml_dtypes.float8_e5m2),
        (decode_e2m1, 16, ml_dtypes.float4_e2m1fn),
    ],
)
def test_every_code_decodes_as_in_ml_dtypes(decode: Any, codes: int, dtype: Any) -> None:
    every_code = np.arange(codes, dtype=np.uint8)
    decoded = decode(every_code)
    assert same_bits(decoded, every_code.view(dtype).astype(np.float32))
    assert set(bits(decoded[np.isnan(decoded)])) <= {0x7FFFFFFF}


def every_16_bit_value(dtype: Any) -> F32:
    values: F32 = np.arange(2**16, dtype=np.uint16).view(dtype).astype(np.float32)
    return values


def positive_ties(codes: int, dtype: Any) -> F32:
    values = np.arange(codes, dtype=np.uint8).view(dtype).astype(np.float32)
    return np.concatenate([values, (values[:-1] + values[1:]) / 2, values[-1:] * np.float32(1.0625)])


@pytest.mark.parametrize(
    "v",
    [
        pytest.param(every_16_bit_value(np.float16), id="every-float16"),
        pytest.param(every_16_bit_value(ml_dtypes.bfloat16), id="every-bfloat16"),
        pytest.param(around(positive_ties(127, ml_dtypes.float8_e4m3fn)), id="around-every-e4m3-boundary"),
        pytest.param(around(positive_ties(124, ml_dtypes.float8_e5m2)), id="around-every-e5m2-boundary"),
        pytest.param(around(positive_ties(8, ml_dtypes.float4_e2m1fn)), id="around-every-e2m1-boundary"),
    ],
)
def test_elements_encode_as_in_ml_dtypes(v: F32) -> None:
    # ml_dtypes overflows to NaN and keeps its sign; jitnorm saturates and has one NaN.
    nan = np.isnan(v)
    number = np.where(nan, 0, v)
    e4m3 = np.clip(number, -448, 448).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    assert (encode_e4m3(v) == np.where(nan, 0x7F, e4m3)).all()
    e5m2 = np.clip(number, -57344, 57344).astype(ml_dtypes.float8_e5m2).view(np.uint8)
    assert (encode_e5m2(v) == np.where(nan, 0x7F, e5m2)).all()
    e2m1 = np.clip(number, -6, 6).astype(ml_dtypes.float4_e2m1fn).view(np.uint8)
    assert (encode_e2m1(v) == np.where(nan, 0x7, e2m1)).all()


def test_elements_saturate_keep_the_sign_of_zero_and_have_one_nan() -> None:
    v = np.array([0.0, -0.0, INF, -INF, NAN, -NAN, 1e30, -(2.0**-149)], np.float32)
    assert encode_e2m1(v).tolist() == [0x0, 0x8, 0x7, 0xF, 0x7, 0x7, 0x7, 0x8]
    assert encode_e4m3(v).tolist() == [0x00, 0x80, 0x7E, 0xFE, 0x7F, 0x7F, 0x7E, 0x80]
    assert encode_e5m2(v).tolist() == [0x00, 0x80, 0x7B, 0xFB, 0x7F, 0x7F, 0x7B, 0x80]


def test_e2m1_ties_go_to_the_even_code() -> None:
    ties = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0], np.float32)
    assert encode_e2m1(ties).tolist() == [0, 2, 2, 4, 4, 6, 6]


ONES: Any = np.ones((2, 64), np.float32)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: encode_e2m1(ONES.astype(np.float64)), TypeError, "v is float64"),
        (lambda: encode_e5m2(ONES.astype(np.float64)), TypeError, "v is float64"),
        (lambda: decode_e4m3(ONES), TypeError, "codes is float32"),
        (lambda: decode_e5m2(ONES), TypeError, "codes is float32"),
        (lambda: decode_e2m1(np.array([0x10], np.uint8)), IndexError, "out of bounds"),
        (lambda: round_to(ONES, np.float64), TypeError, "dtype is float64"),
        (lambda: round_to(ONES.astype(np.float64), np.float16), TypeError, "y is float64"),
    ],
)
def test_what_is_not_defined_is_an_error(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
