"""What PTX instructions compute, of arrays of numbers: exact sums of products, conversions and halves of words."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from ptx_registers import Array

_FP8 = {"e4m3x2": ml_dtypes.float8_e4m3fn, "e5m2x2": ml_dtypes.float8_e5m2}


def halves_of(pairs: Array) -> Array:
    """The two float16 of each word, the lower one first."""
    return pairs.astype("<u4").view(np.float16).reshape(-1, 2)


def fma(a: Array, b: Array, c: Array) -> Array:
    """a * b + c of float32, rounded once."""
    return _odd_sum(a, b, c).astype(np.float32)


def _odd_sum(a: Array, b: Array, c: Array) -> Array:
    """a * b + c in 64 bits: the product is exact there, the sum is rounded to odd, so it is on the right side of any
    float32 and of what is halfway between two."""
    product = a.astype(np.float64) * b.astype(np.float64)
    total = product + c
    # What was cut off, by the exact sum of two numbers; an inexact even sum is moved to its odd neighbour.
    part = total - product
    lost = (product - (total - part)) + (c - part)
    bits = total.view(np.int64)
    is_even = (bits & 1) == 0
    away = np.where((lost > 0) == (total > 0), 1, -1)
    is_inexact = np.isfinite(total) & (lost != 0) & is_even
    return np.where(is_inexact, bits + away, bits).view(np.float64)


def fma_up(a: Array, b: Array, c: Array) -> Array:
    """The same, rounded up."""
    nearest = fma(a, b, c)
    return np.where(nearest < _odd_sum(a, b, c), np.nextafter(nearest, np.float32(np.inf)), nearest)


def flushed(values: Array) -> Array:
    """Flush denormals to zero, like .ftz."""
    return np.where(np.abs(values) < np.finfo(np.float32).tiny, np.float32(0) * values, values).astype(np.float32)


def rounded(values: Array, kind: str) -> Array:
    """The codes of float32 values in a format, saturating below 16 bits, with the GPU's NaN."""
    nan = np.isnan(values)
    if kind == "f16x2":
        codes = values.astype(np.float16).view(np.uint16)
        return np.where(nan, 0x7FFF, codes).astype(np.uint64)
    if kind == "bf16x2":
        codes = values.astype(ml_dtypes.bfloat16).view(np.uint16)
        return np.where(nan, 0x7FFF, codes).astype(np.uint64)
    if kind == "e2m1x2":
        codes = np.clip(values, -6, 6).astype(ml_dtypes.float4_e2m1fn).view(np.uint8) & 0xF
        return np.where(nan, 7, codes).astype(np.uint64)
    dtype = _FP8[kind]
    limit = float(ml_dtypes.finfo(dtype).max)
    codes = np.clip(values, -limit, limit).astype(dtype).view(np.uint8)
    return np.where(nan, 0x7F, codes).astype(np.uint64)


def sign(numbers: Array) -> Array:
    """1 for numbers that are negative as signed ones."""
    return numbers >> np.uint64(63)


def high_words(a: Array, b: Array) -> Array:
    """The upper 64 bits of products of unsigned numbers."""
    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    middle = (a >> half) * (b & low) + ((a & low) * (b & low) >> half)
    other = (a & low) * (b >> half) + (middle & low)
    return (a >> half) * (b >> half) + (middle >> half) + (other >> half)
