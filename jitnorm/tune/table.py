"""Tables of tuned schedules: the measurements of `jitnorm tune` for a target, and the files that hold them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from jitnorm.kernels.row_classes import ROW_CLASSES
from jitnorm.kernels.row_schedule import RowSchedule
from jitnorm.sealed import read_sealed, write_sealed

_LISTS = ("rows", "by_rule", "best", "copy")


@dataclass(frozen=True)
class Entry:
    """The measurements for one tuning key and one class of rows; times in microseconds.

    Attributes:
        config: the text of the tuning key; see `jitnorm.tuning.tuning_key`.
        row_class: one of `ROW_CLASSES`.
        schedule: the text of the fastest RowSchedule; empty for the rules' schedule.
        rows: the row counts of the measured calls.
        by_rule: times of the rules' schedule, one per row count.
        best: times of the fastest schedule.
        copy: times of a copy of as many bytes.
    """

    config: str
    row_class: str
    schedule: str
    rows: tuple[int, ...]
    by_rule: tuple[float, ...]
    best: tuple[float, ...]
    copy: tuple[float, ...]

    def __post_init__(self) -> None:
        if self.row_class not in ROW_CLASSES:
            raise ValueError(f"row_class: is {self.row_class!r}; allowed are {', '.join(ROW_CLASSES)}")
        if self.schedule:
            RowSchedule.parse(self.schedule)


@dataclass(frozen=True)
class Table:
    """The measurements for a target.

    Attributes:
        target: the name of the target.
        device: the GPU that was measured.
        driver: the version of its driver.
        date: date of the last measurement, in ISO format.
        entries: one for each tuning key and class of rows.
    """

    target: str
    device: str
    driver: str
    date: str
    entries: tuple[Entry, ...] = field(default=())

    def with_entries(self, entries: Iterable[Entry]) -> Table:
        """The table with new entries, which replace those of the same tuning keys and classes of rows."""
        merged = {(each.config, each.row_class): each for each in (*self.entries, *entries)}
        return replace(self, entries=tuple(merged[key] for key in sorted(merged)))


def read_table(path: Path) -> Table:
    """Read the table in a file.

    Raises:
        OSError: it cannot be read.
        ValueError: it is not a table, or is incomplete.
    """
    raw = read_sealed(path)
    try:
        content = json.loads(raw)
        del content["sha256"]
        entries = tuple(
            Entry(**{**each, **{name: tuple(each[name]) for name in _LISTS}}) for each in content.pop("entries")
        )
        return Table(**content, entries=entries)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"it is not a table of schedules ({error}); remove it, or run jitnorm tune again") from None


def write_table(table: Table, path: Path) -> None:
    """Write a table atomically, one entry per line, creating its folder."""
    content = asdict(table)
    entries = content.pop("entries")
    write_sealed(content, entries, path)
