"""How commands print: tables, facts, JSON, quantities."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from jitnorm.cache.printable import printable

SECONDS_BETWEEN_LINES = 10.0  # between lines of progress in a pipe or file
_ROWS_OF_A_TABLE = 1000  # rows to fold to the terminal's width, which takes a millisecond each
_COLUMNS_OF_FILES = 1000  # for a pipe or file, whose lines must not be folded
_AGES = ((86400, "d"), (3600, "h"), (60, "min"))
_SIZES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def make_console() -> Console:
    """A console as wide as the terminal; if stdout is not a terminal, wide enough for every table."""
    console = Console()
    return console if console.is_terminal else Console(width=_COLUMNS_OF_FILES)


def make_error_console() -> Console:
    """A console on stderr, for progress and notes."""
    return Console(stderr=True)


class Lines:
    """Writes lines of progress to a pipe or file, some seconds apart."""

    def __init__(self) -> None:
        self._last = monotonic()

    def __call__(self, text: str) -> None:
        """Print a text, unless the last one was too recent."""
        now = monotonic()
        if now - self._last >= SECONDS_BETWEEN_LINES:
            self._last = now
            print(printable(text), file=sys.stderr, flush=True)


@contextmanager
def status() -> Iterator[Callable[[str], object]]:
    """Show on stderr what a command is doing: in a line that changes or, in a pipe or file, in occasional new lines.

    Yields:
        a function to call with each new text.
    """
    console = make_error_console()
    if console.is_terminal:
        with console.status("") as shown:
            yield shown.update
        return
    yield Lines()


def print_table(table: Table) -> None:
    """Print a table; to a pipe or file, one line per row, without colors or trailing spaces."""
    console = make_console()
    if console.is_terminal:
        console.print(table)
        return
    with console.capture() as captured:
        console.print(table)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))


def cell(text: object) -> Text:
    """A cell of literal text: markup and terminal control sequences have no effect."""
    return Text(printable(text))


def say(line: str) -> None:
    """Print a line that may contain untrusted text, such as an error that quotes a server."""
    print(printable(line))


def print_rows(headings: tuple[str, ...], rows: Sequence[tuple[str, ...]], *, right: Collection[str] = ()) -> None:
    """Print a table of any length; the last column is never cut, and long tables are not folded."""
    console = make_console()
    if console.is_terminal and len(rows) <= _ROWS_OF_A_TABLE:
        table = Table(box=None, pad_edge=False)
        for heading in headings[:-1]:
            table.add_column(heading, justify="right" if heading in right else "left", no_wrap=True)
        table.add_column(headings[-1], overflow="fold")
        for row in rows:
            table.add_row(*map(cell, row))
        console.print(table)
        return
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    signs = ["" if heading in right else "-" for heading in headings]
    line = "  ".join(f"%{sign}{width}s" for sign, width in zip(signs, widths, strict=True))
    print("\n".join([printable((line % row).rstrip()) for row in (headings, *rows)]))


def print_facts(facts: Iterable[tuple[str, str]]) -> None:
    """Print names and values in two columns."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts:
        table.add_row(cell(name), cell(value))
    print_table(table)


def print_json(value: Any) -> None:
    """Print a result as JSON; paths and similar values become strings."""
    print(json.dumps(value, indent=1, default=str))


def print_json_list(values: Iterable[Any]) -> None:
    """Print a JSON list as its values arrive, one value per line."""
    print("[", end="")
    for number, value in enumerate(values):
        print("," if number else "", json.dumps(value, default=str), sep="\n" if number else "", end="")
    print("]")


def duration(seconds: float) -> str:
    """A measured time.

    Example:
        >>> duration(1.234), duration(0.01234), duration(0.00123)
        ('1.23 s', '12 ms', '1.2 ms')
    """
    milliseconds = seconds * 1e3
    if milliseconds >= 1000:
        return f"{seconds:.2f} s"
    return f"{milliseconds:.0f} ms" if milliseconds >= 10 else f"{milliseconds:.1f} ms"


def age(seconds: float) -> str:
    """An age in the largest unit that it fills.

    Example:
        >>> age(5), age(200), age(90000)
        ('5 s', '3 min', '1 d')
    """
    for length, unit in _AGES:
        if seconds >= length:
            return f"{int(seconds) // length} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def entries(count: int) -> str:
    """A number of cache entries, such as ``1 entry``."""
    return "1 entry" if count == 1 else f"{count} entries"


def kernels(count: int) -> str:
    """A number of kernels, such as ``1 kernel``."""
    return "1 kernel" if count == 1 else f"{count} kernels"


def size(count: int) -> str:
    """A number of bytes, in the largest unit that it fills.

    Example:
        >>> size(512), size(15104), size(3 << 20)
        ('512 B', '14.8 KiB', '3.0 MiB')
    """
    for length, unit in _SIZES:
        if count >= length:
            return f"{count / length:.1f} {unit}"
    return f"{count} B"
