"""FP4: blocks of E2M1 elements with E4M3 scales (NVFP4) or UE8M0 scales (MXFP4)."""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from jitnorm.reference.checks import as_blocks, as_rows, as_uint8, require_member, require_shape
from jitnorm.reference.elements import E4M3_MAX, decode_e2m1, decode_e4m3, encode_e2m1, encode_e4m3
from jitnorm.reference.float32 import FLT_MAX, ONE, canonical, max_magnitude
from jitnorm.reference.ue8m0 import ScaleRounding, decode_ue8m0, ue8m0_scales

ScaleFormat = Literal["e4m3", "ue8m0"]

_BLOCK_SIZES = (16, 32)
_MAX = np.float32(6)
_MAX_EXPONENT = 2
_ONE_SIXTH = np.uint32(0x3E2AAAAB).view(np.float32)


@np.errstate(all="ignore")
def quantize_fp4(
    y: NDArray[Any],
    *,
    block_size: int,
    scale_format: ScaleFormat,
    global_scale: float | None = None,
    scale_rounding: ScaleRounding = "up",
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Quantize blocks of a row to E2M1 with one scale a block.

    NVFP4 is block size 16 with "e4m3" scales, MXFP4 is 32 with "ue8m0".

    Args:
        y: (M, H) float32 (float16 and bfloat16 are widened); block_size divides H.
        block_size: 16 or 32.
        scale_format: "e4m3" or "ue8m0".
        global_scale: Encode scale of the tensor, rounded to float32, for "e4m3" only; None is 1.
        scale_rounding: "up" takes the power of two not below amax / 6; "floor" is the OCP rule
            floor(log2(amax)) - 2, for "ue8m0" only.

    Returns:
        The codes, (M, H / 2) uint8 with element 2i in the low nibble, and the scales, (M, H / block_size)
        uint8. A NaN in a block gives the scale 0x7F or 0xFF and the codes 0x7; a zero scale ("e4m3") or a
        block of zeros ("ue8m0") gives the codes 0x0.

    Raises:
        TypeError: y has another dtype.
        ValueError: An option is not allowed, or block_size does not divide H.
    """
    _require_options(block_size, scale_format, global_scale)
    require_member(scale_rounding, get_args(ScaleRounding), "scale_rounding")
    if scale_format == "e4m3":
        if scale_rounding != "up":
            raise ValueError(f"scale_rounding is {scale_rounding!r}; e4m3 scales allow only 'up', the default")
        return _quantize_e4m3(as_blocks(y, block_size), np.float32(1 if global_scale is None else global_scale))
    blocks = as_blocks(y, block_size)
    amax = max_magnitude(blocks)
    scales, encode_scale = ue8m0_scales(amax, scale_rounding, reciprocal=_ONE_SIXTH, max_exponent=_MAX_EXPONENT)
    return _encode_blocks(blocks, encode_scale, is_zero=amax == 0), scales


@np.errstate(all="ignore")
def quantize_nvfp4_row(
    y: NDArray[Any], block_size: int = 16
) -> tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.float32]]:
    """Quantize as :func:`quantize_fp4` does with E4M3 scales, each row with a global scale of its own.

    The global scale of a row is ``448 * 6 / amax``, at most the largest float32, where amax is the largest
    magnitude of the row. An infinite amax counts as the largest float32: a global scale of zero would make
    the whole row NaN.

    Args:
        y: (M, H) float32 (float16 and bfloat16 are widened). H is at least 1 and block_size divides it.
        block_size: 16 or 32.

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
    amax = max_magnitude(as_rows(y, "y"))
    global_scales = np.minimum(E4M3_MAX * _MAX / np.minimum(amax, FLT_MAX), FLT_MAX)
    codes, scales = _quantize_e4m3(as_blocks(y, block_size), global_scales[:, None])
    return codes, scales, canonical(np.where(amax == 0, np.float32(0), ONE / global_scales))


@np.errstate(all="ignore")
def dequantize_fp4(
    codes: NDArray[np.uint8],
    scales: NDArray[np.uint8],
    *,
    block_size: int,
    scale_format: ScaleFormat,
    global_scale: float | None = None,
) -> NDArray[np.float32]:
    """Decode what :func:`quantize_fp4` returns, with the same options.

    Args:
        codes: (M, H / 2) uint8, element 2i in the low nibble.
        scales: (M, H / block_size) uint8, in the linear layout.
        block_size: 16 or 32.
        scale_format: "e4m3" or "ue8m0".
        global_scale: Encode scale of the tensor, for "e4m3" only; None is 1.

    Returns:
        (M, H) float32; a block whose scale is NaN is NaN throughout. Under "ue8m0", values from 1.75 * 2^127
        on may have been rounded up to 2^128, which is infinite.

    Raises:
        TypeError: codes or scales is not uint8.
        ValueError: An option is not allowed, or the shapes do not fit.
    """
    _require_options(block_size, scale_format, global_scale)
    codes = as_uint8(codes, "codes")
    rows, columns = as_uint8(scales, "scales", ndim=2).shape
    require_shape(codes, (rows, columns * block_size // 2), "codes")
    values = decode_e2m1(np.stack([codes & 0xF, codes >> 4], axis=-1)).reshape(rows, columns, block_size)
    if scale_format == "e4m3":
        divisor = np.float32(1 if global_scale is None else global_scale)
        values = values * decode_e4m3(scales)[..., None] / divisor
    else:
        values = values * decode_ue8m0(scales)[..., None]
    return canonical(values).reshape(rows, columns * block_size)


def _quantize_e4m3(blocks: NDArray[np.float32], global_scale: Any) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Quantize blocks with E4M3 scales; the global scale is one float32, or a column of one a row."""
    scales = encode_e4m3(np.minimum(max_magnitude(blocks) * (global_scale * _ONE_SIXTH), E4M3_MAX))
    encode_scale = np.minimum(ONE / (decode_e4m3(scales) * (ONE / global_scale)), FLT_MAX)
    return _encode_blocks(blocks, encode_scale, is_zero=(scales & 0x7F) == 0), scales


def _encode_blocks(
    blocks: NDArray[np.float32], encode_scale: NDArray[np.float32], is_zero: NDArray[np.bool_]
) -> NDArray[np.uint8]:
    """Encode the scaled blocks, two elements a byte, and clear those that are zero."""
    codes = encode_e2m1(blocks * encode_scale[..., None])
    codes[is_zero] = 0
    rows, columns, block_size = blocks.shape
    codes = codes.reshape(rows, columns * block_size)
    packed: NDArray[np.uint8] = codes[:, 0::2] | codes[:, 1::2] << np.uint8(4)
    return packed


def _require_options(block_size: int, scale_format: ScaleFormat, global_scale: float | None) -> None:
    require_member(block_size, _BLOCK_SIZES, "block_size")
    require_member(scale_format, get_args(ScaleFormat), "scale_format")
    if scale_format == "ue8m0" and global_scale is not None:
        raise ValueError(f"global_scale is {global_scale}; ue8m0 scales take none, so pass None")
