"""The exponential of the reference, SiLU and SwiGLU, against float64 and exact rational arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from float32_oracle import F32, INF, NAN, NANS, bits, exact, exact_fma, nearest_float32, random_rows
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from jitnorm.reference import exp_f32, silu_f32, swiglu_f32

LN2 = sum(Fraction(1, k * 2**k) for k in range(1, 200))
LN2_HIGH = exact(float.fromhex("0x1.62e4p-1"))
LOG2_E = nearest_float32(1 / LN2)
LN2_LOW = nearest_float32(LN2 - LN2_HIGH)
TAYLOR = [nearest_float32(Fraction(1, math.factorial(k))) for k in range(7, -1, -1)]


def exact_exp(x: np.float32) -> np.float32:
    """Follow the definition, rounding exact rationals where it does."""
    t = min(max(x, np.float32(-104)), np.float32(104))
    magic = np.float32(1.5 * 2**23)
    n = nearest_float32(exact(exact_fma(t, LOG2_E, magic)) - exact(magic))
    r = exact_fma(n, -LN2_LOW, exact_fma(n, np.float32(-LN2_HIGH), t))
    p = TAYLOR[0]
    for coefficient in TAYLOR[1:]:
        p = exact_fma(p, r, coefficient)
    half = int(n) // 2
    scaled = nearest_float32(exact(p) * Fraction(2) ** half)
    return nearest_float32(exact(scaled) * Fraction(2) ** (int(n) - half))


def ulps(actual: F32, expected: NDArray[np.float64]) -> NDArray[np.float64]:
    """The distance in units of the last place that a float32 has at the expected value."""
    exponent = np.maximum(np.frexp(expected)[1] - 1, -126)
    distance: NDArray[np.float64] = np.abs(actual.astype(np.float64) - expected) / np.ldexp(1.0, exponent - 23)
    return distance


def test_the_constants_are_the_nearest_float32() -> None:
    assert np.float32(float.fromhex("0x1.715476p+0")) == LOG2_E
    assert np.float32(float.fromhex("0x1.7f7d1cp-20")) == LN2_LOW
    # 15 bits: the product with any n, of 8 bits, is exact.
    assert (LN2_HIGH * 2**15).denominator == 1


@settings(deadline=None, max_examples=300)
@given(st.floats(-110, 110, width=32) | st.floats(width=32, allow_nan=False))
def test_exp_rounds_after_every_operation(x: float) -> None:
    assert bits(exp_f32(np.array([x], np.float32))) == bits(np.array([exact_exp(np.float32(x))]))


def test_exp_is_less_than_one_ulp_off() -> None:
    x = np.concatenate([np.linspace(-103.97, 88.72, 400_003), np.linspace(-0.35, 0.35, 100_003)]).astype(np.float32)
    assert ulps(exp_f32(x), np.exp(x.astype(np.float64))).max() < 0.94


def test_exp_grows_with_its_argument() -> None:
    x = np.linspace(-104, 89, 300_001).astype(np.float32)
    y = exp_f32(x)
    assert (y[1:] >= y[:-1]).all()


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (0.0, 1.0),
        (-0.0, 1.0),
        (2.0**-149, 1.0),
        (float.fromhex("0x1.62e42ep+6"), float.fromhex("0x1.ffff08p+127")),
        (float.fromhex("0x1.62e43p+6"), INF),
        (104.0, INF),
        (1e38, INF),
        (INF, INF),
        (float.fromhex("-0x1.9fe368p+6"), 2.0**-149),
        (float.fromhex("-0x1.9fe36ap+6"), 0.0),
        (-104.0, 0.0),
        (-1e38, 0.0),
        (-INF, 0.0),
    ],
)
def test_exp_overflows_and_underflows_where_it_must(x: float, expected: float) -> None:
    assert bits(exp_f32(np.array([x], np.float32))) == bits(np.array([expected], np.float32))


@pytest.mark.parametrize("function", [exp_f32, silu_f32])
def test_a_nan_stays_one(function: Any) -> None:
    assert bits(function(NANS)) == [0x7FFFFFFF] * len(NANS)


# ---- SiLU ------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=200)
@given(st.floats(-88.5, 100, width=32))
def test_silu_rounds_after_every_operation(x: float) -> None:
    denominator = exact(nearest_float32(1 + exact(exact_exp(-np.float32(x)))))
    expected = nearest_float32(exact(x) / denominator)
    assert silu_f32(np.array([x], np.float32))[0] == expected


def test_silu_is_less_than_2_point_4_ulp_off() -> None:
    x = np.linspace(-88.72, 100, 400_003).astype(np.float32)
    wide = x.astype(np.float64)
    assert ulps(silu_f32(x), wide / (1 + np.exp(-wide))).max() < 2.4


@pytest.mark.parametrize(
    ("x", "expected"),
    [(0.0, 0.0), (-0.0, -0.0), (-89.0, -0.0), (-1e38, -0.0), (-INF, NAN), (100.0, 100.0), (INF, INF)],
)
def test_silu_at_the_edges(x: float, expected: float) -> None:
    wanted = [0x7FFFFFFF] if math.isnan(expected) else bits(np.array([expected], np.float32))
    assert bits(silu_f32(np.array([x], np.float32))) == wanted


# ---- SwiGLU ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, ml_dtypes.float8_e4m3fn])
@pytest.mark.parametrize("granularity", [None, 1, 4, 8, 24])
def test_each_output_is_the_silu_of_its_gate_times_its_up(dtype: Any, granularity: int | None) -> None:
    half = 24
    x = random_rows(3, 2 * half).astype(dtype)
    h = swiglu_f32(x, granularity)
    c = granularity or half
    for i in range(half):
        place = i // c * 2 * c + i % c
        gate, up = silu_f32(x[:, place]), x[:, place + c].astype(np.float32)
        assert h[:, i].tolist() == [nearest_float32(exact(g) * exact(u)) for g, u in zip(gate, up, strict=True)]


def test_swiglu_is_not_rounded_to_the_input_dtype() -> None:
    x = random_rows(3, 32).astype(np.float16)
    h = swiglu_f32(x)
    assert h.dtype == np.float32
    assert (h != h.astype(np.float16)).any()


def test_swiglu_writes_the_nan_of_jitnorm() -> None:
    x = np.array([[-INF, INF, 1, 0, 1, 0, NAN, INF]], np.float32)
    assert bits(swiglu_f32(x)) == [0x7FFFFFFF, 0x7FFFFFFF, 0x7FFFFFFF, 0x7FFFFFFF]


def test_no_rows_give_no_rows() -> None:
    assert swiglu_f32(np.ones((0, 64), np.float32)).shape == (0, 32)


ONES = np.ones((2, 64), np.float32)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: exp_f32(ONES.astype(np.float64)), TypeError, "x is float64"),
        (lambda: silu_f32(ONES.astype(np.float64)), TypeError, "x is float64"),
        (lambda: swiglu_f32(ONES[0]), ValueError, "x has shape"),
        (lambda: swiglu_f32(ONES[:, :63]), ValueError, "rows of 63 elements"),
        (lambda: swiglu_f32(ONES, 0), ValueError, "granularity is 0; it must divide 32"),
        (lambda: swiglu_f32(ONES, 64), ValueError, "granularity is 64; it must divide 32"),
    ],
)
def test_what_is_not_defined_is_an_error(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
