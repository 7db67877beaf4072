"""Whether a run is slower than an earlier one.

Times of different runs cannot be compared; their rooflines can, each relative to the copy of its own run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from jitnorm.bench.results import JITNORM, Results, Row

# What seems slower is measured so many times again: of 312 measurements of the same kernels on another machine, 7 were
# lower by 6 to 12 %, six of them kernels of 1 to 2 us.
MORE_TIMES = 2


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


def confirmed(slower: list[Pair], tolerance: float, measure_again: Callable[[Row], Row]) -> list[Pair]:
    """Those that are slower each time that they are measured, as they were found in their fastest measurement."""
    for _ in range(MORE_TIMES):
        again = [replace(pair, after=measure_again(pair.after)) for pair in slower]
        fastest = [max(two, key=lambda pair: pair.change) for two in zip(slower, again, strict=True)]
        slower = regressions(fastest, tolerance)
    return slower
