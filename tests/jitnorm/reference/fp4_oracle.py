"""One block of FP4 with an E4M3 scale, in exact rational arithmetic."""

from __future__ import annotations

from fractions import Fraction

import ml_dtypes
import numpy as np
from float32_oracle import F32, exact, nearest_code, nearest_float32
from numpy.typing import NDArray

SIXTH = np.uint32(0x3E2AAAAB).view(np.float32)
E4M3_VALUES = [exact(v) for v in np.arange(127, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn)]
E2M1_VALUES = [Fraction(n, 2) for n in (0, 1, 2, 3, 4, 6, 8, 12)]


def exact_e2m1_code(value: Fraction, negative: bool) -> int:
    return nearest_code(abs(value), E2M1_VALUES) | 8 * negative


def exact_e4m3_block(block: F32, global_scale: float, reciprocal: np.float32 = SIXTH) -> tuple[int, list[int]]:
    """Return the scale byte and the codes of a block, rounding exact rationals where the definition rounds."""
    gs = exact(global_scale)
    factor = exact(nearest_float32(gs * exact(reciprocal)))
    scale = min(exact(nearest_float32(exact(np.abs(block).max()) * factor)), Fraction(448))
    byte = nearest_code(scale, E4M3_VALUES)
    if byte == 0:
        return 0, [0] * len(block)
    product = nearest_float32(E4M3_VALUES[byte] * exact(nearest_float32(1 / gs)))
    encode_scale = exact(nearest_float32(1 / exact(product)))
    scaled = [exact(nearest_float32(exact(v) * encode_scale)) for v in block]
    signs = np.signbit(block).tolist()
    return byte, [exact_e2m1_code(v, negative) for v, negative in zip(scaled, signs, strict=True)]


def unpack(codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.stack([codes & 0xF, codes >> 4], axis=-1).reshape(len(codes), -1)
