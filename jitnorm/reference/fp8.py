"""FP8 with float32 scales: one per tensor, per token (row) or per group of a row."""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from jitnorm.reference.checks import FLOAT32, as_blocks, as_float32, as_rows, as_uint8, require_member
from jitnorm.reference.elements import E4M3_MAX, E5M2_MAX, decode_e4m3, decode_e5m2, encode_e4m3, encode_e5m2
from jitnorm.reference.float32 import ONE, canonical, ceil_exponent_field, max_magnitude
from jitnorm.reference.statistics import amax_f32

Fp8Dtype = Literal["e4m3", "e5m2"]
GroupScaleFormat = Literal["f32", "ue8m0_f32"]

GROUP_SIZES = (16, 32, 48, 64, 96, 128, 256)

_MAX = {"e4m3": E4M3_MAX, "e5m2": E5M2_MAX}
_LEAST_GROUP_AMAX = np.float32(1e-4)


@np.errstate(all="ignore")
def quantize_fp8_static(y: NDArray[Any], scale: Any, dtype: Fp8Dtype = "e4m3") -> NDArray[np.uint8]:
    """Quantize to FP8 with given scales: each element is encoded as y * (1 / scale).

    Args:
        y: float32 (float16, bfloat16 and E4M3 are widened), any shape.
        scale: The factor of a decoded element, rounded to float32, or one factor for each element, as from
            :func:`spread_scales`. Any value is accepted.
        dtype: "e4m3" or "e5m2".

    Returns:
        The codes, uint8 in the shape of y; NaN is 0x7F.

    Raises:
        TypeError: y has another dtype.
        ValueError: dtype is not allowed.

    Example:
        >>> [hex(code) for code in quantize_fp8_static(np.array([0.5, -8], np.float32), scale=0.5)]
        ['0x38', '0xd8']
    """
    require_member(dtype, get_args(Fp8Dtype), "dtype")
    return encode_scaled(as_float32(y, "y"), np.asarray(scale, np.float32), dtype)


@np.errstate(all="ignore")
def quantize_fp8_tensor(y: NDArray[Any], dtype: Fp8Dtype = "e4m3") -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Quantize to FP8 with one scale, computed from the whole tensor by the rule of :func:`quantize_fp8_token`.

    Args:
        y: float32 (float16, bfloat16 and E4M3 are widened), any shape.
        dtype: "e4m3" or "e5m2".

    Returns:
        The codes, uint8 in the shape of y, and the scale, (1,) float32. A NaN gives the scale NaN and the
        codes 0x7F; an infinity counts as in :func:`quantize_fp8_token`.

    Raises:
        TypeError: y has another dtype.
        ValueError: dtype is not allowed.

    Example:
        >>> codes, scale = quantize_fp8_tensor(np.array([[896], [-2]], np.float32))
        >>> [hex(code) for code in codes[:, 0]], scale.tolist()
        (['0x7e', '0xb8'], [2.0])
    """
    require_member(dtype, get_args(Fp8Dtype), "dtype")
    scale = _dynamic_scales(amax_f32(y), dtype)
    return encode_scaled(as_float32(y, "y"), scale[0], dtype), canonical(scale)


@np.errstate(all="ignore")
def quantize_fp8_token(
    y: NDArray[Any], dtype: Fp8Dtype = "e4m3", scale_ub: float | None = None, scale_floor: float | None = None
) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Quantize each row to FP8 with its own scale.

    The scale is ``max(amax / MAX, 1 / (MAX * 512))``, where amax is the largest magnitude of the row, at most
    scale_ub, and MAX is 448 or 57344; each element is encoded as ``y * (1 / scale)``.

    Args:
        y: (M, H) float32 (float16, bfloat16 and E4M3 are widened). H is at least 1.
        dtype: "e4m3" or "e5m2".
        scale_ub: Upper bound of amax, rounded to float32. Any value is accepted; None and NaN are no
            bound.
        scale_floor: Lower bound of the scale, rounded to float32; None for 1 / (MAX * 512).

    Returns:
        The codes, (M, H) uint8, and the scales, (M, 1) float32. A row with a NaN has the scale NaN and the
        codes 0x7F. An unbounded row with an infinity has an infinite scale, the code 0x7F for its infinities
        and zeros with a sign for the rest.

    Raises:
        TypeError: y has another dtype.
        ValueError: dtype is not allowed, or the rows are empty.

    Example:
        >>> codes, scales = quantize_fp8_token(np.array([[896, -2]], np.float32))
        >>> [hex(code) for code in codes[0]], scales.tolist()
        (['0x7e', '0xb8'], [[2.0]])
    """
    require_member(dtype, get_args(Fp8Dtype), "dtype")
    y = as_rows(y, "y")
    scales = _dynamic_scales(_bounded(max_magnitude(y)[:, None], scale_ub), dtype, scale_floor)
    return encode_scaled(y, scales, dtype), canonical(scales)


