"""The rules for the scale and the codes of a block of E2M1 elements."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jitnorm.reference.elements import E4M3_MAX, decode_e2m1, decode_e4m3, encode_e2m1, encode_e4m3
from jitnorm.reference.float32 import FLT_MAX, ONE, fma, max_magnitude
from jitnorm.reference.ue8m0 import ScaleRounding, ue8m0_scales

E2M1_MAX = np.float32(6)
_MAX_EXPONENT = 2
_EVEN_FROM = 1.75
_ONE_SIXTH = np.uint32(0x3E2AAAAB).view(np.float32)
_ONE_QUARTER = np.float32(0.25)

Codes = NDArray[np.uint8]
Scales = NDArray[np.uint8]


def encode_e4m3_blocks(
    blocks: NDArray[np.float32], global_scale: Any, reciprocal: np.float32 = _ONE_SIXTH
) -> tuple[Codes, Scales]:
    """Encode blocks with E4M3 scales.

    Args:
        blocks: (M, K, block size) float32.
        global_scale: One float32, or a column with one per row.
        reciprocal: One over the value that the largest element becomes.

    Returns:
        The codes, one per byte in the shape of the blocks, and the scales, (M, K).
    """
    scales = encode_e4m3(np.minimum(max_magnitude(blocks) * (global_scale * reciprocal), E4M3_MAX))
    encode_scale = np.minimum(ONE / (decode_e4m3(scales) * (ONE / global_scale)), FLT_MAX)
    codes = encode_e2m1(blocks * encode_scale[..., None])
    codes[(scales & 0x7F) == 0] = 0
    return codes, scales


def encode_four_over_six(blocks: NDArray[np.float32], global_scale: Any, *, by_squares: bool) -> tuple[Codes, Scales]:
    """Encode blocks with E4M3 scales twice, the largest element as 6 and as 4, and keep the better of each block.

    The smaller sum of errors, squared or not, is better; the 6 wins ties and wherever an error is NaN.
    """
    six, four = (encode_e4m3_blocks(blocks, global_scale, r) for r in (_ONE_SIXTH, _ONE_QUARTER))
    error_of_six, error_of_four = (_error(blocks, *each, global_scale, by_squares) for each in (six, four))
    is_four = error_of_four < error_of_six
    return np.where(is_four[..., None], four[0], six[0]), np.where(is_four, four[1], six[1])


def _error(
    blocks: NDArray[np.float32], codes: Codes, scales: Scales, global_scale: Any, by_squares: bool
) -> NDArray[np.float32]:
    """Return the sum of the errors of each block, in order, of squares by fused multiply-adds."""
    step = decode_e4m3(scales) * (ONE / global_scale)
    differences = blocks - decode_e2m1(codes) * step[..., None]
    error = np.zeros(scales.shape, np.float32)
    for i in range(blocks.shape[-1]):
        difference = differences[..., i]
        error = fma(difference, difference, error) if by_squares else error + np.abs(difference)
    return error


def encode_ue8m0_blocks(blocks: NDArray[np.float32], rounding: ScaleRounding) -> tuple[Codes, Scales]:
    """Encode blocks with UE8M0 scales; the codes are one per byte in the shape of the blocks."""
    amax = max_magnitude(blocks)
    scales, encode_scale = ue8m0_scales(
        amax, rounding, reciprocal=_ONE_SIXTH, max_exponent=_MAX_EXPONENT, even_from=_EVEN_FROM
    )
    codes = encode_e2m1(blocks * encode_scale[..., None])
    codes[amax == 0] = 0
    return codes, scales


def pack_e2m1(codes: Codes) -> NDArray[np.uint8]:
    """Pack the codes of blocks, (M, K, block size), two per byte, (M, K * block size / 2)."""
    rows, columns, block_size = codes.shape
    codes = codes.reshape(rows, columns * block_size)
    packed: NDArray[np.uint8] = codes[:, 0::2] | codes[:, 1::2] << np.uint8(4)
    return packed


def unpack_e2m1(packed: NDArray[np.uint8]) -> Codes:
    """Unpack (M, H / 2) bytes to (M, H) codes, one per byte."""
    return np.stack([packed & 0xF, packed >> 4], axis=-1).reshape(len(packed), 2 * packed.shape[1])
