"""Summarizes measurements over all shapes of an op."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import geometric_mean

from jitnorm.bench.results import JITNORM, Row
from jitnorm.bench.shapes import Shape


@dataclass(frozen=True)
class Summary:
    """The summary of all measurements of an op by one library.

    Attributes:
        op: the name of the op.
        by: the library.
        count: how many shapes were measured.
        roofline: the geometric mean.
        worst: the measurement with the lowest roofline.
        speedup: the library's time over jitnorm's, the geometric mean over common shapes; None for jitnorm itself, and
            where it was not measured.
    """

    op: str
    by: str
    count: int
    roofline: float
    worst: Row
    speedup: float | None


def summarize(rows: Iterable[Row]) -> list[Summary]:
    """Summarize each op by each library, in their order."""
    rows = list(rows)
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.op, row.by), []).append(row)
    ratios = speedups(rows)
    return [
        Summary(
            op,
            by,
            len(group),
            geometric_mean([row.roofline for row in group]),
            min(group, key=lambda row: row.roofline),
            geometric_mean(list(ratios[op, by].values())) if (op, by) in ratios else None,
        )
        for (op, by), group in groups.items()
    ]


def speedups(rows: Iterable[Row]) -> dict[tuple[str, str], dict[Shape, float]]:
    """The peer's time over jitnorm's, by op and peer, at each common shape."""
    rows = list(rows)
    own = {(row.op, row.shape): row.time for row in rows if row.by == JITNORM}
    found: dict[tuple[str, str], dict[Shape, float]] = {}
    for row in rows:
        if row.by != JITNORM and (row.op, row.shape) in own:
            found.setdefault((row.op, row.by), {})[row.shape] = row.time / own[row.op, row.shape]
    return found
