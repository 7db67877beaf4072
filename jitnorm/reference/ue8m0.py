"""Block scales that are powers of two in one byte: UE8M0, of MXFP4 and MXFP8."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from jitnorm.reference.float32 import NAN, ceil_exponent_field, exponent_field, power_of_two, significand

ScaleRounding = Literal["up", "floor", "even"]

_NAN_BYTE = 0xFF
_LARGEST = 254
_BIAS = 127


def ue8m0_scales(
    amax: NDArray[np.float32], rounding: ScaleRounding, *, reciprocal: np.float32, max_exponent: int, even_from: float
) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Return the scale bytes of blocks and the powers of two to multiply their elements by.

    Args:
        amax: The largest magnitude of each block, NaN if it holds a NaN.
        rounding: "up" takes the power of two not below amax times the reciprocal; "floor" is the OCP rule
            floor(log2(amax)) - max_exponent; "even" adds one to that if the significand of amax is at least
            `even_from`, as where amax is rounded to the mantissa of an element.
        reciprocal: One over the largest element, a float32.
        max_exponent: floor(log2) of the largest element.
        even_from: 2 less half of the last bit of an element's mantissa.
    """
    exponent = ceil_exponent_field(amax * reciprocal) if rounding == "up" else exponent_field(amax) - max_exponent
    if rounding == "even":
        exponent += significand(amax) >= even_from
    exponent = np.clip(exponent, 0, _LARGEST)
    is_nan = np.isnan(amax)
    encode_scale = np.where(is_nan, NAN, power_of_two(_BIAS - exponent))
    # A block of zeros is no special case: all rules give it the exponent 0.
    return np.where(is_nan, _NAN_BYTE, exponent).astype(np.uint8), encode_scale


def decode_ue8m0(scales: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Decode UE8M0 bytes to float32; 0xFF is NaN."""
    return np.where(scales == _NAN_BYTE, NAN, power_of_two(scales.astype(np.int32) - _BIAS))
