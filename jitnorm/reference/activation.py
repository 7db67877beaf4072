"""The exponential that makes SiLU the same on every target, SiLU, and SwiGLU."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jitnorm.reference.checks import as_float32
from jitnorm.reference.float32 import ONE, canonical, fma, power_of_two

_LIMIT = np.float32(104)  # exp is infinite from 88.73 on and zero below -103.98
_LOG2_E = np.float32(float.fromhex("0x1.715476p+0"))
_LN2_HIGH = np.float32(float.fromhex("0x1.62e4p-1"))  # of 15 bits: its product with a small integer is exact
_LN2_LOW = np.float32(float.fromhex("0x1.7f7d1cp-20"))
_ROUNDER = np.float32(1.5 * 2**23)  # a float32 of this size has no room for fractions
_COEFFICIENTS = [np.float32(1 / factorial) for factorial in (5040, 720, 120, 24, 6, 2, 1, 1)]


@np.errstate(all="ignore")
def exp_f32(x: NDArray[Any]) -> NDArray[np.float32]:
    """Return e^x by float32 operations alone, each of which every target computes with the same bits.

    x is n ln 2 + r, where n is an integer and r at most half of ln 2: ``exp(x) = 2^n * exp(r)``.

    Args:
        x: float32 (float16, bfloat16 and E4M3 are widened), any shape.

    Returns:
        float32 in the shape of x, less than 0.94 ulp off; infinite for large x, and a NaN for a NaN.

    Raises:
        TypeError: x has another dtype.

    Example:
        >>> exp_f32(np.array([0, 1, -np.inf], np.float32)).tolist()
        [1.0, 2.7182817459106445, 0.0]
    """
    x = as_float32(x, "x")
    t = np.clip(x, -_LIMIT, _LIMIT)
    n = fma(t, _LOG2_E, _ROUNDER) - _ROUNDER
    r = fma(n, -_LN2_LOW, fma(n, -_LN2_HIGH, t))
    p = np.full_like(r, _COEFFICIENTS[0])
    for coefficient in _COEFFICIENTS[1:]:
        p = fma(p, r, coefficient)
    exponent = np.where(np.isnan(n), 0, n).astype(np.int32)
    half = exponent >> 1  # 2^n itself may not be a float32 where the result is one
    return canonical((p * power_of_two(half)) * power_of_two(exponent - half))


@np.errstate(all="ignore")
def silu_f32(x: NDArray[Any]) -> NDArray[np.float32]:
    """Return ``x / (1 + exp(-x))``, by :func:`exp_f32`.

    Args:
        x: float32 (float16, bfloat16 and E4M3 are widened), any shape.

    Returns:
        float32 in the shape of x, less than 2.4 ulp off down to -88.72. Below that exp overflows and the result is
        -0, or NaN for -infinity.

    Raises:
        TypeError: x has another dtype.

    Example:
        >>> silu_f32(np.array([0, 1, -np.inf], np.float32)).tolist()
        [0.0, 0.7310585975646973, nan]
    """
    x = as_float32(x, "x")
    return canonical(x / (ONE + exp_f32(-x)))


@np.errstate(all="ignore")
def swiglu_f32(x: NDArray[Any], granularity: int | None = None) -> NDArray[np.float32]:
    """Return ``silu(gate) * up``, where gates and ups alternate in runs of some columns, gates first.

    Args:
        x: (M, 2H) float32 (float16, bfloat16 and E4M3 are widened).
        granularity: Columns of a run; it divides H. None is H: all gates, then all ups.

    Returns:
        (M, H) float32, not rounded to the dtype of x.

    Raises:
        TypeError: x has another dtype.
        ValueError: x is not 2-D or has an odd number of columns, or granularity does not divide H.

    Example:
        >>> x = np.array([[1, 2, 10, 20]], np.float32)
        >>> (swiglu_f32(x) == silu_f32(x[:, :2]) * x[:, 2:]).all().item()
        True
        >>> (swiglu_f32(x, granularity=1) == silu_f32(x[:, 0::2]) * x[:, 1::2]).all().item()
        True
    """
    x = as_float32(x, "x", ndim=2)
    rows, columns = x.shape
    if columns % 2:
        raise ValueError(f"x has rows of {columns} elements; a gate for each up makes their number even")
    if granularity is None:
        granularity = max(columns // 2, 1)
    if granularity < 1 or columns // 2 % granularity:
        raise ValueError(f"granularity is {granularity}; it must divide {columns // 2}, half of the columns of x")
    runs = x.reshape(rows, columns // (2 * granularity), 2, granularity)
    h = silu_f32(runs[:, :, 0]) * runs[:, :, 1]
    return canonical(h).reshape(rows, columns // 2)
