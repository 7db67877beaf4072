"""Compares a run with an earlier one.

Compares rooflines, which are relative to the copy of the same run; times of different runs are not comparable.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from jitnorm.bench.results import JITNORM, Results, Row

# How often a measurement that seems slower is repeated: of 312 measurements of the same kernels on another machine, 7
# were lower by 6 to 12 %, six of them kernels of 1 to 2 us.
MORE_TIMES = 2


@dataclass(frozen=True)
class Pair:
    """The same measurement in two runs."""

    before: Row
    after: Row

    @property
    def change(self) -> float:
        """Relative change of the roofline: -0.1 if it lost a tenth."""
        return self.after.roofline / self.before.roofline - 1


def pairs(before: Results, after: Results) -> list[Pair]:
    """Match jitnorm's measurements in both runs.

    Raises:
        ValueError: there are none.
    """
    known = {(row.op, row.shape): row for row in before.rows if row.by == JITNORM}
    found = [
        Pair(known[row.op, row.shape], row) for row in after.rows if row.by == JITNORM and (row.op, row.shape) in known
    ]
    if not found:
        raise ValueError("against: the two runs have no op at the same shape; choose the shapes of that file")
    return found


def regressions(pairs: list[Pair], tolerance: float) -> list[Pair]:
    """Measurements whose roofline is lower by more than `tolerance`, the worst first."""
    return sorted((pair for pair in pairs if pair.change < -tolerance), key=lambda pair: pair.change)


def confirmed(slower: list[Pair], tolerance: float, measure_again: Callable[[Row], Row]) -> list[Pair]:
    """Measurements that are slower every time they are repeated, each with its fastest result."""
    for _ in range(MORE_TIMES):
        again = [replace(pair, after=measure_again(pair.after)) for pair in slower]
        fastest = [max(two, key=lambda pair: pair.change) for two in zip(slower, again, strict=True)]
        slower = regressions(fastest, tolerance)
    return slower
