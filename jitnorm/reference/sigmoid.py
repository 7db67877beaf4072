"""The sigmoid and the normal distribution's tail, by an exponential and a reciprocal that agree on every target."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jitnorm.reference.float32 import ONE, constants, fma, polynomial, power_of_two

F32 = NDArray[np.float32]


(_ROUNDER,) = constants("0x1.8p+23")  # a float32 of this size has no room for fractions
(_HALF_LOG2_E,) = constants("0x1.715476p-1")
# The polynomial of degree 5, 1 at 0, that is nearest to 2^f in relative terms for |f| up to a half.
_POWER = constants("0x1.5bb9fcp-10", "0x1.3cea9ep-7", "0x1.c6b752p-5", "0x1.ebf9bep-3", "0x1.62e42ap-1", "0x1p+0")
# The polynomial of degree 8 in t = 1 / (1 + 0.29443359375 x) that is nearest to 2^(k x^2) times the tail, in relative
# terms, for x from 0 to 12.75 and the k above; each coefficient was rounded before the next was chosen.
_TAIL = constants(
    "0x1.46ae22p-5", "-0x1.7e31c6p-3", "0x1.1dce08p-2", "-0x1.00bb4p-3", "0x1.5f119p-3", "0x1.5273b6p-4",
    "0x1.f35a2ep-4", "0x1.df4522p-4", "0x1.4b8f56p-16",
)  # fmt: skip
(_TAIL_STRETCH,) = constants("0x1.2d8p-2")  # 0.29443359375


def power_of_product(x: F32, factor: F32, low: F32) -> F32:
    """2^z of z = x * (factor + low), for z from -125.5 to 0; z is never rounded as a whole."""
    n = _nearest_integer(x, factor)
    power: F32 = polynomial(_POWER, fma(x, low, fma(x, factor, -n))) * _power_of_two(n)
    return power


def sigmoid_of_product(x: F32, factor: F32, low: F32) -> F32:
    """1 / (1 + 2^-z) of z = x * (factor + low), for |z| up to 125.5; z is never rounded as a whole."""
    n = _nearest_integer(x, -factor)
    rest = fma(x, -low, fma(x, -factor, -n))
    inverse: F32 = ONE / fma(polynomial(_POWER, rest), _power_of_two(n), ONE)
    return inverse


def normal_tail(x: F32) -> F32:
    """The probability that a standard normal variable exceeds x, for x from 0 to 12.75."""
    square = x * x
    n = _nearest_integer(square, -_HALF_LOG2_E)
    rest = fma(rest_of_square(x, square), -_HALF_LOG2_E, fma(square, -_HALF_LOG2_E, -n))
    t = ONE / fma(x, _TAIL_STRETCH, ONE)
    probability: F32 = polynomial(_POWER, rest) * _power_of_two(n) * polynomial(_TAIL, t)
    return probability


def rest_of_square(x: F32, square: F32) -> F32:
    """The rounding error of x * x."""
    return fma(x, x, -square)


def _power_of_two(n: F32) -> F32:
    return power_of_two(n.astype(np.int32))


def _nearest_integer(a: F32, b: F32) -> F32:
    n: F32 = fma(a, b, _ROUNDER) - _ROUNDER
    return n
