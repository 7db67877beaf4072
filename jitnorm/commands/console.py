"""Where commands print."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from jitnorm.cache.printable import printable

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
