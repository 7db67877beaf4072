"""Conversions of float32 to and from the element formats: 16 bits, E4M3, E5M2 and E2M1."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray

from jitnorm.reference.checks import BFLOAT16, FLOAT16, FLOAT32, as_float32, as_uint8
from jitnorm.reference.float32 import NAN, canonical

# Magnitudes in the order of their codes; the lowest bit of a code is the lowest bit of its mantissa.
_E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
_E4M3 = np.array(
    [mantissa / 2**9 for mantissa in range(8)]
    + [(8 + mantissa) * 2.0 ** (exponent - 10) for exponent in range(1, 16) for mantissa in range(8)][:-1],
    np.float32,
)
_E5M2 = np.array(
    [mantissa / 2**16 for mantissa in range(4)]
    + [(4 + mantissa) * 2.0 ** (exponent - 17) for exponent in range(1, 31) for mantissa in range(4)],
    np.float32,
)
E4M3_MAX = _E4M3[-1]
E5M2_MAX = _E5M2[-1]

# What is rounded to an input's dtype before it is encoded: nothing, the result, or each step.
Rounding = Literal["once", "output", "hf", "vllm"]


@np.errstate(all="ignore")
def round_to(y: NDArray[Any], dtype: DTypeLike) -> NDArray[Any]:
    """Round float32 to an output dtype, to nearest even, and write every NaN with one code.

    Args:
        y: float32 (float16, bfloat16 and E4M3 are widened), any shape.
        dtype: float16 or bfloat16 (ml_dtypes), whose NaN becomes 0x7FFF, or float32, whose NaN becomes
            0x7FFFFFFF and whose numbers stay.

    Returns:
        y in that dtype.

    Raises:
        TypeError: dtype is another one, or y is not floating point.

    Example:
        >>> round_to(np.array([2049], np.float32), np.float16).tolist()
        [2048.0]
    """
    dtype = np.dtype(dtype)
    if dtype not in (FLOAT16, BFLOAT16, FLOAT32):
        raise TypeError(f"dtype is {dtype}; use float16, bfloat16 (ml_dtypes) or float32")
    y = as_float32(y, "y")
    if dtype == FLOAT32:
        return canonical(y)
    rounded = y.astype(dtype)
    bits = np.where(np.isnan(y), np.uint16(0x7FFF), rounded.view(np.uint16))
    return bits.view(dtype)


def encode_e2m1(v: NDArray[Any]) -> NDArray[np.uint8]:
    """Encode as E2M1, one code 0x0 to 0xF per element: to nearest even, saturating to 6, NaN as 0x7.

    Args:
        v: float32 (float16, bfloat16 and E4M3 are widened), any shape. The sign of zero is kept.

    Returns:
        codes, uint8 in the shape of v.

    Raises:
        TypeError: v has another dtype.

    Example:
        >>> [hex(code) for code in encode_e2m1(np.array([1, -6, 7], np.float32))]
        ['0x2', '0xf', '0x7']
    """
    return _encode(as_float32(v, "v"), _E2M1, sign_bit=0x8)


def decode_e2m1(codes: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Decode E2M1 codes, uint8 with one per element, to float32.

    Raises:
        TypeError: codes has another dtype.
        IndexError: A code is above 0xF; packed codes must be split into their nibbles first.

    Example:
        >>> decode_e2m1(np.array([0x2, 0xF], np.uint8)).tolist()
        [1.0, -6.0]
    """
    return _decode(codes, _E2M1)


def encode_e4m3(v: NDArray[Any]) -> NDArray[np.uint8]:
    """Encode as OCP E4M3 (e4m3fn): to nearest even, saturating to 448, every NaN as 0x7F.

    Args:
        v: float32 (float16, bfloat16 and E4M3 are widened), any shape. The sign of zero is kept.

    Returns:
        codes, uint8 in the shape of v.

    Raises:
        TypeError: v has another dtype.

    Example:
        >>> [hex(code) for code in encode_e4m3(np.array([1, -500], np.float32))]
        ['0x38', '0xfe']
    """
    return _encode(as_float32(v, "v"), _E4M3, sign_bit=0x80)


def decode_e4m3(codes: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Decode OCP E4M3 bytes, uint8, to float32; 0x7F and 0xFF are NaN.

    Raises:
        TypeError: codes has another dtype.

    Example:
        >>> decode_e4m3(np.array([0x38, 0xFE], np.uint8)).tolist()
        [1.0, -448.0]
    """
    return _decode(codes, np.append(_E4M3, NAN))


def encode_e5m2(v: NDArray[Any]) -> NDArray[np.uint8]:
    """Encode as OCP E5M2: to nearest even, saturating to 57344, infinity too, every NaN as 0x7F.

    Args:
        v: float32 (float16, bfloat16 and E4M3 are widened), any shape. The sign of zero is kept.

    Returns:
        codes, uint8 in the shape of v.

    Raises:
        TypeError: v has another dtype.

    Example:
        >>> [hex(code) for code in encode_e5m2(np.array([1, -60000], np.float32))]
        ['0x3c', '0xfb']
    """
    return _encode(as_float32(v, "v"), _E5M2, sign_bit=0x80)


def decode_e5m2(codes: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Decode OCP E5M2 bytes, uint8, to float32; 0x7C and 0xFC are infinite, those above them NaN.

    Raises:
        TypeError: codes has another dtype.

    Example:
        >>> decode_e5m2(np.array([0x3C, 0xFB], np.uint8)).tolist()
        [1.0, -57344.0]
    """
    return _decode(codes, np.append(_E5M2, np.array([np.inf, NAN, NAN, NAN], np.float32)))


def _encode(v: NDArray[np.float32], values: NDArray[np.float32], sign_bit: int) -> NDArray[np.uint8]:
    """Return a sign bit over the index of the nearest value, even at a tie; NaN is all ones but the sign."""
    magnitude = np.abs(v)
    midpoints = (values[:-1] + values[1:]) / 2
    # The two searches differ at a tie alone, by one.
    low = np.searchsorted(midpoints, magnitude, side="left")
    high = np.searchsorted(midpoints, magnitude, side="right")
    codes = np.where(low % 2 == 0, low, high) + np.signbit(v) * sign_bit
    encoded: NDArray[np.uint8] = np.where(np.isnan(v), sign_bit - 1, codes).astype(np.uint8)
    return encoded


def _decode(codes: NDArray[np.uint8], magnitudes: NDArray[np.float32]) -> NDArray[np.float32]:
    return canonical(np.concatenate([magnitudes, -magnitudes]))[as_uint8(codes, "codes")]
