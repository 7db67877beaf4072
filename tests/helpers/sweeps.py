"""Sweeps: tests of one property at each point of a grid, of which a run takes only some points.

`tests/sweeps.txt` names them. A run has a turn, by default the day, and takes every 24th case of each sweep, so that 24
turns take them all. The other cases are marked `exhaustive`.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime, timezone
from pathlib import Path
from zlib import crc32

import pytest

TURNS = 24
NAMES = frozenset(Path(__file__).parents[1].joinpath("sweeps.txt").read_text(encoding="utf-8").split())


def turn_of_today() -> int:
    return datetime.now(timezone.utc).toordinal()


def mark_the_rest(items: list[pytest.Item], turn: int) -> None:
    """Mark the cases of sweeps that are left to other turns."""
    kinds: dict[tuple[str, str], list[pytest.Item]] = defaultdict(list)
    for item in items:
        name, is_case, _ = item.nodeid.partition("[")
        if is_case and name.rpartition("::")[2] in NAMES and item.get_closest_marker("gpu") is None:
            kinds[name, _kind(item)].append(item)
    for cases in kinds.values():
        for item in rest(cases, turn):
            item.add_marker(pytest.mark.exhaustive)


def rest(cases: list[pytest.Item], turn: int) -> list[pytest.Item]:
    """The cases that are not those of a turn, which has at least one."""
    # In an order that does not follow the grid, else a turn could have one dtype, or one layout.
    cases = sorted(cases, key=lambda item: crc32(item.nodeid.encode()))
    turns = min(TURNS, len(cases))
    return [case for place, case in enumerate(cases) if place % turns != turn % turns]


def _kind(item: pytest.Item) -> str:
    """What no run is without: a parameter may say which kind of case it is."""
    values = item.callspec.params.values()  # type: ignore[attr-defined]
    return " ".join(value.kind_in_every_run for value in values if hasattr(value, "kind_in_every_run"))
