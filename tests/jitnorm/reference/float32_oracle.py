"""Exact float32 arithmetic in rationals, and a comparison of bits: the oracles of the numerical tests."""

from __future__ import annotations

import bisect
import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]

FLT_MAX = float(np.finfo(np.float32).max)
INF, NAN = math.inf, math.nan
NANS = np.array([0x7FC00000, 0xFFC00000, 0x7F800001, 0xFFFFFFFF], np.uint32).view(np.float32)
"""NaNs of either sign, quiet and signalling; none is the one that jitnorm writes."""


def exact(value: Any) -> Fraction:
    """Return the value of any finite floating-point scalar."""
    return Fraction(float(value))


def nearest_float32(value: Fraction) -> np.float32:
    """Round a rational to float32, to nearest even; zero is +0, a negative underflow -0."""
    magnitude = abs(value)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if Fraction(2) ** exponent > magnitude:
        exponent -= 1
    quantum = Fraction(2) ** (max(exponent, -126) - 23)
    rounded = round(magnitude / quantum) * quantum  # Python rounds halves to even
    finite = rounded < 2**128
    result: np.float32 = np.float32(math.copysign(rounded if finite else math.inf, value))
    return result


def exact_fma(a: Any, b: Any, c: Any) -> np.float32:
    """Compute a * b + c with one rounding; float64 is exact for non-finite values and signs of zero."""
    in_float64 = float(a) * float(b) + float(c)
    result: np.float32 = np.float32(in_float64)
    if math.isfinite(in_float64) and in_float64 != 0:
        result = nearest_float32(exact(a) * exact(b) + exact(c))
    return result


def nearest_code(magnitude: Fraction, values: list[Fraction]) -> int:
    """Return the index of the nearest of the ascending values, the even one at a tie."""
    above = bisect.bisect_left(values, magnitude)
    neighbours = range(max(above - 1, 0), min(above + 1, len(values)))
    return min(neighbours, key=lambda code: (abs(values[code] - magnitude), code & 1))


def same_bits(actual: NDArray[Any], expected: NDArray[Any]) -> bool:
    """Compare byte for byte, except that any NaN equals any NaN."""
    nan = np.isnan(actual) & np.isnan(expected)
    unsigned = f"u{actual.dtype.itemsize}"
    return bool(np.all(nan | (actual.view(unsigned) == expected.view(unsigned))))


def around(boundaries: F32) -> F32:
    """Return both signs of the positive boundaries and of the floats up to 4 ulp off."""
    bits = boundaries.view(np.int32)[:, None] + np.arange(-4, 5, dtype=np.int32)
    near = np.maximum(bits, 0).ravel().view(np.float32)
    return np.concatenate([near, -near])


def bits(values: F32) -> list[int]:
    """Return the bit patterns, flat."""
    patterns: list[int] = values.view(np.uint32).ravel().tolist()
    return patterns


def random_rows(rows: int, columns: int, seed: int = 0) -> F32:
    generator = np.random.default_rng(seed)
    return generator.standard_normal((rows, columns)).astype(np.float32)
