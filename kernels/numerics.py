"""Constants of the numerics that Python and the generated sources share."""

from __future__ import annotations

import struct

# Elements that one accumulator of the row statistic sums in order. Part of the output bits: never change it
# without a new format version. 16 and 8 were measured, see docs/choices.md.
CHUNK_SIZE = 16
# Chunks whose sums one butterfly combines: one warp, a chunk a lane.
GROUP_CHUNKS = 32
# Parts of a tensor whose largest magnitudes are found first: a launch's blocks each write one, and each warp of the
# next reads all. So no word need be zeroed before.
AMAX_PARTS = 256


def ceil_div(a: int, b: int) -> int:
    """Quotient of a and b, rounded up."""
    return -(-a // b)


def round_up(a: int, b: int) -> int:
    """The smallest multiple of b that is not below a."""
    return ceil_div(a, b) * b


def next_power_of_two(a: int) -> int:
    """The smallest power of two that is not below a >= 1."""
    return 1 << (a - 1).bit_length()


def to_float32(value: float) -> float:
    """The nearest float32."""
    rounded: float = struct.unpack("f", struct.pack("f", value))[0]
    return rounded
