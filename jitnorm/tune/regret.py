"""Regret: how much longer calls of drawn lengths take by the schedules they get than by the fastest there is."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.row_classes import MANY_ELEMENTS, ROW_CLASSES, class_of
from jitnorm.kernels.target import Target
from jitnorm.tune.cases import Case, plan
from jitnorm.tune.choose import Times
from jitnorm.tune.meter import Meter
from jitnorm.tuning import schedule_for, tables

# Lengths are drawn evenly from these multiples of 128, which every format divides.
_SHORTEST, _LONGEST, _STEP = 1024, 32768, 128


@dataclass(frozen=True)
class Regret:
    """The times of a case, as ratios to the fastest schedule's, less 1.

    Attributes:
        case: the case.
        schedule: the schedule that calls get; empty for the rules'.
        fastest: the fastest schedule.
        by_choice: how much longer the schedule that calls get takes.
        by_rule: how much longer the rules' schedule takes.
    """

    case: Case
    schedule: str
    fastest: str
    by_choice: float
    by_rule: float


def draw(ops: Sequence[str], seed: int, target: Target) -> list[Case]:
    """Draw a length for each op and class of rows, the same for the same seed.

    Args:
        ops: names out of `cases.OPS`.
        seed: the seed of the random numbers.
        target: what the kernels are built for.

    Example:
        >>> [case.row_class for case in draw(["rmsnorm"], 7, Target("sm_90a"))]
        ['few', 'some', 'usual', 'many']
    """
    numbers = random.Random(seed)
    found = []
    for op in ops:
        for row_class in ROW_CLASSES:
            size = numbers.randrange(_SHORTEST, _LONGEST + 1, _STEP)
            found += [_with_many_rows(case) for case in plan([op], [size], [row_class], target).cases]
    return found


def _with_many_rows(case: Case) -> Case:
    """The case itself; for many rows, with a single call of about 2^27 elements."""
    if case.row_class != "many":
        return case
    rows = 2 * MANY_ELEMENTS // case.config.hidden_size
    assert class_of(rows, case.config.hidden_size) == "many"
    return replace(case, rows=(rows,))


def chosen(case: Case, target: Target) -> str:
    """Return the schedule that calls of a case get, by jitnorm's own table; empty for the rules'."""
    return schedule_for(case.config, target, case.row_class, tables(target.name, "shipped"))


def configs_of(case: Case, target: Target) -> tuple[KernelConfig, ...]:
    """Return the kernels to measure, including the one that calls get."""
    schedules = dict.fromkeys(("", chosen(case, target), *case.schedules))
    return tuple(replace(case.config, schedule=each) for each in schedules)


def regrets(cases: Sequence[Case], target: Target, meter_of: Callable[[Case], Meter]) -> Iterator[Regret]:
    """Measure every schedule of each case, and compare what calls get with the fastest.

    Args:
        cases: the cases, as `draw` gives them.
        target: what the kernels are built for.
        meter_of: returns the meter of a case.
    """
    for case in cases:
        meter, of_call = meter_of(case), chosen(case, target)
        times = {each.schedule: _mean(meter.time(each)) for each in configs_of(case, target)}
        fastest = min(times, key=times.__getitem__)
        least = times[fastest]
        yield Regret(case, of_call, fastest, times[of_call] / least - 1, times[""] / least - 1)


def _mean(times: Times) -> float:
    """Geometric mean."""
    return math.prod(times) ** (1 / len(times))
