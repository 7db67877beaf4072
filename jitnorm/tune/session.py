"""A run of `jitnorm tune`: measures cases one by one and tabulates the results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from jitnorm.bench.results import Setup
from jitnorm.kernels.target import Target
from jitnorm.tune.cases import Case
from jitnorm.tune.choose import Choice, Times, choose
from jitnorm.tune.meter import Meter
from jitnorm.tune.table import Entry, Table


@dataclass(frozen=True)
class Found:
    """The result of a case.

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
        """The entry for a table."""
        choice, times = self.choice, (self.choice.by_rule, self.choice.best, self.copy)
        rounded = (tuple(round(time, 3) for time in each) for each in times)
        return Entry(str(self.case.key), self.case.row_class, choice.schedule, self.case.rows, *rounded)


def tune(cases: Iterable[Case], meter_of: Callable[[Case], Meter]) -> Iterator[Found]:
    """Measure cases one by one.

    Args:
        cases: the cases to measure.
        meter_of: returns the meter of a case.

    Raises:
        RuntimeError: a schedule's bytes differ from the rules', or a kernel cannot be built or run.
    """
    for case in cases:
        meter = meter_of(case)
        configs = {each.schedule: each for each in case.configs}
        choice = choose(case.schedules, lambda schedule: meter.time(configs[schedule]))  # noqa: B023 - called at once
        if choice.schedule and not meter.is_same(case.config, configs[choice.schedule]):
            raise RuntimeError(f"{configs[choice.schedule]} gives different bytes from {case.config}; please report it")
        yield Found(case, choice, meter.copy())


def table_of(target: Target, setup: Setup, before: Table | None = None) -> Table:
    """The table that a run starts from: the existing one for the same GPU and driver, or an empty one.

    Args:
        target: the target of the table.
        setup: device, driver and date of the run.
        before: the existing table, if any.
    """
    empty = Table(str(target), setup.device, setup.driver, setup.date)
    if before is None or (before.device, before.driver) != (setup.device, setup.driver):
        return empty
    return replace(before, date=setup.date)


def shipped(table: Table) -> Table:
    """The table without the entries where the rules are best."""
    return replace(table, entries=tuple(each for each in table.entries if each.schedule))
