"""MXFP8: blocks of 32 E4M3 elements that share a power of two."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from jitnorm.reference.checks import as_blocks, as_uint8, require_member, require_shape
from jitnorm.reference.elements import E4M3_MAX, decode_e4m3, encode_e4m3
from jitnorm.reference.float32 import ONE, canonical, max_magnitude
from jitnorm.reference.ue8m0 import ScaleRounding, decode_ue8m0, ue8m0_scales

_BLOCK_SIZE = 32
_MAX_EXPONENT = 8
_EVEN_FROM = 1.9375


@np.errstate(all="ignore")
def quantize_mxfp8(
    y: NDArray[Any], scale_rounding: ScaleRounding = "up"
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Quantize blocks of 32 elements of a row to E4M3 with one UE8M0 scale per block.

    Args:
        y: (M, H) float32 (float16, bfloat16 and E4M3 are widened); 32 divides H.
        scale_rounding: "up" takes the power of two not below amax / 448; "floor" is the OCP rule
            floor(log2(amax)) - 8; "even" is the same of amax rounded to three bits of mantissa.

    Returns:
        The codes, (M, H) uint8, and the scales, (M, H / 32) uint8. A NaN in a block gives the scale 0xFF
        and the codes 0x7F; a block of zeros gives the scale 0x00 and the codes 0x00, without a sign.

    Raises:
        TypeError: y has another dtype.
        ValueError: scale_rounding is not allowed, or 32 does not divide H.

    Example:
        >>> codes, scales = quantize_mxfp8(np.full((1, 32), 896, np.float32))
        >>> hex(codes[0, 0]), scales.tolist()
        ('0x7e', [[128]])
        >>> dequantize_mxfp8(codes, scales)[0, 0].item()
        896.0
    """
    require_member(scale_rounding, get_args(ScaleRounding), "scale_rounding")
    blocks = as_blocks(y, _BLOCK_SIZE)
    amax = max_magnitude(blocks)
    scales, encode_scale = ue8m0_scales(
        amax, scale_rounding, reciprocal=ONE / E4M3_MAX, max_exponent=_MAX_EXPONENT, even_from=_EVEN_FROM
    )
    codes = encode_e4m3(blocks * encode_scale[..., None])
    codes[amax == 0] = 0
    return codes.reshape(y.shape), scales


@np.errstate(all="ignore")
def dequantize_mxfp8(codes: NDArray[np.uint8], scales: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Decode the results of :func:`quantize_mxfp8`.

    Args:
        codes: (M, H) uint8.
        scales: (M, H / 32) uint8, in the linear layout.

    Returns:
        (M, H) float32; a block whose scale is NaN is NaN throughout. Values next to the largest float32 may
        have been rounded up to 2^128, which is infinite.

    Raises:
        TypeError: codes or scales is not uint8.
        ValueError: The shapes do not fit.

    Example:
        >>> codes, scales = np.full((1, 32), 0x38, np.uint8), np.array([[128]], np.uint8)
        >>> dequantize_mxfp8(codes, scales)[0, 0].item()
        2.0
    """
    rows, columns = as_uint8(scales, "scales", ndim=2).shape
    require_shape(as_uint8(codes, "codes"), (rows, columns * _BLOCK_SIZE), "codes")
    values = decode_e4m3(codes).reshape(rows, columns, _BLOCK_SIZE) * decode_ue8m0(scales)[..., None]
    return canonical(values).reshape(codes.shape)
