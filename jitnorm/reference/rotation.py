"""Rotary position embedding in float32."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from jitnorm.reference.angles import angles_f32
from jitnorm.reference.checks import as_float32, require_shape
from jitnorm.reference.elements import Rounding, round_to
from jitnorm.reference.float32 import NAN, canonical, fma


@np.errstate(all="ignore")
def rotate_f32(
    y: NDArray[Any],
    cos_sin_cache: NDArray[Any],
    positions: NDArray[Any],
    *,
    is_neox: bool = True,
    rounding: Rounding = "once",
    dtype: DTypeLike | None = None,
) -> NDArray[np.float32]:
    """Rotate pairs of elements by the angles of each row's position.

    A pair (a, b) becomes ``(fma(a, cos, -(b * sin)), fma(b, cos, a * sin))``. Elements past the first D stay.

    Args:
        y: (M, H) float32, the norms of heads; with a rounding of "hf" already rounded to `dtype`.
        cos_sin_cache: (P, D) float16, bfloat16 or float32, D / 2 cosines and D / 2 sines for each position; or (1, D)
            int32, frequencies as in `angles_f32`; D is even and at most H.
        positions: (M,) integers; one that is not in 0 to P - 1, or negative, makes the first D elements NaN.
        is_neox: Whether pair j is elements j and j + D / 2 (GPT-NeoX), or 2j and 2j + 1 (GPT-J).
        rounding: What is rounded to `dtype`: nothing ("once"), the result ("output"), or both products and their sum
            ("hf", "vllm").
        dtype: float16, bfloat16 or float32; None for float32, to which nothing is rounded.

    Returns:
        (M, H) float32.

    Raises:
        TypeError: An array has a dtype that is not listed above.
        ValueError: An array has a shape that is not listed above.

    Example:
        >>> quarter = np.array([[0, 1]], np.float32)  # of a turn
        >>> rotate_f32(np.array([[1, 2, 3]], np.float32), quarter, np.array([0])).tolist()
        [[-2.0, 1.0, 3.0]]
    """

    def rounded(values: NDArray[np.float32]) -> NDArray[np.float32]:
        return round_to(values, dtype or np.float32).astype(np.float32)

    y = as_float32(y, "y", ndim=2)
    require_shape(positions, y.shape[:1], "positions")
    angles = _angles_at(positions, cos_sin_cache)
    size = angles.shape[1]
    if size % 2 or not 2 <= size <= y.shape[1]:
        raise ValueError(f"cos_sin_cache has rows of {size}; an even number from 2 to {y.shape[1]} is needed")
    cos, sin = angles[:, : size // 2], angles[:, size // 2 :]
    firsts, seconds = (
        (slice(0, size // 2), slice(size // 2, size)) if is_neox else (slice(0, size, 2), slice(1, size, 2))
    )
    result = rounded(y) if rounding == "output" else y.copy()
    for own, other, signed in ((firsts, seconds, -sin), (seconds, firsts, sin)):
        a, b = y[:, own], y[:, other]
        if rounding in ("hf", "vllm"):
            result[:, own] = rounded(rounded(a * cos) + rounded(b * signed))
        else:
            turned = fma(a, cos, b * signed)
            result[:, own] = rounded(turned) if rounding == "output" else turned
    return canonical(result)


def _angles_at(positions: NDArray[Any], cos_sin_cache: NDArray[Any]) -> NDArray[np.float32]:
    """The cosines and sines of each position."""
    if cos_sin_cache.dtype == np.int32:
        require_shape(cos_sin_cache, (1, cos_sin_cache.shape[-1]), "cos_sin_cache")
        return angles_f32(positions, cos_sin_cache)
    table = as_float32(cos_sin_cache, "cos_sin_cache", ndim=2)
    is_known = (positions >= 0) & (positions < len(table))
    angles = np.full((len(positions), table.shape[1]), NAN)
    angles[is_known] = table[positions[is_known]]
    return angles
