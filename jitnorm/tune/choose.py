"""Which of several schedules is the fastest: few measurements for those that are far behind."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

# The rules' schedule stays unless another gains so much: runs differ by a percent or two.
LEAST_GAIN = 0.03
# What a schedule may lose at one number of rows for what it gains at another.
MOST_LOSS = 0.01
# Behind the fastest by more after one measurement, a schedule is not measured again.
_FAR_BEHIND = 0.03
_ROUNDS = 3

Times = tuple[float, ...]
"""Microseconds of a schedule, for each number of rows."""


@dataclass(frozen=True)
class Choice:
    """What was found.

    Attributes:
        schedule: the fastest; empty for the rules'.
        by_rule: the times of the rules' schedule.
        best: the times of the fastest.
        times: those of every schedule.
    """

    schedule: str
    by_rule: Times
    best: Times
    times: dict[str, Times]

    @property
    def gain(self) -> float:
        """The part of its time that a call saves, in the geometric mean over numbers of rows."""
        return 1 - _ratio(self.best, self.by_rule)


def choose(schedules: Sequence[str], measure: Callable[[str], Times]) -> Choice:
    """Measure the rules' schedule and others in turns, and choose.

    Args:
        schedules: the others.
        measure: the times of a schedule, empty for the rules'.
    """
    found = {each: [measure(each)] for each in ("", *schedules)}
    rule = found[""][0]
    fastest = min(_ratio(times[0], rule) for times in found.values())
    if fastest <= 1 - LEAST_GAIN / 2:
        kept = [each for each in found if not each or _ratio(found[each][0], rule) <= fastest * (1 + _FAR_BEHIND)]
        for _ in range(_ROUNDS - 1):
            for each in kept:
                found[each].append(measure(each))
    times = {each: tuple(map(median, zip(*several, strict=True))) for each, several in found.items()}
    by_rule = times[""]
    winners = [each for each in times if _wins(times[each], by_rule)]
    best = min(winners, key=lambda each: _ratio(times[each], by_rule), default="")
    return Choice(best, by_rule, times[best], times)


def _wins(times: Times, by_rule: Times) -> bool:
    loses = any(time > before * (1 + MOST_LOSS) for time, before in zip(times, by_rule, strict=True))
    return not loses and _ratio(times, by_rule) <= 1 - LEAST_GAIN


def _ratio(times: Times, by_rule: Times) -> float:
    """Of the times, in the geometric mean."""
    return math.prod(time / before for time, before in zip(times, by_rule, strict=True)) ** (1 / len(times))