@np.errstate(all="ignore")
def quantize_fp8_group(
    y: NDArray[Any],
    group_size: int = 128,
    scale_format: GroupScaleFormat = "f32",
    scale_ub: float | None = None,
    scale_floor: float | None = None,
) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Quantize groups of a row to E4M3 with one float32 scale per group.

    The scale is ``max(amax, 1e-4) / 448``, where amax is the largest magnitude of the group, at most
    scale_ub; each element is encoded as ``y * (1 / scale)``.

    Args:
        y: (M, H) float32 (float16, bfloat16 and E4M3 are widened); group_size divides H.
        group_size: 16, 32, 48, 64, 96, 128 or 256.
        scale_format: "f32" keeps the scale as it is, "ue8m0_f32" the least power of two not below it.
        scale_ub: As in :func:`quantize_fp8_token`.
        scale_floor: As there, but None for 1e-4 / 448; before a power of two is taken.

    Returns:
        The codes, (M, H) uint8, and the scales, (M, H / group_size) float32. A group with a NaN has the
        scale NaN and the codes 0x7F. An unbounded group with an infinity has an infinite scale, the code 0x7F for its
        infinities and zeros with a sign for the rest.

    Raises:
        TypeError: y has another dtype.
        ValueError: An option is not allowed, or group_size does not divide H.

    Example:
        >>> quantize_fp8_group(np.full((1, 128), 500, np.float32), scale_format="ue8m0_f32")[1].tolist()
        [[2.0]]
    """
    require_member(group_size, GROUP_SIZES, "group_size")
    require_member(scale_format, get_args(GroupScaleFormat), "scale_format")
    groups = as_blocks(y, group_size)
    scales = group_scales(_bounded(max_magnitude(groups), scale_ub), scale_format, scale_floor)
    return encode_scaled(groups, scales[..., None], "e4m3").reshape(y.shape), canonical(scales)


@np.errstate(all="ignore")
def dequantize_fp8(
    codes: NDArray[np.uint8], scales: NDArray[np.float32], dtype: Fp8Dtype = "e4m3"
) -> NDArray[np.float32]:
    """Decode the results of the functions above: the value of each code times its scale.

    Args:
        codes: uint8, any shape with the scale of a tensor, else (M, H).
        scales: (1,) float32 of the tensor, or (M, G) of rows or groups, where G divides H.
        dtype: "e4m3" or "e5m2".

    Returns:
        float32 in the shape of the codes. For another dtype, see :func:`round_to`.

    Raises:
        TypeError: codes is not uint8 or scales is not float32.
        ValueError: dtype is not allowed or the shapes do not fit.

    Example:
        >>> codes = np.array([[0x38, 0xB8, 0x40, 0x7F]], np.uint8)
        >>> dequantize_fp8(codes, np.array([[0.5, 3]], np.float32)).tolist()
        [[0.5, -0.5, 6.0, nan]]
    """
    require_member(dtype, get_args(Fp8Dtype), "dtype")
    codes = as_uint8(codes, "codes")
    if scales.dtype != FLOAT32:
        raise TypeError(f"scales is {scales.dtype}; use float32")
    return scaled(decode_e4m3(codes) if dtype == "e4m3" else decode_e5m2(codes), scales)


def scaled(values: NDArray[np.float32], scales: NDArray[np.float32]) -> NDArray[np.float32]:
    """Multiply the values of codes by their scales, (1,) or (M, G); ValueError if the shapes do not fit."""
    if scales.shape == (1,):
        return canonical(values * scales[0])
    if values.ndim != 2 or scales.ndim != 2 or len(scales) != len(values):
        raise ValueError(f"scales has shape {scales.shape}; with codes of {values.shape} use (1,) or (M, G)")
    groups, length = scales.shape[1], values.shape[1]
    if groups == 0 or length % groups:
        raise ValueError(f"scales has {groups} columns; their number must divide the {length} of codes")
    return canonical(values * np.repeat(scales, length // groups, axis=1))


def group_scales(
    amax: NDArray[np.float32], scale_format: GroupScaleFormat, scale_floor: float | None = None
) -> NDArray[np.float32]:
    """Return the scales of groups or blocks with those largest magnitudes; a NaN stays, with any bits."""
    least = _LEAST_GROUP_AMAX / E4M3_MAX if scale_floor is None else np.float32(scale_floor)
    scales: NDArray[np.float32] = np.maximum(amax / E4M3_MAX, least)
    if scale_format == "ue8m0_f32":
        scales = np.where(np.isnan(scales), scales, _ceil_power_of_two(scales))
    return scales


def _bounded(amax: NDArray[np.float32], upper_bound: float | None) -> NDArray[np.float32]:
    """Return amax, at most the upper bound; a NaN on either side leaves amax as it is."""
    if upper_bound is None:
        return amax
    bound = np.float32(upper_bound)
    return np.where(amax > bound, bound, amax)


def _dynamic_scales(
    amax: NDArray[np.float32], dtype: Fp8Dtype, scale_floor: float | None = None
) -> NDArray[np.float32]:
    """Return amax / MAX, at least the floor or else the scale of an amax of 1 / 512."""
    largest = _MAX[dtype]
    least = ONE / (largest * np.float32(512)) if scale_floor is None else np.float32(scale_floor)
    scales: NDArray[np.float32] = np.maximum(amax / largest, least)
    return scales


def encode_scaled(y: NDArray[np.float32], scale: Any, dtype: Fp8Dtype) -> NDArray[np.uint8]:
    """Encode each element as y * (1 / scale)."""
    encode = encode_e4m3 if dtype == "e4m3" else encode_e5m2
    return encode(y * (ONE / scale))


def _ceil_power_of_two(scales: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the least power of two not below each scale; the scales are normal or infinite."""
    return (ceil_exponent_field(scales) << 23).view(np.float32)
