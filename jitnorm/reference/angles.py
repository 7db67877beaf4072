"""Cosines and sines of the angles that frequencies and positions give, by polynomials that agree on every target."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jitnorm.reference.float32 import NAN, constants, polynomial

# The polynomials s p(s^2) and 1 + c(s^2), nearest to the sine, in relative terms, and to the cosine of s quarters of a
# turn for |s| up to a half.
_SINE = constants("-0x1.2d9302p-8", "0x1.465e92p-4", "-0x1.4abbbap-1", "0x1.921fb6p+0")
_COSINE = constants("0x1.d9f7bcp-11", "-0x1.55c664p-6", "0x1.03c1dep-2", "-0x1.3bd3ccp+0", "0x1p+0")


def angles_f32(positions: NDArray[Any], frequencies: NDArray[Any]) -> NDArray[np.float32]:
    """The cosines and sines of positions: those of `frequencies` times a position.

    Args:
        positions: (M,) integers. A negative one gives NaN.
        frequencies: (1, D) int32, D / 2 high words, then D / 2 low words: integers of 64 bits, in 2^-64 turns per
            position.

    Returns:
        (M, D) float32, D / 2 cosines, then D / 2 sines.

    Example:
        >>> eighth = np.array([[1 << 29, 0]], np.int32)
        >>> angles_f32(np.array([0, 2, 4]), eighth).tolist()
        [[1.0, 0.0], [-0.0, 1.0], [-1.0, -0.0]]
    """
    high, low = frequencies.view(np.uint32).astype(np.uint64).reshape(2, -1)
    turns = positions.astype(np.uint64)[:, None] * (high << np.uint64(32) | low)  # modulo whole turns
    phases = turns >> np.uint64(32)
    quarters = (phases + np.uint64(1 << 29)) >> np.uint64(30)
    rests = phases.astype(np.int64) - (quarters.astype(np.int64) << 30)
    cosines, sines = _near_zero(rests.astype(np.float32) * np.float32(2.0**-30))
    is_odd = quarters % 2 == 1
    cosines, sines = np.where(is_odd, sines, cosines), np.where(is_odd, cosines, sines)
    cosines = np.where((quarters + 1) % 4 >= 2, -cosines, cosines)
    sines = np.where(quarters % 4 >= 2, -sines, sines)
    angles: NDArray[np.float32] = np.hstack([cosines, sines])
    return np.where(positions[:, None] < 0, NAN, angles)


def _near_zero(quarters: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The cosine and sine of up to half a quarter of a turn."""
    square = quarters * quarters
    return polynomial(_COSINE, square), quarters * polynomial(_SINE, square)
