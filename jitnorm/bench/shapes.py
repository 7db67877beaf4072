"""Shapes to measure, as named lists and as text."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass

from jitnorm.kernels.spelling import did_you_mean

Shape = tuple[int, int]
"""M rows of H elements."""

_LARGE = ((4096, 4096), (16384, 8192))
# Powers of two, and numbers in between.
_GRID_ROWS = (
    1000, 1024, 1500, 2048, 3000, 4096, 5000, 7000, 8192, 10000, 15000, 16384, 20000, 25000, 32768, 40000, 50000,
    60000, 65536,
)  # fmt: skip
_DRAWN = 12
_GRID_HIDDEN_SIZES = (1536, 2048, 4096, 8192, 16384, 32768)


@dataclass(frozen=True)
class Shapes:
    """The shapes of one run.

    Attributes:
        usual: shapes for most ops.
        large: shapes for ops that are only measured on large tensors.
    """

    usual: tuple[Shape, ...]
    large: tuple[Shape, ...]


def _all(*shapes: Shape) -> Shapes:
    return Shapes(shapes, shapes)


NAMED = {
    "small": _all((1, 4096), (16, 4096)),
    "quick": Shapes(
        ((1, 4096), (16, 7168), (1024, 4096), (4096, 4096), (16384, 8192), (4096, 32768), (65536, 1536)), _LARGE
    ),
    "anchors": Shapes(
        ((1, 4096), (16, 7168), (128, 4096), (512, 8192), (1024, 4096), (1024, 8192), (4096, 2048), (4096, 4096),
         (4096, 8192), (16384, 4096), (16384, 8192), (8192, 16384), (4096, 32768), (65536, 1536)), _LARGE
    ),
    "few": _all(*((rows, hidden_size) for rows in (1, 8, 16, 32, 64) for hidden_size in (4096, 7168))),
    "grid": _all(*((rows, hidden_size) for rows in _GRID_ROWS for hidden_size in _GRID_HIDDEN_SIZES)),
}  # fmt: skip


def parse_shapes(text: str) -> Shapes:
    """Parse the name of a list of shapes, a text that lists them, or the seed of random ones: ``random:7``.

    Raises:
        ValueError: it is none of these.

    Example:
        >>> parse_shapes("1x4096,128x8192").usual
        ((1, 4096), (128, 8192))
    """
    if text in NAMED:
        return NAMED[text]
    if match := re.fullmatch(r"random:(\d+)", text):
        return _all(*_drawn(int(match[1])))
    found = [re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", part) for part in text.split(",")]
    shapes = [(int(match[1]), int(match[2])) for match in found if match]
    if len(shapes) < len(found):
        raise ValueError(
            f"shapes: is {text!r}; allowed are {', '.join(NAMED)}, random:SEED, or M x H such as 1x4096,128x8192"
            f"{did_you_mean(text, NAMED)}"
        )
    return _all(*shapes)


def _drawn(seed: int) -> Iterator[Shape]:
    """Draw shapes that nobody can tune for, evenly on a logarithmic scale: 2^20 to 2^27 elements, rows of up to 32768.

    Rows are multiples of 128, which every format divides.
    """
    numbers = random.Random(seed)
    for _ in range(_DRAWN):
        hidden_size = 128 * round(2 ** numbers.uniform(1, 8))
        yield max(1, round(2 ** numbers.uniform(20, 27) / hidden_size)), hidden_size


def shape_text(shape: Shape) -> str:
    """Format a shape as M x H.

    Example:
        >>> shape_text((16, 7168))
        '16x7168'
    """
    return f"{shape[0]}x{shape[1]}"
