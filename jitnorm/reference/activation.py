"""SiLU, by an exponential and a reciprocal that are the same on every target, and SwiGLU."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jitnorm.reference.checks import as_float32
from jitnorm.reference.float32 import ONE, canonical, fma, power_of_two

_LIMIT = np.float32(87)  # e^87 and its reciprocal are normal float32
_LOG2_E = np.float32(float.fromhex("0x1.715476p+0"))
_LN2_HIGH = np.float32(float.fromhex("0x1.62e4p-1"))  # of 15 bits: its product with a small integer is exact
_LN2_LOW = np.float32(float.fromhex("0x1.7f7d1cp-20"))
_ROUNDER = np.float32(1.5 * 2**23)  # a float32 of this size has no room for fractions
# The polynomial of degree 5, 1 at 0, that is nearest to e^r in relative terms for |r| up to ln(2) / 2.
_COEFFICIENTS = [
    np.float32(float.fromhex(text))
    for text in ("0x1.0fa82p-7", "0x1.573a6cp-5", "0x1.555a6cp-3", "0x1.fffdc6p-2", "0x1.fffff6p-1", "0x1p+0")
]
_RECIPROCAL_GUESS = np.uint32(0x7EF311C3)
_NEWTON_STEPS = 3


@np.errstate(all="ignore")
def silu_f32(x: NDArray[Any]) -> NDArray[np.float32]:
    """Return ``x / (1 + exp(-x))`` by float32 operations alone, each of which every target computes with the same bits.

    With -x = n ln 2 + r, n an integer and r at most half of ln 2: ``exp(-x) = 2^n * exp(r)``. Below -87, x counts as
    -87.

    Args:
        x: float32 (float16, bfloat16 and E4M3 are widened), any shape.

    Returns:
        float32 in the shape of x, a few ulp off from -87 on; a NaN for a NaN.

    Raises:
        TypeError: x has another dtype.

    Example:
        >>> silu_f32(np.array([0, 1], np.float32)).tolist()
        [0.0, 0.7310585379600525]
    """
    x = as_float32(x, "x")
    bounded = np.maximum(x, -_LIMIT)
    t = np.where(np.isnan(x), _LIMIT, np.minimum(bounded, _LIMIT))
    n = fma(t, -_LOG2_E, _ROUNDER) - _ROUNDER
    r = fma(n, -_LN2_LOW, fma(n, -_LN2_HIGH, -t))
    p = np.full_like(r, _COEFFICIENTS[0])
    for coefficient in _COEFFICIENTS[1:]:
        p = fma(p, r, coefficient)
    return canonical(bounded * _reciprocal(fma(p, power_of_two(n.astype(np.int32)), ONE)))


def _reciprocal(d: NDArray[np.float32]) -> NDArray[np.float32]:
    """1 / d by Newton's method, for normal d with a normal reciprocal."""
    y: NDArray[np.float32] = (_RECIPROCAL_GUESS - d.view(np.uint32)).view(np.float32)
    for _ in range(_NEWTON_STEPS):
        y = fma(y, fma(-d, y, ONE), y)
    return y


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
