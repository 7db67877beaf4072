"""Formats results for the terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table

from jitnorm.bench.bars import reached
from jitnorm.bench.compare import Pair
from jitnorm.bench.results import Results, Row, Setup
from jitnorm.bench.shapes import shape_text
from jitnorm.bench.summary import summarize


def facts(setup: Setup) -> list[tuple[str, str]]:
    """The setup of a run, as names and values."""
    driver = [("driver", setup.driver)] if setup.driver else []
    values = [] if setup.values == "normal" else [("values", setup.values)]
    return [("date", setup.date), ("device", setup.device), *driver, *setup.versions.items(), *values]


def rows_table(rows: Iterable[Row]) -> Table:
    """Tabulate all measurements."""
    table = _table(("op", "by"), ("M x H", "us", "copy us", "host us", "GB/s", "roofline"))
    for row in rows:
        times = (f"{time:.2f}" for time in (row.time, row.copy, row.host))
        table.add_row(
            row.op, row.by, shape_text(row.shape), *times, f"{row.throughput * 1e3:.1f}", f"{row.roofline:.3f}"
        )
    return table


def summary_table(rows: Iterable[Row]) -> Table:
    """Tabulate one line per op and library."""
    table = _table(("op", "by"), ("shapes", "roofline", "worst", "at", "speed-up"))
    for each in summarize(rows):
        table.add_row(
            each.op, each.by, str(each.count), f"{each.roofline:.3f}", f"{each.worst.roofline:.3f}",
            shape_text(each.worst.shape), "" if each.speedup is None else f"{each.speedup:.3f}x",
        )  # fmt: skip
    return table


def findings(results: Results) -> list[Table]:
    """The findings of a run: the bars, which apply only to GPUs, and a summary."""
    bars = [bars_table(results.rows)] if results.setup.is_gpu else []
    return [table for table in (*bars, summary_table(results.rows)) if table.rows]


def bars_table(rows: Iterable[Row]) -> Table:
    """Tabulate one line per bar with measurements."""
    table = _table(
        ("group", "figure", "by"), ("measured", "mean", "bar", "worst", "bar", "reached"), ("op", "at")
    )  # fmt: skip
    for each in reached(rows):
        bar = each.bar
        table.add_row(
            bar.group, bar.figure, bar.by, str(each.count), f"{each.mean:.3f}", _bar(bar.mean), f"{each.worst:.3f}",
            _bar(bar.worst), {None: "", True: "yes", False: "no"}[each.is_reached], each.at.op,
            shape_text(each.at.shape),
        )  # fmt: skip
    return table


def _bar(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def markdown(results: Results) -> str:
    """Format setup, bars and summary as a part of a page."""
    told = ", ".join(f"{name} {value}" for name, value in facts(results.setup))
    return "\n\n".join([told, *map(_as_markdown, findings(results))]) + "\n"


def _as_markdown(table: Table) -> str:
    columns = [[str(column.header), "---", *map(str, column.cells)] for column in table.columns]
    return "\n".join(f"| {' | '.join(line)} |" for line in zip(*columns, strict=True))


def pairs_table(pairs: Iterable[Pair]) -> Table:
    """Tabulate rooflines before and after."""
    table = _table(("op",), ("M x H", "before", "now", "change"))
    for pair in pairs:
        rooflines = (f"{row.roofline:.3f}" for row in (pair.before, pair.after))
        table.add_row(pair.after.op, shape_text(pair.after.shape), *rooflines, f"{pair.change:+.1%}")
    return table


def _table(texts: Iterable[str], numbers: Iterable[str], last: Iterable[str] = ()) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in texts:
        table.add_column(heading, no_wrap=True)
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=True)
    for heading in last:
        table.add_column(heading, no_wrap=True)
    return table
