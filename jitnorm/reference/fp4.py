"""FP4: blocks of E2M1 elements with E4M3 scales (NVFP4) or UE8M0 scales (MXFP4)."""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from jitnorm.reference.checks import (
    E4M3,
    FLOAT32,
    as_blocks,
    as_float32,
    as_rows,
    as_uint8,
    require_member,
    require_shape,
)
from jitnorm.reference.elements import decode_e2m1, decode_e4m3
from jitnorm.reference.float32 import FLT_MAX, ONE, canonical, max_magnitude
from jitnorm.reference.fp4_blocks import (
    E2M1_MAX,
    encode_e4m3_blocks,
    encode_four_over_six,
    encode_ue8m0_blocks,
    pack_e2m1,
    unpack_e2m1,
)
from jitnorm.reference.statistics import amax_f32
from jitnorm.reference.ue8m0 import ScaleRounding, decode_ue8m0

ScaleFormat = Literal["e4m3", "ue8m0"]
FourOverSix = bool | Literal["mae"]

_BLOCK_SIZES = (16, 32)


@np.errstate(all="ignore")
def quantize_fp4(
    y: NDArray[Any],
    *,
    block_size: int,
    scale_format: ScaleFormat,
    global_scale: float | None = None,
    scale_rounding: ScaleRounding = "up",
    four_over_six: FourOverSix = False,
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Quantize blocks of a row to E2M1 with one scale per block.

    NVFP4 is block size 16 with "e4m3" scales, MXFP4 is 32 with "ue8m0".

    Args:
        y: (M, H) float32 (float16, bfloat16 and E4M3 are widened); block_size divides H. With a global scale, E4M3
            is the codes of a tensor with the scale 6 / global_scale, by which they are multiplied first.
        block_size: 16 or 32.
        scale_format: "e4m3" or "ue8m0".
        global_scale: Encode scale of the tensor, rounded to float32, for "e4m3" only; None is 1.
        scale_rounding: "up" takes the power of two not below amax / 6; "floor" is the OCP rule
            floor(log2(amax)) - 2; "even" is the same of amax rounded to one bit of mantissa. For "ue8m0" only.
        four_over_six: Whether a block takes the scale amax / 4 where that makes its error less than amax / 6 does:
            the sum of squares (True) or of magnitudes ("mae"). For "e4m3" and blocks of 16 only.

    Returns:
        The codes, (M, H / 2) uint8 with element 2i in the low nibble, and the scales, (M, H / block_size)
        uint8. A NaN in a block gives the scale 0x7F or 0xFF and the codes 0x7; a zero scale ("e4m3") or a
        block of zeros ("ue8m0") gives the codes 0x0.

    Raises:
        TypeError: y has another dtype.
        ValueError: An option is not allowed, or block_size does not divide H.

    Example:
        >>> codes, scales = quantize_fp4(np.full((1, 16), 3, np.float32), block_size=16, scale_format="e4m3")
        >>> hex(codes[0, 0]), hex(scales[0, 0])
        ('0x77', '0x30')
    """
    _require_format(block_size, scale_format, global_scale)
    require_member(scale_rounding, get_args(ScaleRounding), "scale_rounding")
    if scale_format == "e4m3":
        if scale_rounding != "up":
            raise ValueError(f"scale_rounding is {scale_rounding!r}; e4m3 scales allow only 'up', the default")
        if global_scale is None:
            return _quantize_e4m3(y, block_size, ONE, four_over_six)
        scale = np.float32(global_scale)
        return _quantize_e4m3(_rescaled(y, scale), block_size, scale, four_over_six)
    if four_over_six:
        raise ValueError("four_over_six is True; ue8m0 scales allow only False, the default")
    codes, scales = encode_ue8m0_blocks(as_blocks(y, block_size), scale_rounding)
    return pack_e2m1(codes), scales


@np.errstate(all="ignore")
def quantize_nvfp4_row(
    y: NDArray[Any], block_size: int = 16, *, four_over_six: FourOverSix = False, e4m3_max: float = 448
) -> tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.float32]]:
    """Quantize as :func:`quantize_fp4` does with E4M3 scales, each row with its own global scale.

    The global scale of a row is ``e4m3_max * 6 / amax``, at most the largest float32, where amax is the largest
    magnitude of the row. An infinite amax counts as the largest float32: a global scale of zero would make
    the whole row NaN.

    Args:
        y: (M, H) float32 (float16, bfloat16 and E4M3 are widened). H is at least 1 and block_size divides it.
        block_size: 16 or 32.
        four_over_six: As in :func:`quantize_fp4`, for blocks of 16 only.
        e4m3_max: The value of the largest block scale: up to 448, rounded to float32.

    Returns:
        The codes, (M, H / 2) uint8; the scales, (M, H / block_size) uint8; and the row scales, (M,) float32:
        one over the global scale, what a decoded element is multiplied by. A row with a NaN has the row
        scale NaN, the scales 0x7F and the codes 0x7; a row of zeros is zero in all three, without a sign.

    Raises:
        TypeError: y has another dtype.
        ValueError: block_size is not allowed or does not divide H, or the rows are empty.

    Example:
        >>> codes, scales, row_scales = quantize_nvfp4_row(np.full((1, 16), 21, np.float32))
        >>> hex(codes[0, 0]), hex(scales[0, 0]), row_scales.tolist()
        ('0x77', '0x7e', [0.0078125])
    """
    require_member(block_size, _BLOCK_SIZES, "block_size")
    global_scales, row_scales = _global_scales(max_magnitude(as_rows(y, "y")), e4m3_max)
    codes, scales = _quantize_e4m3(y, block_size, global_scales[:, None], four_over_six)
    return codes, scales, row_scales


@np.errstate(all="ignore")
def quantize_nvfp4_tensor(
    y: NDArray[Any], block_size: int = 16, *, four_over_six: FourOverSix = False, e4m3_max: float = 448
) -> tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.float32]]:
    """Quantize as :func:`quantize_nvfp4_row` does, with one global scale for all rows.

    Args:
        y: (M, H) float32 (float16, bfloat16 and E4M3 are widened); block_size divides H.
        block_size: 16 or 32.
        four_over_six: As in :func:`quantize_fp4`, for blocks of 16 only.
        e4m3_max: The value of the largest block scale: up to 448, rounded to float32.

    Returns:
        The codes, (M, H / 2) uint8; the scales, (M, H / block_size) uint8; and the tensor scale, (1,)
        float32: one over the global scale. A NaN makes the tensor scale NaN, all scales 0x7F and all codes
        0x7; a tensor of zeros, or without elements, has the tensor scale 0.

    Raises:
        TypeError: y has another dtype.
        ValueError: block_size is not allowed or does not divide H.

    Example:
        >>> codes, scales, tensor_scale = quantize_nvfp4_tensor(np.full((2, 16), 21, np.float32))
        >>> hex(codes[0, 0]), hex(scales[1, 0]), tensor_scale.tolist()
        ('0x77', '0x7e', [0.0078125])
    """
    require_member(block_size, _BLOCK_SIZES, "block_size")
    global_scale, tensor_scale = _global_scales(amax_f32(y), e4m3_max)
    codes, scales = _quantize_e4m3(y, block_size, global_scale[0], four_over_six)
    return codes, scales, tensor_scale


@np.errstate(all="ignore")
def quantize_fp4_columns(
    weight: NDArray[Any],
    *,
    block_size: int,
    scale_format: ScaleFormat,
    global_scale: float | None = None,
    scale_rounding: ScaleRounding = "up",
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Quantize blocks of a column, along the first dimension, as :func:`quantize_fp4` does those of a row.

    Args:
        weight: (K, N), as y of :func:`quantize_fp4`; block_size divides K.
        block_size: 16 or 32.
        scale_format: "e4m3" or "ue8m0".
        global_scale: As in :func:`quantize_fp4`.
        scale_rounding: As in :func:`quantize_fp4`.

    Returns:
        The codes, (K / 2, N) uint8, where byte (j, n) holds element (2j, n) in the low nibble and (2j + 1, n)
        in the high one, and the scales, (K / block_size, N) uint8.

    Raises:
        TypeError: weight has another dtype.
        ValueError: An option is not allowed, weight is not 2-D, or block_size does not divide K.

    Example:
        >>> weight = np.zeros((32, 2), np.float32)
        >>> weight[:3, 1] = 6, 4, -1
        >>> codes, scales = quantize_fp4_columns(weight, block_size=16, scale_format="e4m3")
        >>> [hex(byte) for byte in codes[:2, 1]], scales.tolist()
        (['0x67', '0xa'], [[0, 56], [0, 0]])
    """
    require_member(block_size, _BLOCK_SIZES, "block_size")
    length = as_float32(weight, "weight", ndim=2).shape[0]
    if length % block_size:
        raise ValueError(f"weight has columns of {length} elements; their number must be a multiple of {block_size}")
    codes, scales = quantize_fp4(
        weight.T,
        block_size=block_size,
        scale_format=scale_format,
        global_scale=global_scale,
        scale_rounding=scale_rounding,
    )
    return np.ascontiguousarray(codes.T), np.ascontiguousarray(scales.T)


@np.errstate(all="ignore")
def dequantize_fp4(
    codes: NDArray[np.uint8],
    scales: NDArray[np.uint8],
    *,
    block_size: int,
    scale_format: ScaleFormat,
    global_scale: float | None = None,
    decode_scale: NDArray[np.float32] | None = None,
) -> NDArray[np.float32]:
    """Decode the results of :func:`quantize_fp4` and its siblings, with the same options.

    With E4M3 scales, ``d = value * scale`` is divided by global_scale or multiplied by decode_scale. What
    :func:`quantize_fp4_columns` returns is decoded transposed: codes, scales and the result.

    Args:
        codes: (M, H / 2) uint8, element 2i in the low nibble.
        scales: (M, H / block_size) uint8, in the linear layout.
        block_size: 16 or 32.
        scale_format: "e4m3" or "ue8m0".
        global_scale: Encode scale of the tensor, for "e4m3" only; None is 1.
        decode_scale: The row scales, (M,) float32, of :func:`quantize_nvfp4_row`, or the tensor scale, (1,),
            of :func:`quantize_nvfp4_tensor`, in place of a global scale; None is neither.

    Returns:
        (M, H) float32; a block whose scale is NaN is NaN throughout. Under "ue8m0", values from 1.75 * 2^127
        on may have been rounded up to 2^128, which is infinite. For another dtype, see :func:`round_to`.

    Raises:
        TypeError: codes or scales is not uint8, or decode_scale is not float32.
        ValueError: An option is not allowed, or the shapes do not fit.

    Example:
        >>> codes, scales = np.full((1, 8), 0x77, np.uint8), np.array([[0x30]], np.uint8)
        >>> dequantize_fp4(codes, scales, block_size=16, scale_format="e4m3")[0, 0].item()
        3.0
    """
    _require_format(block_size, scale_format, global_scale)
    codes = as_uint8(codes, "codes", ndim=2)
    rows, columns = as_uint8(scales, "scales", ndim=2).shape
    require_shape(codes, (rows, columns * block_size // 2), "codes")
    factor = _decode_factor(decode_scale, rows, scale_format, global_scale)
    values = decode_e2m1(unpack_e2m1(codes)).reshape(rows, columns, block_size)
    block_scales = decode_e4m3(scales) if scale_format == "e4m3" else decode_ue8m0(scales)
    values = values * block_scales[..., None]
    if global_scale is not None:
        values = values / np.float32(global_scale)
    if factor is not None:
        values = values * factor[:, None, None]
    return canonical(values).reshape(rows, columns * block_size)


def _quantize_e4m3(
    y: NDArray[Any], block_size: int, global_scale: Any, four_over_six: FourOverSix
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Quantize rows with E4M3 scales; the global scale is one float32, or a column with one per row."""
    if four_over_six and block_size != 16:
        raise ValueError(f"block_size is {block_size}; four_over_six takes blocks of 16")
    blocks = as_blocks(y, block_size)
    if four_over_six:
        codes, scales = encode_four_over_six(blocks, global_scale, by_squares=four_over_six != "mae")
    else:
        codes, scales = encode_e4m3_blocks(blocks, global_scale)
    return pack_e2m1(codes), scales


def _rescaled(y: NDArray[Any], global_scale: np.float32) -> NDArray[Any]:
    """Decode an E4M3 tensor whose FP8 scale, amax / 448, follows from its global scale."""
    if y.dtype != E4M3:
        return y
    values: NDArray[np.float32] = as_float32(y, "y") * (E2M1_MAX * (ONE / global_scale))
    return values


def _global_scales(amax: NDArray[np.float32], e4m3_max: float) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the global scales that make the largest block scale `e4m3_max`, and the factors of decoding."""
    if not 2**-9 <= e4m3_max <= 448:
        raise ValueError(f"e4m3_max is {e4m3_max!r}; use a number from 2**-9 to 448")
    global_scales = np.minimum(np.float32(e4m3_max) * E2M1_MAX / np.minimum(amax, FLT_MAX), FLT_MAX)
    return global_scales, canonical(np.where(amax == 0, np.float32(0), ONE / global_scales))


def _require_format(block_size: int, scale_format: ScaleFormat, global_scale: float | None) -> None:
    require_member(block_size, _BLOCK_SIZES, "block_size")
    require_member(scale_format, get_args(ScaleFormat), "scale_format")
    if scale_format == "ue8m0" and global_scale is not None:
        raise ValueError(f"global_scale is {global_scale}; ue8m0 scales take none, so pass None")


def _decode_factor(
    decode_scale: NDArray[np.float32] | None, rows: int, scale_format: ScaleFormat, global_scale: float | None
) -> NDArray[np.float32] | None:
    """Return decode_scale, one per row or one for all, after its checks."""
    if decode_scale is None:
        return None
    if scale_format == "ue8m0" or global_scale is not None:
        raise ValueError("decode_scale is given; it needs e4m3 scales and no global_scale; otherwise pass None")
    if decode_scale.dtype != FLOAT32:
        raise TypeError(f"decode_scale is {decode_scale.dtype}; use float32")
    if decode_scale.shape not in ((rows,), (1,)):
        raise ValueError(f"decode_scale has shape {decode_scale.shape}; it must be ({rows},) or (1,)")
    return decode_scale
