"""Chooses the fastest of several schedules, with few measurements of those far behind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import geometric_mean, median

# The rules' schedule stays unless another gains this much: runs differ by a percent or two.
LEAST_GAIN = 0.015
# A schedule may lose this much at one row count, the noise between runs, or up to half of its mean gain, but at most
# MOST_LOSS: add_rmsnorm with 4096 columns gains 6 % at 1 and 16 rows with a schedule that loses 1.2 % at 128.
SURE_LOSS = 0.01
MOST_LOSS = 0.03
# A schedule that is further behind the fastest after one measurement is not measured again.
_FAR_BEHIND = 0.03
_ROUNDS = 3

Times = tuple[float, ...]
"""Microseconds of a schedule, for each row count."""


@dataclass(frozen=True)
class Choice:
    """The result of a comparison.

    Attributes:
        schedule: the fastest; empty for the rules'.
        by_rule: the times of the rules' schedule.
        best: the times of the fastest.
        times: the times of every schedule.
    """

    schedule: str
    by_rule: Times
    best: Times
    times: dict[str, Times]

    @property
    def gain(self) -> float:
        """The fraction of its time that a call saves, in the geometric mean over row counts."""
        return 1 - _ratio(self.best, self.by_rule)


def choose(schedules: Sequence[str], measure: Callable[[str], Times]) -> Choice:
    """Measure the rules' schedule and others in turns, and choose the fastest.

    Args:
        schedules: the others.
        measure: returns the times of a schedule; takes an empty text for the rules'.
    """
    first = {each: measure(each) for each in ("", *schedules)}
    kept = _near_the_fastest(first)
    found = {each: [times] for each, times in first.items()}
    for _ in range(_ROUNDS - 1 if len(kept) > 1 else 0):
        for each in kept:
            found[each].append(measure(each))
    times = {each: tuple(map(median, zip(*several, strict=True))) for each, several in found.items()}
    by_rule = times[""]
    winners = [each for each in kept if not _loses(times[each], by_rule)]
    best = min(winners, key=lambda each: _ratio(times[each], by_rule))
    if _ratio(times[best], by_rule) > 1 - LEAST_GAIN:
        best = ""
    return Choice(best, by_rule, times[best], times)


def _near_the_fastest(first: dict[str, Times]) -> list[str]:
    """Schedules worth measuring again, the rules' first; only the rules' if nothing seems to gain."""
    # A small apparent loss may vanish when measured again.
    able = {each: times for each, times in first.items() if not _loses(times, first[""], SURE_LOSS)}
    ratios = {each: _ratio(times, first[""]) for each, times in able.items()}
    if min(ratios.values()) > 1 - LEAST_GAIN / 2:
        return [""]
    fastest = min(ratios[each] for each, times in able.items() if not _loses(times, first[""]))
    return ["", *(each for each in able if each and ratios[each] <= fastest * (1 + _FAR_BEHIND))]


def _loses(times: Times, by_rule: Times, more: float = 0.0) -> bool:
    """Whether a schedule exceeds its allowed loss, plus `more`, at one row count."""
    most = max(SURE_LOSS, min(MOST_LOSS, (1 - _ratio(times, by_rule)) / 2)) + more
    return any(time > before * (1 + most) for time, before in zip(times, by_rule, strict=True))


def _ratio(times: Times, by_rule: Times) -> float:
    """Geometric mean of the ratios of times."""
    return geometric_mean(time / before for time, before in zip(times, by_rule, strict=True))
