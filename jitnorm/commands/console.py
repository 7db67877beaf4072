"""Where commands print."""

from __future__ import annotations

from rich.console import Console

_COLUMNS_OF_FILES = 200  # of a pipe or file, where nobody wants lines folded


def make_console() -> Console:
    """A console as wide as the terminal, or wide enough for every table where there is none."""
    console = Console()
    return console if console.is_terminal else Console(width=_COLUMNS_OF_FILES)
