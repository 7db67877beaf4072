"""Activations and gates of the reference, against float64 and exact rational arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from float32_oracle import F32, INF, NAN, NANS, bits, exact, exact_fma, nearest_float32, random_rows
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from jitnorm.reference import (
    activated_f32,
    fatrelu_f32,
    gated_f32,
    gelu_f32,
    gelu_tanh_f32,
    relu2_f32,
    silu_f32,
    swiglu_f32,
    swish_f32,
)

LN2 = sum(Fraction(1, k * 2**k) for k in range(1, 200))
LOG2_E = nearest_float32(1 / LN2)
LOG2_E_LOW = nearest_float32(1 / LN2 - exact(LOG2_E))
SILU_BOUND = nearest_float32(125 / exact(LOG2_E))
MAGIC = np.float32(1.5 * 2**23)


HALF_LOG2_E, LINEAR, LINEAR_LOW, CUBIC, CUBIC_LOW, ALPHA, ALPHA_LOW = (
    np.float32(float.fromhex(text))
    for text in (
        "0x1.715476p-1", "0x1.26aecp+1", "0x1.0de73ap-22", "0x1.a5a7dp-4", "-0x1.151aaep-29", "0x1.3a4cbep+1",
        "0x1.7c622ep-28",
    )
)  # fmt: skip
POWER = [
    np.float32(float.fromhex(text))
    for text in ("0x1.5bb9fcp-10", "0x1.3cea9ep-7", "0x1.c6b752p-5", "0x1.ebf9bep-3", "0x1.62e42ap-1", "0x1p+0")
]
TAIL = [
    np.float32(float.fromhex(text))
    for text in (
        "0x1.46ae22p-5", "-0x1.7e31c6p-3", "0x1.1dce08p-2", "-0x1.00bb4p-3", "0x1.5f119p-3", "0x1.5273b6p-4",
        "0x1.f35a2ep-4", "0x1.df4522p-4", "0x1.4b8f56p-16",
    )
]  # fmt: skip
STRETCH = np.float32(0.29443359375)


def product(a: np.float32, b: np.float32) -> np.float32:
    return nearest_float32(exact(a) * exact(b))


def total(a: np.float32, b: np.float32) -> np.float32:
    return nearest_float32(exact(a) + exact(b))


def horner(coefficients: list[np.float32], x: np.float32) -> np.float32:
    p = coefficients[0]
    for coefficient in coefficients[1:]:
        p = exact_fma(p, x, coefficient)
    return p


def nearest_integer(a: np.float32, b: np.float32) -> np.float32:
    return total(exact_fma(a, b, MAGIC), -MAGIC)


def exact_silu(x: np.float32) -> np.float32:
    """Follow the definition with exact rationals, rounding where it rounds."""
    bounded = max(x, -SILU_BOUND)
    return product(bounded, exact_sigmoid_of_product(min(bounded, SILU_BOUND), LOG2_E, LOG2_E_LOW))


def exact_gelu(x: np.float32) -> np.float32:
    a = min(abs(x), np.float32(12.75))
    s = product(a, a)
    n = nearest_integer(s, -HALF_LOG2_E)
    f = exact_fma(exact_fma(a, a, -s), -HALF_LOG2_E, exact_fma(s, -HALF_LOG2_E, -n))
    w = nearest_float32(exact(horner(POWER, f)) * Fraction(2) ** int(n))
    t = nearest_float32(1 / exact(exact_fma(a, STRETCH, np.float32(1))))
    return exact_fma(-a, product(w, horner(TAIL, t)), max(x, np.float32(0)))


def exact_sigmoid_of_product(x: np.float32, factor: np.float32, low: np.float32) -> np.float32:
    n = nearest_integer(x, -factor)
    f = exact_fma(x, -low, exact_fma(x, -factor, -n))
    d = nearest_float32(1 + exact(horner(POWER, f)) * Fraction(2) ** int(n))
    return nearest_float32(1 / exact(d))


def exact_gelu_tanh(x: np.float32) -> np.float32:
    bounded = max(x, np.float32(-9.96875))
    t = min(bounded, np.float32(9.96875))
    s = product(t, t)
    factor = exact_fma(s, CUBIC, LINEAR)
    low = exact_fma(s, CUBIC, total(LINEAR, -factor))
    low = exact_fma(exact_fma(t, t, -s), CUBIC, low)
    low = total(exact_fma(s, CUBIC_LOW, low), LINEAR_LOW)
    return product(bounded, exact_sigmoid_of_product(t, factor, low))


def exact_swigluoai(gate: np.float32, up: np.float32) -> np.float32:
    bounded = max(min(gate, np.float32(7)), np.float32(-51))
    glu = product(bounded, exact_sigmoid_of_product(bounded, ALPHA, ALPHA_LOW))
    return product(glu, total(max(min(up, np.float32(7)), np.float32(-7)), np.float32(1)))


def ulps(actual: F32, expected: NDArray[np.float64]) -> NDArray[np.float64]:
    """The distance from the expected value in units of the last place of a float32."""
    exponent = np.maximum(np.frexp(expected)[1] - 1, -126)
    distance: NDArray[np.float64] = np.abs(actual.astype(np.float64) - expected) / np.ldexp(1.0, exponent - 23)
    return distance


def test_the_constants_of_silu_are_the_nearest_float32() -> None:
    found = [np.float32(float.fromhex(text)) for text in ("0x1.715476p+0", "0x1.4ae0cp-26", "0x1.5a92d8p+6")]
    assert found == [LOG2_E, LOG2_E_LOW, SILU_BOUND]


def test_the_polynomial_is_less_than_an_ulp_off() -> None:
    f = np.linspace(-0.5, 0.5, 100_003)
    assert (np.abs(np.polyval([float(c) for c in POWER], f) / np.exp2(f) - 1) < 2.0**-23).all()


def rest(value: Fraction, first: np.float32) -> np.float32:
    return nearest_float32(value - exact(first))


def test_factors_have_two_parts_the_second_the_nearest_to_the_rest() -> None:
    with localcontext() as context:
        context.prec = 60
        linear = Fraction((8 / Decimal("3.14159265358979323846264338327950288419716939937511")).sqrt()) / LN2
    cubic, alpha, half = linear * Fraction("0.044715"), exact(np.float32(1.702)) / LN2, 1 / (2 * LN2)
    assert (nearest_float32(cubic), nearest_float32(alpha), nearest_float32(half)) == (CUBIC, ALPHA, HALF_LOG2_E)
    assert exact(LINEAR) == Fraction(round(linear * 2**20), 2**20)
    for value, first, second in (
        (linear, LINEAR, LINEAR_LOW), (cubic, CUBIC, CUBIC_LOW), (alpha, ALPHA, ALPHA_LOW)
    ):  # fmt: skip
        assert rest(value, first) == second


def tail(x: float) -> float:
    """The probability that a standard normal variable exceeds x."""
    return math.erfc(x / math.sqrt(2)) / 2


def test_the_polynomial_of_the_tail_is_less_than_an_ulp_off() -> None:
    x = np.linspace(0, 12.75, 10_007)
    t = 1 / (1 + float(STRETCH) * x)
    value = np.polyval([float(c) for c in TAIL], t)
    expected = np.array([2 ** (float(HALF_LOG2_E) * each * each) * tail(each) for each in x])
    assert (np.abs(value / expected - 1) < 2.0**-24).all()


def test_tiny_values_are_halved_by_gelu() -> None:
    """Half of the smallest normal values is a tie for a narrower dtype, which must not fall to either side."""
    assert horner(TAIL, np.float32(1)) == 0.5
    x = np.geomspace(2.0**-140, 2.0**-30, 1001).astype(np.float32)
    assert (gelu_f32(x) == x / 2).all()
    assert (gelu_f32(-x) == -x / 2).all()


# ---- Activations -----------------------------------------------------------------------------------------

EXACT: dict[str, Callable[[np.float32], np.float32]] = {
    "silu": exact_silu, "gelu": exact_gelu, "gelu_tanh": exact_gelu_tanh,
    "relu2": lambda x: product(max(x, np.float32(0)), max(x, np.float32(0))),
}  # fmt: skip


@pytest.mark.parametrize("name", EXACT)
@settings(deadline=None, max_examples=150)
@given(x=st.floats(-14, 14, width=32) | st.floats(-100, 100, width=32) | st.floats(-(2.0**60), 2.0**60, width=32))
def test_an_activation_rounds_after_every_operation(name: str, x: float) -> None:
    assert activated_f32(np.array([x], np.float32), name)[0] == EXACT[name](
        np.float32(x)
    )  # a rational zero is unsigned


def sigmoid(t: NDArray[np.float64]) -> NDArray[np.float64]:
    return 1 / (1 + np.exp(-t))


def wide_gelu(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.array([each * tail(-each) for each in x])


def wide_gelu_tanh(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return x * sigmoid(math.sqrt(8 / math.pi) * (x + 0.044715 * x**3))


@pytest.mark.parametrize(
    ("name", "least", "wide", "most"),
    [
        ("silu", -float(SILU_BOUND), lambda x: x * sigmoid(x), 4),
        ("gelu", -12.75, wide_gelu, 7),
        ("gelu_tanh", -9.96875, wide_gelu_tanh, 5),
        ("relu2", -3, lambda x: np.maximum(x, 0) ** 2, 1),
    ],
)
def test_an_activation_is_a_few_ulp_off_also_in_the_tail(
    name: str, least: float, wide: Callable[[NDArray[np.float64]], NDArray[np.float64]], most: float
) -> None:
    small = np.geomspace(1e-20, 1, 20_001)
    x = np.concatenate([np.linspace(least, 20, 100_003), small, -small]).astype(np.float32)
    assert ulps(activated_f32(x, name), wide(x.astype(np.float64))).max() < most


def test_gelu_by_tanh_is_the_usual_formula() -> None:
    x = np.linspace(-5, 5, 1001)
    usual = x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    assert np.allclose(wide_gelu_tanh(x), usual, rtol=1e-9, atol=1e-15)


def test_16_bit_values_have_exact_squares() -> None:
    """Kernels of 16-bit inputs can therefore omit the rounding errors of squares."""
    for dtype, largest in ((np.dtype(np.float16), 0x4A60), (np.dtype(ml_dtypes.bfloat16), 0x414C)):
        x = np.arange(largest + 1, dtype=np.uint16).view(dtype).astype(np.float32)
        s = x * x
        assert not (x.astype(np.float64) ** 2 - s).astype(np.float32).any()


def value_at(function: Callable[[F32], F32], x: float) -> float:
    return float(function(np.array([x], np.float32))[0])


@pytest.mark.parametrize(
    ("function", "least"), [(silu_f32, -float(SILU_BOUND)), (gelu_f32, -12.75), (gelu_tanh_f32, -9.96875)]
)
def test_an_activation_at_the_edges(function: Callable[[F32], F32], least: float) -> None:
    smallest = value_at(function, least)
    assert -1e-35 < smallest < 0
    cases = [
        (0.0, 0.0), (-0.0, -0.0), (least - 1, smallest), (-1e38, smallest), (-INF, smallest), (100.0, 100.0),
        (3e38, 3e38), (INF, INF),
    ]  # fmt: skip
    given, expected = (np.array(each, np.float32) for each in zip(*cases, strict=True))
    assert bits(function(given)) == bits(expected)
    assert bits(function(NANS)) == [0x7FFFFFFF] * len(NANS)


def test_the_square_of_relu_at_the_edges() -> None:
    x = np.array([0.0, -0.0, -1.0, -INF, INF, 1e30], np.float32)
    assert bits(relu2_f32(x)) == bits(np.array([0, 0, 0, 0, INF, INF], np.float32))
    assert bits(relu2_f32(NANS)) == [0x7FFFFFFF] * len(NANS)


# ---- Gates -----------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("name", EXACT)
def test_any_activation_gates(name: str) -> None:
    x = random_rows(3, 16)
    gate, up = activated_f32(x[:, :8], name), x[:, 8:]
    assert (gated_f32(x, name) == gate * up).all()


@settings(deadline=None, max_examples=150)
@given(st.floats(-60, 10, width=32), st.floats(-10, 10, width=32))
def test_the_gates_of_gpt_oss_round_after_every_operation(gate: float, up: float) -> None:
    x = np.array([[gate, up]], np.float32)
    assert gated_f32(x, "swigluoai", 1)[0, 0] == exact_swigluoai(*x[0])


def test_the_gates_of_gpt_oss_are_a_few_ulp_off() -> None:
    gate = np.linspace(-51, 9, 30_011).astype(np.float32)
    for up in (-0.5, 2.0, 100.0):
        h = gated_f32(np.stack([gate, np.full_like(gate, up)], axis=1), "swigluoai", 1)[:, 0]
        g = np.minimum(gate.astype(np.float64), 7)
        assert ulps(h, g * sigmoid(float(np.float32(1.702)) * g) * (min(up, 7) + 1)).max() < 5


def test_the_gates_of_gpt_oss_at_the_edges() -> None:
    x = np.array([[INF, 0], [7, 0], [-INF, 0], [-51, 0], [1, INF], [1, 7], [1, -INF], [1, -7]], np.float32)
    h = gated_f32(x, "swigluoai", 1)[:, 0].tolist()
    assert h[::2] == h[1::2]
    assert bits(gated_f32(np.array([[NAN, 0], [0, NAN]], np.float32), "swigluoai")) == [0x7FFFFFFF] * 2


@pytest.mark.parametrize("alpha", [0.01, 0.3, 1.0, 1.702, 5.3, 100.0])
def test_swish_is_a_few_ulp_off(alpha: float) -> None:
    exact_alpha = float(np.float32(alpha))
    x = (np.linspace(-86, 90, 60_011) / exact_alpha).astype(np.float32)
    wide = x.astype(np.float64)
    assert ulps(swish_f32(x, alpha), wide * sigmoid(exact_alpha * wide)).max() < 5
    edges = swish_f32(np.array([INF, -INF, NAN, -0.0], np.float32), alpha)
    assert edges[0] == INF
    assert -1e-30 < edges[1] < 0
    assert bits(edges[2:]) == [0x7FFFFFFF, 0x80000000]


def test_the_swish_of_gpt_oss_is_that_of_its_gates() -> None:
    gate = np.linspace(-50, 7, 10_001).astype(np.float32)
    h = gated_f32(np.stack([gate, np.full_like(gate, 2.5)], axis=1), "swigluoai", 1)[:, 0]
    again = gated_f32(np.stack([gate, np.full_like(gate, 2.5)], axis=1), "swiglu:7:1.702:1", 1)[:, 0]
    assert bits(h) == bits(again)


def test_clamped_gates_and_relu_above_a_threshold() -> None:
    x = np.array([[3, 10], [2, 2], [-5, -10], [-5, -2]], np.float32)
    h = gated_f32(x, "swiglu:2:1:0")[:, 0]
    assert h[0] == h[1]
    assert h[2] == h[3]
    assert gated_f32(x, "fatrelu:2")[:, 0].tolist() == [30.0, 0.0, -0.0, -0.0]
    assert bits(fatrelu_f32(np.array([NAN, 1, -2], np.float32), -1.5)) == [0x7FFFFFFF, 0x3F800000, 0]
    assert (gated_f32(x, "silu", values_first=True) == gated_f32(x[:, ::-1], "silu")).all()


def test_no_rows_give_no_rows() -> None:
    assert swiglu_f32(np.ones((0, 64), np.float32)).shape == (0, 32)


ONES = np.ones((2, 64), np.float32)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: silu_f32(ONES.astype(np.float64)), TypeError, "x is float64"),
        (
            lambda: activated_f32(ONES, "tanh"),
            ValueError,
            "activation is 'tanh'; allowed are silu, gelu, gelu_tanh, relu2",
        ),
        (lambda: gated_f32(ONES, "tanh"), ValueError, "activation is 'tanh'"),
        (lambda: swiglu_f32(ONES[0]), ValueError, "x has shape"),
        (lambda: swiglu_f32(ONES[:, :63]), ValueError, "rows of 63 elements"),
        (lambda: swiglu_f32(ONES, 0), ValueError, "granularity is 0; it must divide 32"),
        (lambda: swiglu_f32(ONES, 64), ValueError, "granularity is 64; it must divide 32"),
    ],
)
def test_what_is_not_defined_is_an_error(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
