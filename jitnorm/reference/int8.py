"""INT8 with float32 scales, symmetric: one per tensor, per token (row) or per group of a row."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jitnorm.reference.checks import FLOAT32, as_blocks, as_float32, as_rows, require_member
from jitnorm.reference.float32 import ONE, canonical, max_magnitude
from jitnorm.reference.fp8 import GROUP_SIZES, scaled
from jitnorm.reference.statistics import amax_f32

_LARGEST = np.float32(127)
_LEAST_AMAX = np.float32(1e-10)


def encode_int8(v: NDArray[Any]) -> NDArray[np.int8]:
    """Round to INT8: to nearest even, saturating to -128 and 127; a NaN becomes 0.

    Args:
        v: float32 (float16, bfloat16 and E4M3 are widened), any shape.

    Raises:
        TypeError: v has another dtype.

    Example:
        >>> encode_int8(np.array([0.5, 1.5, -300, np.nan], np.float32)).tolist()
        [0, 2, -128, 0]
    """
    v = as_float32(v, "v")
    rounded: NDArray[np.int8] = np.rint(np.clip(np.where(np.isnan(v), 0, v), -128, 127)).astype(np.int8)
    return rounded


@np.errstate(all="ignore")
def quantize_int8_static(y: NDArray[Any], scale: Any) -> NDArray[np.int8]:
    """Quantize to INT8 with given scales: each element is encoded as y * (1 / scale).

    Args:
        y: float32 (float16, bfloat16 and E4M3 are widened), any shape.
        scale: As of :func:`quantize_fp8_static`.

    Returns:
        The codes, in the shape of y.

    Raises:
        TypeError: y has another dtype.

    Example:
        >>> quantize_int8_static(np.array([1, -8], np.float32), scale=0.5).tolist()
        [2, -16]
    """
    return _encode_scaled(as_float32(y, "y"), np.asarray(scale, np.float32))


@np.errstate(all="ignore")
def quantize_int8_tensor(y: NDArray[Any]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Quantize to INT8 with one scale, computed from the whole tensor by the rule of :func:`quantize_int8_token`.

    Args:
        y: float32 (float16, bfloat16 and E4M3 are widened), any shape.

    Returns:
        The codes, in the shape of y, and the scale, (1,) float32.

    Raises:
        TypeError: y has another dtype.

    Example:
        >>> codes, scale = quantize_int8_tensor(np.array([[254], [-2]], np.float32))
        >>> codes.tolist(), scale.tolist()
        ([[127], [-1]], [2.0])
    """
    scale = _scales(amax_f32(y))
    return _encode_scaled(as_float32(y, "y"), scale[0]), canonical(scale)


@np.errstate(all="ignore")
def quantize_int8_token(
    y: NDArray[Any], scale_ub: float | None = None, scale_floor: float | None = None
) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Quantize each row to INT8 with its own scale.

    The scale is ``max(amax, 1e-10) / 127``, where amax is the largest magnitude of the row, at most scale_ub; each
    element is encoded as ``y * (1 / scale)``.

    Args:
        y: (M, H) float32 (float16, bfloat16 and E4M3 are widened). H is at least 1.
        scale_ub: Upper bound of amax, rounded to float32. Any value is accepted; None and NaN are no bound.
        scale_floor: Lower bound of the scale, rounded to float32; None for 1e-10 / 127.

    Returns:
        The codes, (M, H), and the scales, (M, 1) float32. A row with a NaN has the scale NaN; an unbounded one with an
        infinity has an infinite scale. The codes of both are zeros.

    Raises:
        TypeError: y has another dtype.
        ValueError: the rows are empty.

    Example:
        >>> codes, scales = quantize_int8_token(np.array([[254, -3]], np.float32))
        >>> codes.tolist(), scales.tolist()
        ([[127, -2]], [[2.0]])
    """
    y = as_rows(y, "y")
    scales = _scales(max_magnitude(y)[:, None], scale_ub, scale_floor)
    return _encode_scaled(y, scales), canonical(scales)


@np.errstate(all="ignore")
def quantize_int8_group(
    y: NDArray[Any], group_size: int = 128, scale_ub: float | None = None, scale_floor: float | None = None
) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Quantize groups of a row to INT8, each by the rule of :func:`quantize_int8_token`.

    Args:
        y: (M, H) float32 (float16, bfloat16 and E4M3 are widened); group_size divides H.
        group_size: 16, 32, 48, 64, 96, 128 or 256.
        scale_ub: As in :func:`quantize_int8_token`.
        scale_floor: As there.

    Returns:
        The codes, (M, H), and the scales, (M, H / group_size) float32.

    Raises:
        TypeError: y has another dtype.
        ValueError: group_size is not allowed, or does not divide H.

    Example:
        >>> quantize_int8_group(np.full((1, 128), 254, np.float32), group_size=64)[1].tolist()
        [[2.0, 2.0]]
    """
    require_member(group_size, GROUP_SIZES, "group_size")
    groups = as_blocks(y, group_size)
    scales = _scales(max_magnitude(groups), scale_ub, scale_floor)
    return _encode_scaled(groups, scales[..., None]).reshape(y.shape), canonical(scales)


@np.errstate(all="ignore")
def dequantize_int8(codes: NDArray[np.int8], scales: NDArray[np.float32]) -> NDArray[np.float32]:
    """Decode the results of the functions above: each code times its scale.

    Args:
        codes: int8, any shape with the scale of a tensor, else (M, H).
        scales: (1,) float32 of the tensor, or (M, G) of rows or groups, where G divides H.

    Returns:
        float32 in the shape of the codes. For another dtype, see :func:`round_to`.

    Raises:
        TypeError: codes is not int8 or scales is not float32.
        ValueError: the shapes do not fit.

    Example:
        >>> dequantize_int8(np.array([[2, -2, 127, 0]], np.int8), np.array([[0.5, 3]], np.float32)).tolist()
        [[1.0, -1.0, 381.0, 0.0]]
    """
    if codes.dtype != np.int8 or scales.dtype != FLOAT32:
        raise TypeError(f"codes is {codes.dtype} and scales is {scales.dtype}; use int8 and float32")
    return scaled(codes.astype(np.float32), scales)


def _scales(
    amax: NDArray[np.float32], upper_bound: float | None = None, scale_floor: float | None = None
) -> NDArray[np.float32]:
    """Return the scales for those largest magnitudes; a NaN stays, with any bits."""
    if upper_bound is not None:
        bound = np.float32(upper_bound)
        amax = np.where(amax > bound, bound, amax)
    least = _LEAST_AMAX / _LARGEST if scale_floor is None else np.float32(scale_floor)
    scales: NDArray[np.float32] = np.maximum(amax / _LARGEST, least)
    return scales


def _encode_scaled(y: NDArray[np.float32], scale: Any) -> NDArray[np.int8]:
    return encode_int8(y * (ONE / scale))
