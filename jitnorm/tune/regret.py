"""Regret: how much longer calls of drawn lengths take with the schedules that they get than with the fastest."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import geometric_mean

from jitnorm.bench.cases import op_named
from jitnorm.fitted_forms import Forms
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.numerics import round_up
from jitnorm.kernels.row_classes import MANY_ELEMENTS, ROW_CLASSES, SHORT_ROW, class_of
from jitnorm.kernels.target import Target
from jitnorm.tune.cases import Case, plan
from jitnorm.tune.choose import Times
from jitnorm.tune.meter import Meter
from jitnorm.tuning import forms_of, schedule_for

# Shorter rows have no forms, and a choice of schedules only if there are many.
_SHORTEST, _LONGEST = 528, 32768
# All lengths are multiples of a chunk.
STEP = 16
# Numbers of rows at which the schedules of neighbouring classes are compared: also between those for which schedules
# are tuned, because what is the fastest at two numbers need not be so between them. The fewest rows are compared where
# they are tuned, many there, too.
_ROWS_BETWEEN = (56, 128, 152, 208, 256, 320, 384, 448, 640, 896, 1152, 1408, 2432, 4608, 9216, 20480)
# Schedules are measured again if they are within this of the fastest, or if a time is so many times the shortest, which
# may include a wait for the host.
_FAR_BEHIND, _SUSPICIOUS = 0.03, 2.0


@dataclass(frozen=True)
class Regret:
    """The times of a case by every schedule.

    Attributes:
        case: the case.
        schedule: the schedule that calls get; empty for the rules'.
        times: microseconds by schedule, for each row count.
    """

    case: Case
    schedule: str
    times: Mapping[str, Times]

    @property
    def fastest(self) -> str:
        """The fastest schedule, in the geometric mean over row counts."""
        return min(self.times, key=lambda each: geometric_mean(self.times[each]))

    def of(self, schedule: str) -> float:
        """How much longer calls take with a schedule than with the fastest, as a fraction of the latter's time."""
        return geometric_mean(self.times[schedule]) / geometric_mean(self.times[self.fastest]) - 1

    def __str__(self) -> str:
        """Everything, as a line of JSON."""
        case = self.case
        facts = {"op": case.op, "config": str(case.config), "row_class": case.row_class, "rows": case.rows}
        times = {each: [round(time, 3) for time in of_rows] for each, of_rows in self.times.items()}
        return json.dumps({**facts, "schedule": self.schedule, "times": times})


def draw(ops: Sequence[str], seed: int, step: int = STEP) -> Iterator[tuple[str, int]]:
    """Draw lengths for ops without end, one for each before the next for any, the same for the same seed.

    In each round, the lengths of all ops are spread over the whole range, evenly in one round and evenly on a
    logarithmic scale in the next: most lengths are long, but most calls have short rows.

    Args:
        ops: names out of `cases.OPS`.
        seed: the seed of the random numbers.
        step: lengths are multiples of it, and of an op's blocks.

    Example:
        >>> numbers = draw(["rmsnorm", "add mxfp4"], 7)
        >>> [next(numbers) for _ in range(4)]
        [('rmsnorm', 23024), ('add mxfp4', 1312), ('rmsnorm', 1760), ('add mxfp4', 27200)]
    """
    numbers, is_even = random.Random(seed), True
    while True:
        places = numbers.sample(range(len(ops)), len(ops))
        for op, place in zip(ops, places, strict=True):
            share = (place + numbers.random()) / len(ops)
            even = _SHORTEST + share * (_LONGEST - _SHORTEST)
            size = int(even if is_even else _SHORTEST * (_LONGEST / _SHORTEST) ** share)
            yield op, round_up(size, math.lcm(step, op_named(op).multiples[1]))
        is_even = not is_even


def shuffled(ops: Sequence[str], sizes: Sequence[int], seed: int) -> Iterator[tuple[str, int]]:
    """Yield given lengths once for each op that takes them: one for each op before the next for any, in drawn order.

    Args:
        ops: names out of `cases.OPS`.
        sizes: the lengths.
        seed: the seed of the random numbers.

    Example:
        >>> list(shuffled(["rmsnorm", "silu"], [2880, 5120], 1))
        [('rmsnorm', 2880), ('silu', 5120), ('rmsnorm', 5120), ('silu', 2880)]
    """
    numbers = random.Random(seed)
    orders = [numbers.sample(sizes, len(sizes)) for _ in ops]
    for of_round in zip(*orders, strict=True):
        yield from ((op, size) for op, size in zip(ops, of_round, strict=True) if size % op_named(op).multiples[1] == 0)


def cases_of(op: str, size: int, target: Target, row_classes: Sequence[str] = ()) -> list[Case]:
    """The cases of some classes of rows, by default of all, which have many kernels in common."""
    return [_with_many_rows(case) for case in plan([op], [size], row_classes, target).cases]


