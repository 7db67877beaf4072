"""Where commands print."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from jitnorm.cache.printable import printable

_ROWS_OF_A_TABLE = 1000  # that fold and break to the terminal's width, a millisecond each
_COLUMNS_OF_FILES = 1000  # of a pipe or file, where nobody wants lines folded


def make_console() -> Console:
    """A console as wide as the terminal, or wide enough for every table where there is none."""
    console = Console()
    return console if console.is_terminal else Console(width=_COLUMNS_OF_FILES)


def make_error_console() -> Console:
    """A console on stderr, for what is no result: progress, notes."""
    return Console(stderr=True)


def print_table(table: Table) -> None:
    """Print a table; to a pipe or file one line for each row, without colors or spaces at its end."""
    console = make_console()
    if console.is_terminal:
        console.print(table)
        return
    with console.capture() as captured:
        console.print(table)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))


def cell(text: object) -> Text:
    """Text in a table, as it is: neither markup nor what steers a terminal is followed in it."""
    return Text(printable(text))


def say(line: str) -> None:
    """Print a line in which a stranger may have had a part, such as an error that quotes a server."""
    print(printable(line))


def print_rows(headings: Sequence[str], rows: Sequence[Sequence[str]], *, right: Collection[str] = ()) -> None:
    """Print a table of any length, the last column as wide as it is; long ones without the terminal's help."""
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
    signs = [">" if heading in right else "<" for heading in headings]
    line = "  ".join(f"{{:{sign}{width}}}" for sign, width in zip(signs, widths, strict=True))
    print("\n".join(printable(line.format(*row).rstrip()) for row in (headings, *rows)))


def print_facts(facts: Iterable[tuple[str, str]]) -> None:
    """Print names and what they have to say, in two columns."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts:
        table.add_row(cell(name), cell(value))
    print_table(table)


def print_json(value: Any) -> None:
    """Print a result for programs; paths and the like as text."""
    print(json.dumps(value, indent=1, default=str))


def print_json_list(values: Iterable[Any]) -> None:
    """Print a list for programs as it comes, a line for each of its values."""
    print("[", end="")
    for number, value in enumerate(values):
        print("," if number else "", json.dumps(value, default=str), sep="\n" if number else "", end="")
    print("]")
