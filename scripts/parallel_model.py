#!/usr/bin/env python3
"""Predicts calls across GPUs from what two H200s measured of their links; writes the tables of docs/parallel.md.

    python scripts/parallel_model.py

A transfer takes a fixed time, the trip, plus its bytes divided by the bandwidth of a GPU's links, which lead to all
others at once through a switch; both are fitted to kernels that read a peer's matrix once. All other work of a kernel
is assumed to be hidden, so a prediction is what links allow, not what a kernel takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

PAGE = Path(__file__).parents[1] / "docs" / "parallel.md"
MARK = "<!-- From here on scripts/parallel_model.py writes this page. -->\n"
HIDDEN_SIZE = 7168
# Two H200s, NVLink with 18 links of 26.6 GB/s: microseconds to read a peer's bfloat16 matrix of so many rows once.
READS = {1: 2.9, 16: 3.8, 64: 5.9, 512: 23.8, 4096: 161.0, 16384: 632.0}
# One H200: microseconds of jitnorm's add, norm and FP8 of so many rows.
NORMS = {1: 1.8, 16: 2.1, 4096: 50.0, 16384: 195.0}
# Two H200s: microseconds of the two-shot all-reduce of torch's symmetric memory.
TWO_SHOT = {1: 6.7, 16: 7.4, 64: 10.4, 512: 29.6, 4096: 186.0, 16384: 716.0}
ROWS = tuple(READS)


@dataclass(frozen=True)
class Line:
    """Microseconds as a line over bytes."""

    start: float
    bytes_per_microsecond: float

    def time(self, count: float) -> float:
        return self.start + count / self.bytes_per_microsecond

    @classmethod
    def through(cls, times: dict[float, float]) -> Line:
        """The line with the least squares of relative errors."""
        size, time = np.array([*times]), np.array([*times.values()])
        (start, slope), *_ = np.linalg.lstsq(np.stack([1 / time, size / time], 1), np.ones_like(time), rcond=None)
        return cls(float(start), float(1 / slope))


@dataclass(frozen=True)
class Machine:
    """GPUs behind a switch.

    Attributes:
        name: of the machine.
        ranks: GPUs that sum.
        links: how many times as fast as the measured links they are.
    """

    name: str
    ranks: int
    links: float = 1


MACHINES = (
    Machine("2 H200", 2),
    Machine("4 H200", 4),
    Machine("8 H200", 8),
    Machine("4 of an NVL72", 4, 2),
    Machine("8 of an NVL72", 8, 2),
)


def matrix(rows: int) -> float:
    """Bytes of a bfloat16 matrix."""
    return 2.0 * rows * HIDDEN_SIZE


@cache
def link() -> Line:
    return Line.through({matrix(rows): time for rows, time in READS.items()})


@cache
def norm() -> Line:
    """The time of add, norm and FP8, by the bytes that they read and write: input, residual twice, codes."""
    return Line.through({3.5 * matrix(rows): time for rows, time in NORMS.items()})


def trip(machine: Machine, size: float) -> float:
    """Microseconds in which each GPU sends and receives so many bytes."""
    return Line(link().start, link().bytes_per_microsecond * machine.links).time(size)


def one_shot(machine: Machine, rows: int) -> float:
    """Every rank sends its matrix to all others."""
    return trip(machine, (machine.ranks - 1) * matrix(rows))


def half(machine: Machine, rows: int, gathered: float = 1) -> float:
    """Every rank reads its share of all matrices, or sends its own, `gathered` times as many bytes."""
    return trip(machine, gathered * (machine.ranks - 1) / machine.ranks * matrix(rows))


def two_shot(machine: Machine, rows: int, gathered: float) -> float:
    """Every rank reads its share of all matrices, and sends the result, `gathered` times as many bytes."""
    return half(machine, rows) + half(machine, rows, gathered)


def scattered_not_fused(machine: Machine, rows: int) -> float:
    """A reduce-scatter, and add, norm and FP8 of a rank's rows in a kernel that follows."""
    return half(machine, rows) + norm().time(3.5 * matrix(rows) / machine.ranks)


def gathered_not_fused(machine: Machine, rows: int) -> float:
    """Add and norm of a rank's rows, an all-gather in 16 bits, and FP8 of all rows."""
    own, all_of_them = 4 * matrix(rows) / machine.ranks, 1.5 * matrix(rows)
    return norm().time(own) + half(machine, rows) + norm().time(all_of_them)


def not_fused(machine: Machine, rows: int) -> float:
    """The better way to sum, and add, norm and FP8 in a kernel that follows."""
    return min(one_shot(machine, rows), two_shot(machine, rows, 1)) + norm().time(3.5 * matrix(rows))


def tables() -> str:
    """The tables as the page has them."""
    counts = tuple(f"{rows} row{'s' * (rows > 1)}" for rows in ROWS)
    fit = f"A trip takes {link().start:.1f} us, and a GPU receives {link().bytes_per_microsecond / 1e3:.0f} GB/s."
    return (
        f"\n{fit} Microseconds on two H200s:\n\n"
        + _table(("", *counts), _fits())
        + "\nPredicted microseconds of all-reduce, add, norm and FP8 codes:\n\n"
        + _table(("", "", *counts), _predictions())
        + "\nPredicted microseconds of its halves, of all rows together:\n\n"
        + _table(("", "", *counts), _predictions_of_halves())
    )


def _fits() -> Iterator[tuple[str, ...]]:
    two = MACHINES[0]
    yield "read the peer's matrix, measured", *(f"{READS[rows]:.1f}" for rows in ROWS)
    yield "by the model", *(f"{trip(two, matrix(rows)):.1f}" for rows in ROWS)
    yield "two-shot all-reduce of torch, measured", *(f"{TWO_SHOT[rows]:.1f}" for rows in ROWS)
    yield "what links allow it, by the model", *(f"{two_shot(two, rows, 1):.1f}" for rows in ROWS)


def _predictions() -> Iterator[tuple[str, ...]]:
    for machine in MACHINES:
        yield machine.name, "one-shot", *(f"{one_shot(machine, rows):.1f}" for rows in ROWS)
        yield "", "two-shot of rounded sums", *(f"{two_shot(machine, rows, 1):.1f}" for rows in ROWS)
        yield "", "sharded, of FP8 codes", *(f"{two_shot(machine, rows, 0.5):.1f}" for rows in ROWS)
        yield "", "not fused", *(f"{not_fused(machine, rows):.1f}" for rows in ROWS)


def _predictions_of_halves() -> Iterator[tuple[str, ...]]:
    for machine in MACHINES:
        yield machine.name, "reduce-scatter, fused", *(f"{half(machine, rows):.1f}" for rows in ROWS)
        yield "", "not fused", *(f"{scattered_not_fused(machine, rows):.1f}" for rows in ROWS)
        yield "", "all-gather of FP8 codes, fused", *(f"{half(machine, rows, 0.5):.1f}" for rows in ROWS)
        yield "", "of a norm, not fused", *(f"{gathered_not_fused(machine, rows):.1f}" for rows in ROWS)


def _table(titles: tuple[str, ...], lines: Iterator[tuple[str, ...]]) -> str:
    head = [titles, tuple("---" for _ in titles)]
    return "".join(f"| {' | '.join(line)} |\n" for line in (*head, *lines))


def page(present: str) -> str:
    """The page with the tables."""
    before, mark, _ = present.partition(MARK)
    if not mark:
        raise SystemExit(f"{PAGE} has no line {MARK!r}")
    return before + mark + tables()


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
