"""Float32 operations that NumPy lacks: a fused multiply-add, powers of two by their bits, one NaN."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

ONE = np.float32(1)
FLT_MAX = np.finfo(np.float32).max
NAN = np.uint32(0x7FFFFFFF).view(np.float32)
"""The NaN that CUDA's arithmetic returns."""


def canonical(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Replace every NaN by the one with the bits 0x7FFFFFFF."""
    return np.where(np.isnan(values), NAN, values)


def fma(a: NDArray[np.float32], b: NDArray[np.float32], c: NDArray[np.float32]) -> NDArray[np.float32]:
    """Compute a * b + c with a single rounding."""
    product = a.astype(np.float64) * b  # exact: 48 bits
    addend = c.astype(np.float64)
    total = product + addend
    # Rounding twice, to float64 and to float32, goes wrong next to a tie. Rounding the sum to odd instead
    # keeps the information that something was lost, so the second rounding comes out as the only one.
    part = total - product
    error = (product - (total - part)) + (addend - part)
    is_even = (total.view(np.uint64) & 1) == 0
    nudge = np.isfinite(total) & (error != 0) & is_even
    odd = np.where(nudge, np.nextafter(total, np.copysign(np.inf, error)), total)
    return odd.astype(np.float32)


def constants(*texts: str) -> list[NDArray[np.float32]]:
    """Return the float32 numbers that texts denote in hexadecimal."""
    return [np.array(float.fromhex(text), np.float32) for text in texts]


def polynomial(coefficients: list[NDArray[np.float32]], x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Evaluate a polynomial by Horner's rule, the highest coefficient first."""
    p = np.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        p = fma(p, x, coefficient)
    return p


def max_magnitude(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the largest magnitude along the last axis, NaN if there is a NaN."""
    largest: NDArray[np.float32] = np.abs(values).max(axis=-1)
    return largest


def exponent_field(values: NDArray[np.float32]) -> NDArray[np.int32]:
    """Return the eight bits of the biased exponent; a denormal has 0, infinity and NaN have 255."""
    field: NDArray[np.int32] = ((values.view(np.uint32) >> 23) & 0xFF).astype(np.int32)
    return field


def significand(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the significands of magnitudes, from 1 up to 2; that of infinity is 1."""
    return (values.view(np.uint32) & 0x7FFFFF | 0x3F800000).view(np.float32)


def ceil_exponent_field(values: NDArray[np.float32]) -> NDArray[np.int32]:
    """Return the exponent field of the least normal power of two not below a number; 0 only for zero."""
    has_mantissa = (values.view(np.uint32) & 0x7FFFFF) != 0
    field: NDArray[np.int32] = exponent_field(values) + has_mantissa.astype(np.int32)
    return field


def power_of_two(exponent: NDArray[np.int32]) -> NDArray[np.float32]:
    """Return 2^exponent, exactly down to 2^-149."""
    return np.ldexp(np.ones(exponent.shape, np.float32), exponent)