def _with_many_rows(case: Case) -> Case:
    """The case itself; if it has many rows that are not short, only with the most, about 2^27 elements."""
    is_long = case.row_class == "many" and case.config.hidden_size > SHORT_ROW
    return replace(case, rows=case.rows[-1:]) if is_long else case


def chosen(case: Case, target: Target) -> str:
    """Return the schedule that calls of a case get, by the forms that jitnorm ships; empty for the rules'."""
    return schedule_for(case.config, target, case.row_class, {}, forms_of(target.name, "shipped"))


def with_drawn_rows(cases: Sequence[Case], numbers: random.Random) -> list[Case]:
    """The cases, each with a single number of rows of its class, drawn evenly on a logarithmic scale.

    Args:
        cases: the cases, as `cases_of` gives them.
        numbers: the source of random numbers.
    """
    return [replace(case, rows=(_rows_of(case, numbers),)) for case in cases]


def _rows_of(case: Case, numbers: random.Random) -> int:
    """A number of rows of a case's class, with no more elements than the largest case has."""
    size = case.config.hidden_size
    while True:
        rows = int((2 * MANY_ELEMENTS // size + 1) ** numbers.random())
        if class_of(rows, size) == case.row_class:
            return rows


def with_neighbours(cases: Sequence[Case], target: Target) -> list[Case]:
    """The cases that get another schedule in a class beside their own, with only these, at more numbers of rows.

    There are so few that many lengths can be measured, and they nearly always include a fast one; docs/choices.md has
    figures.

    Args:
        cases: the cases, as `cases_of` gives them.
        target: what the kernels are built for.
    """
    found = []
    for case in cases:
        place, size = ROW_CLASSES.index(case.row_class), case.config.hidden_size
        beside = ROW_CLASSES[max(0, place - 1) : place + 2]
        schedules = dict.fromkeys(chosen(replace(case, row_class=each), target) for each in beside)
        rows = {each for each in _ROWS_BETWEEN if class_of(each, size) == case.row_class}
        if case.row_class in ("fewest", "many"):
            rows.update(case.rows)
        if len(schedules) > 1:
            found.append(replace(case, rows=tuple(sorted(rows)), schedules=tuple(filter(None, schedules))))
    return found


def compared(cases: Sequence[Case], target: Target, others: Forms) -> list[Case]:
    """The cases that get another schedule by other forms, each with that one alone to compare.

    Args:
        cases: the cases, as `cases_of` gives them.
        target: what the kernels are built for.
        others: forms that jitnorm does not ship.
    """
    schedules = [schedule_for(case.config, target, case.row_class, {}, others) for case in cases]
    pairs = zip(cases, schedules, strict=True)
    return [replace(case, schedules=(other,)) for case, other in pairs if other != chosen(case, target)]


def configs_of(case: Case, target: Target) -> tuple[KernelConfig, ...]:
    """Return the kernels to measure, including the one that calls get."""
    schedules = dict.fromkeys(("", chosen(case, target), *case.schedules))
    return tuple(replace(case.config, schedule=each) for each in schedules)


def regrets(
    cases: Sequence[Case], target: Target, meter_of: Callable[[Case], Meter], leave_out: Callable[[str], None]
) -> Iterator[Regret]:
    """Measure every schedule of each case once, and those that may be the fastest again.

    Args:
        cases: the cases, as `cases_of` gives them.
        target: what the kernels are built for.
        meter_of: returns the meter of a case.
        leave_out: called with kernels that cannot be built or run, and why.
    """
    for case in cases:
        meter, configs, times = meter_of(case), configs_of(case, target), {}
        for config in configs:
            try:
                times[config.schedule] = meter.time(config)
            except RuntimeError as error:
                leave_out(f"{config}: {error}")
        first = Regret(case, chosen(case, target), times)
        if not {"", first.schedule} <= times.keys():
            continue
        again = [config for config in configs if config.schedule in times and _counts(first, config.schedule)]
        second = {config.schedule: _least(times[config.schedule], meter.time(config)) for config in again}
        yield replace(first, times={**times, **second})


def _counts(found: Regret, schedule: str) -> bool:
    """Whether a second measurement of a schedule may matter."""
    least = map(min, zip(*found.times.values(), strict=True))
    is_suspicious = any(time > _SUSPICIOUS * of_row for time, of_row in zip(found.times[schedule], least, strict=True))
    return found.of(schedule) <= _FAR_BEHIND or schedule in ("", found.schedule) or is_suspicious


def _least(one: Times, other: Times) -> Times:
    """The lesser of two measurements: whatever disturbs them adds time."""
    return tuple(map(min, one, other))
