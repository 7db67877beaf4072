"""Draws where each scale is stored, from the layout functions of the reference; rewrites docs/layouts/.

Needs only jitnorm: python scripts/layout_drawings.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import svg
from numpy.typing import NDArray

from jitnorm import reference as ref

FOLDER = Path(__file__).parents[1] / "docs" / "layouts"
Memory = NDArray[np.int64]
"""The number, in row order, of the scale stored at each position; -1 for padding."""

CELL, LINE, LEFT, TOP, GAP, HEAD = 40, 20, 60, 46, 90, 20
# A color for each row or group of rows, so that they are easy to find in memory.
COLORS = ("#cfe2f3", "#fce5cd", "#d9ead3", "#ead1dc", "#fff2cc", "#d0e0e3", "#f4cccc", "#d9d2e9")


def swizzled(layout: Literal["linear", "128x4", "8x4"]) -> Callable[[int, int], Memory]:
    """The positions of scales in layouts of bytes, found by laying out their numbers, one byte at a time."""

    def memory(rows: int, columns: int) -> Memory:
        # Starts at 1, because zero is the padding.
        numbers = np.arange(1, rows * columns + 1).reshape(rows, columns)
        low, high = (ref.swizzle_scales((numbers >> shift).astype(np.uint8), layout).ravel() for shift in (0, 8))
        return low.astype(np.int64) + 256 * high.astype(np.int64) - 1

    return memory


def column_major(tma_aligned: bool) -> Callable[[int, int], Memory]:
    def memory(rows: int, columns: int) -> Memory:
        numbers = np.arange(1, rows * columns + 1, dtype=np.float32).reshape(rows, columns)
        return ref.column_major_scales(numbers, tma_aligned).astype(np.int64) - 1

    return memory


def packed(rows: int, columns: int) -> Memory:
    """The positions of packed scales, found by laying out powers of two."""
    exponents = np.arange(1, rows * columns + 1).reshape(rows, columns)
    laid_out = ref.packed_scales(np.ldexp(np.float32(1), exponents - 127).astype(np.float32))
    return laid_out.view(np.uint8).astype(np.int64) - 1


@dataclass(frozen=True)
class Drawing:
    """A layout, the size of the matrix to lay out, its rows to show, and how memory is split into lines."""

    memory: Callable[[int, int], Memory]
    rows: int
    columns: int
    shown_rows: tuple[int, ...]
    line: int
    shown_lines: tuple[int, ...]
    unit: str
    group: int = 1
    """Rows of one color."""

    def color(self, row: int) -> str:
        return COLORS[row // self.group % len(COLORS)]


DRAWINGS = {
    "linear": Drawing(swizzled("linear"), 4, 8, (0, 1, 2, 3), 8, (0, 1, 2, 3), "byte"),
    "128x4": Drawing(
        swizzled("128x4"), 128, 8, (0, 1, 2, 31, 32, 33, 63, 64, 96, 127), 16, (0, 1, 2, 31, 32, 33, 63), "byte", 32
    ),
    "8x4": Drawing(swizzled("8x4"), 8, 8, tuple(range(8)), 8, tuple(range(8)), "byte"),
    "column": Drawing(column_major(False), 6, 3, tuple(range(6)), 6, (0, 1, 2), "float32"),
    "column4": Drawing(column_major(True), 6, 3, tuple(range(6)), 8, (0, 1, 2), "float32"),
    "packed": Drawing(packed, 6, 6, tuple(range(6)), 16, (0, 1, 2, 3), "byte"),
}


def drawing(name: str) -> str:
    """Draw the matrix with the position of each scale and, beside it, memory with the row and column of each."""
    drawn = DRAWINGS[name]
    memory = drawn.memory(drawn.rows, drawn.columns)
    right = LEFT + drawn.columns * CELL + GAP
    lines = max(_height(drawn.shown_rows), _height(drawn.shown_lines))
    body = [*matrix(drawn, memory), *lines_of_memory(drawn, memory, right)]
    title = f"Scale layout {name}: {drawn.rows} rows of {drawn.columns} scales, and where they lie"
    return svg.document(right + drawn.line * CELL + 10, TOP + lines + 10, title, body, 11)


def _height(shown: tuple[int, ...]) -> float:
    return _places(shown)[-1][1] + LINE


def _places(shown: tuple[int, ...]) -> list[tuple[int, float]]:
    """The numbers with their vertical positions; omitted numbers leave a gap of half a line."""
    places, down = [], 0.0
    for position, number in enumerate(shown):
        if position and number != shown[position - 1] + 1:
            down += LINE / 2
        places.append((number, down))
        down += LINE
    return places


def matrix(drawn: Drawing, memory: Memory) -> Iterable[str]:
    place = {int(number): at for at, number in enumerate(memory) if number >= 0}
    yield svg.text(LEFT, HEAD, f"{drawn.unit} of each scale", "start", "font-weight='bold'")
    for column in range(drawn.columns):
        yield svg.text(LEFT + (column + 0.5) * CELL, TOP - 6, f"{column}")
    for row, down in _places(drawn.shown_rows):
        yield svg.text(LEFT - 6, TOP + down + 14, f"row {row}", "end")
        for column in range(drawn.columns):
            yield svg.box(LEFT + column * CELL, TOP + down, CELL, LINE, drawn.color(row))
            yield svg.text(LEFT + (column + 0.5) * CELL, TOP + down + 14, str(place[row * drawn.columns + column]))


def lines_of_memory(drawn: Drawing, memory: Memory, left: float) -> Iterable[str]:
    yield svg.text(left, HEAD, f"{drawn.unit}s of memory: row,column", "start", "font-weight='bold'")
    for line, down in _places(drawn.shown_lines):
        yield svg.text(left - 6, TOP + down + 14, f"{line * drawn.line}", "end")
        for position, number in enumerate(memory[line * drawn.line : (line + 1) * drawn.line]):
            row, column = divmod(int(number), drawn.columns)
            x, is_padding = left + position * CELL, number < 0
            yield svg.box(x, TOP + down, CELL, LINE, "#f5f5f5" if is_padding else drawn.color(row))
            yield svg.text(x + CELL / 2, TOP + down + 14, "0" if is_padding else f"{row},{column}")


def drawings() -> dict[str, str]:
    """The drawings, by file name."""
    return {f"{name}.svg": drawing(name) for name in DRAWINGS}


def main() -> None:
    """Rewrite the drawings."""
    FOLDER.mkdir(exist_ok=True)
    for name, content in drawings().items():
        (FOLDER / name).write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main()
