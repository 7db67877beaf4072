"""The values of FP8 and their encoding over a float32 scale, by exact rational arithmetic."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from float32_oracle import (
    F32,
    FLT_MAX,
    exact,
    nearest_code,
    nearest_float32,
)
from fp4_oracle import E4M3_VALUES

from jitnorm.reference import (
    decode_e4m3,
    decode_e5m2,
)

E5M2_VALUES = [exact(v) for v in np.arange(124, dtype=np.uint8).view(ml_dtypes.float8_e5m2)]
VALUES = {"e4m3": E4M3_VALUES, "e5m2": E5M2_VALUES}
DECODE = {"e4m3": decode_e4m3, "e5m2": decode_e5m2}
MAX = {"e4m3": 448, "e5m2": 57344}


def exact_codes(y: F32, scale: Any, dtype: str) -> list[int]:
    """Encode finite elements over a finite positive scale, rounding where the definition does."""
    inverse = exact(nearest_float32(1 / exact(scale)))
    scaled = [nearest_float32(exact(v) * inverse) for v in y]
    # An element above the largest float32 saturates as the largest does.
    magnitudes = [exact(min(abs(v), np.float32(FLT_MAX))) for v in scaled]
    signs = np.signbit(y).tolist()
    return [nearest_code(m, VALUES[dtype]) | 0x80 * s for m, s in zip(magnitudes, signs, strict=True)]


def ties(dtype: str) -> F32:
    values = np.array(VALUES[dtype], np.float32)
    midpoints: F32 = (values[:-1] + values[1:]) * np.float32(0.5)
    return midpoints
