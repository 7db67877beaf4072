"""A run of `jitnorm tune`: case after case is measured, and a table of what was found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from jitnorm.bench.results import Setup
from jitnorm.kernels.target import Target
from jitnorm.tune.cases import Case
from jitnorm.tune.choose import Choice, Times, choose
from jitnorm.tune.meter import Meter
from jitnorm.tuning import Entry, Table


@dataclass(frozen=True)
class Found:
    """What was found in a case.

    Attributes:
        case: the case.
        choice: the fastest schedule, and the times of all.
        copy: the times of a copy of as many bytes.
    """

    case: Case
    choice: Choice
    copy: Times

    @property
    def entry(self) -> Entry:
        """What a table says of it."""
        choice, times = self.choice, (self.choice.by_rule, self.choice.best, self.copy)
        rounded = (tuple(round(time, 3) for time in each) for each in times)
        return Entry(str(self.case.family), self.case.calls, choice.schedule, self.case.rows, *rounded)


def tune(cases: Iterable[Case], meter_of: Callable[[Case], Meter]) -> Iterator[Found]:
    """Measure cases, one after another.

    Args:
        cases: what to measure.
        meter_of: makes what measures a case.

    Raises:
        RuntimeError: a schedule gives other bytes than the rules', or a kernel cannot be built or run.
    """
    for case in cases:
        meter = meter_of(case)
        configs = {each.schedule: each for each in case.configs}
        choice = choose(case.schedules, lambda schedule: meter.time(configs[schedule]))  # noqa: B023 - called at once
        if choice.schedule and not meter.is_same(case.config, configs[choice.schedule]):
            raise RuntimeError(f"{configs[choice.schedule]} gives other bytes than {case.config}; please report it")
        yield Found(case, choice, meter.copy())


def table_of(target: Target, setup: Setup, before: Table | None = None) -> Table:
    """The table that a run begins with: what the same GPU and driver have given before, or nothing.

    Args:
        target: what the table is for.
        setup: the facts of the run.
        before: what there is.
    """
    empty = Table(str(target), setup.device, setup.driver, setup.date)
    if before is None or (before.device, before.driver) != (setup.device, setup.driver):
        return empty
    return replace(before, date=setup.date)


def shipped(table: Table) -> Table:
    """The table without what the rules do as well."""
    return replace(table, entries=tuple(each for each in table.entries if each.schedule))
