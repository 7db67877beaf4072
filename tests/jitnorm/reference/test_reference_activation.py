"""SiLU and SwiGLU of the reference, against float64 and exact rational arithmetic."""

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

from jitnorm.reference import silu_f32, swiglu_f32

LN2 = sum(Fraction(1, k * 2**k) for k in range(1, 200))
LN2_HIGH = exact(float.fromhex("0x1.62e4p-1"))
LOG2_E = nearest_float32(1 / LN2)
LN2_LOW = nearest_float32(LN2 - LN2_HIGH)
MAGIC = np.float32(1.5 * 2**23)
POLYNOMIAL = [
    np.float32(float.fromhex(text))
    for text in ("0x1.0fa82p-7", "0x1.573a6cp-5", "0x1.555a6cp-3", "0x1.fffdc6p-2", "0x1.fffff6p-1", "0x1p+0")
]


def exact_silu(x: np.float32) -> np.float32:
    """Follow the definition, rounding exact rationals where it does."""
    bounded = max(x, np.float32(-87))
    t = min(bounded, np.float32(87))
    n = nearest_float32(exact(exact_fma(t, -LOG2_E, MAGIC)) - exact(MAGIC))
    r = exact_fma(n, -LN2_LOW, exact_fma(n, np.float32(-LN2_HIGH), -t))
    p = POLYNOMIAL[0]
    for coefficient in POLYNOMIAL[1:]:
        p = exact_fma(p, r, coefficient)
    d = nearest_float32(1 + exact(p) * Fraction(2) ** int(n))
    y = np.uint32(0x7EF311C3 - int(d.view(np.uint32))).view(np.float32)
    for _ in range(3):
        y = exact_fma(y, exact_fma(-d, y, np.float32(1)), y)
    return nearest_float32(exact(bounded) * exact(y))


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


def test_the_polynomial_is_less_than_an_ulp_off() -> None:
    r = np.linspace(-0.3466, 0.3466, 100_003)
    value = np.polyval([float(c) for c in POLYNOMIAL], r)
    assert (np.abs(value / np.exp(r) - 1) < 2.0**-23).all()


def test_a_nan_stays_one() -> None:
    assert bits(silu_f32(NANS)) == [0x7FFFFFFF] * len(NANS)


# ---- SiLU ------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=300)
@given(st.floats(-100, 100, width=32) | st.floats(-(2.0**90), 2.0**90, width=32))
def test_silu_rounds_after_every_operation(x: float) -> None:
    assert silu_f32(np.array([x], np.float32))[0] == exact_silu(np.float32(x))  # a rational zero has no sign


def test_silu_is_less_than_4_ulp_off() -> None:
    x = np.concatenate([np.linspace(-87, 100, 400_003), np.linspace(-1, 1, 200_001)]).astype(np.float32)
    x = x[x != 0]
    wide = x.astype(np.float64)
    assert ulps(silu_f32(x), wide / (1 + np.exp(-wide))).max() < 4


LEAST = float(exact_silu(np.float32(-87)))


@pytest.mark.parametrize(
    ("x", "expected"),
    [(0.0, 0.0), (-0.0, -0.0), (-89.0, LEAST), (-1e38, LEAST), (-INF, LEAST), (100.0, 100.0), (INF, INF)],
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
    x = np.array([[NAN, INF, 1, 0, 1, 0, NAN, INF]], np.float32)
    assert bits(swiglu_f32(x)) == [0x7FFFFFFF, 0x7FFFFFFF, 0x7FFFFFFF, 0x7FFFFFFF]


def test_no_rows_give_no_rows() -> None:
    assert swiglu_f32(np.ones((0, 64), np.float32)).shape == (0, 32)


ONES = np.ones((2, 64), np.float32)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
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
