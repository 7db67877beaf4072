"""Whether a run is slower than an earlier one.

Times of different runs cannot be compared; their rooflines can, each relative to the copy of its own run.
"""

from __future__ import annotations

from dataclasses import dataclass

from jitnorm.bench.results import JITNORM, Results, Row


@dataclass(frozen=True)
class Pair:
    """The same measurement in two runs."""

    before: Row
    after: Row

    @property
    def change(self) -> float:
        """Of the roofline, relative: -0.1 if it has lost a tenth."""
        return self.after.roofline / self.before.roofline - 1


def pairs(before: Results, after: Results) -> list[Pair]:
    """What jitnorm has in both runs.

    Raises:
        ValueError: it is nothing.
    """
    known = {(row.op, row.shape): row for row in before.rows if row.by == JITNORM}
    found = [
        Pair(known[row.op, row.shape], row) for row in after.rows if row.by == JITNORM and (row.op, row.shape) in known
    ]
    if not found:
        raise ValueError("against: the two runs have no op at the same shape; choose the shapes of that file")
    return found


def regressions(pairs: list[Pair], tolerance: float) -> list[Pair]:
    """Those whose roofline is lower by more than `tolerance`, the worst first."""
    return sorted((pair for pair in pairs if pair.change < -tolerance), key=lambda pair: pair.change)
