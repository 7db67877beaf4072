"""FP8 with one float32 scale for each block of 128 x 128 elements of a matrix."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from jitnorm.reference.checks import FLOAT32, as_float32, as_uint8, require_member
from jitnorm.reference.elements import decode_e4m3
from jitnorm.reference.float32 import canonical
from jitnorm.reference.fp8 import GroupScaleFormat, encode_scaled, group_scales
from jitnorm.reference.layouts import spread_scales

_SIZE = 128


@np.errstate(all="ignore")
def quantize_fp8_block(
    y: NDArray[Any], scale_format: GroupScaleFormat = "f32"
) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Quantize blocks of 128 x 128 to E4M3 with one float32 scale per block.

    The scale is that of :func:`quantize_fp8_group`, amax being the largest magnitude of the block. The last blocks have
    fewer rows or columns if 128 does not divide their number.

    Args:
        y: (M, H) float32 (float16, bfloat16 and E4M3 are widened).
        scale_format: "f32" keeps the scale as it is, "ue8m0_f32" the least power of two not below it.

    Returns:
        The codes, (M, H) uint8, and the scales, (ceil(M / 128), ceil(H / 128)) float32. NaN and infinities count as in
        :func:`quantize_fp8_group`.

    Raises:
        TypeError: y has another dtype.
        ValueError: scale_format is not allowed, or y is not 2-D.

    Example:
        >>> codes, scales = quantize_fp8_block(np.full((130, 128), [[448]] * 128 + [[896]] * 2, np.float32))
        >>> scales.tolist(), hex(codes.min()), hex(codes.max())
        ([[1.0], [2.0]], '0x7e', '0x7e')
    """
    require_member(scale_format, get_args(GroupScaleFormat), "scale_format")
    y = as_float32(y, "y", ndim=2)
    rows, columns = y.shape
    whole = np.pad(y, ((0, -rows % _SIZE), (0, -columns % _SIZE)))
    blocks = whole.reshape(len(whole) // _SIZE, _SIZE, whole.shape[1] // _SIZE, _SIZE)
    scales = group_scales(np.abs(blocks).max(axis=(1, 3)), scale_format)
    return encode_scaled(y, spread_scales(scales, y.shape, _SIZE, _SIZE), "e4m3"), canonical(scales)


@np.errstate(all="ignore")
def dequantize_fp8_block(codes: NDArray[np.uint8], scales: NDArray[np.float32]) -> NDArray[np.float32]:
    """Decode the results of :func:`quantize_fp8_block`: the value of each code times the scale of its block.

    Args:
        codes: (M, H) uint8.
        scales: (ceil(M / 128), ceil(H / 128)) float32.

    Returns:
        float32 in the shape of the codes.

    Raises:
        TypeError: codes is not uint8 or scales is not float32.
        ValueError: the shapes do not fit.

    Example:
        >>> dequantize_fp8_block(np.full((1, 3), 0x38, np.uint8), np.array([[0.5]], np.float32)).tolist()
        [[0.5, 0.5, 0.5]]
    """
    codes = as_uint8(codes, "codes", ndim=2)
    if scales.dtype != FLOAT32:
        raise TypeError(f"scales is {scales.dtype}; use float32")
    return canonical(decode_e4m3(codes) * spread_scales(scales, codes.shape, _SIZE, _SIZE))
