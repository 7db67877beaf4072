"""Sweeps: tests of one property at each point of a grid, of which a run takes only some points.

`tests/sweeps.txt` names them. A run has a turn, by default the day. Of eight turns, one takes the tests that need the
wheels of a release, which take a core two minutes to build, and of sweeps only what no run is without. Each of the
others takes every 42nd case of each sweep, and a seventh of the long tests, which `tests/long.txt` names; 48 turns take
all. What a run leaves to others is marked `exhaustive`.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime, timezone
from itertools import chain
from pathlib import Path
from zlib import crc32

import pytest

TURNS_OF_LONG = 7
TURNS_OF_SWEEPS = 6 * TURNS_OF_LONG
TURNS = TURNS_OF_SWEEPS // TURNS_OF_LONG * (1 + TURNS_OF_LONG)  # with those of wheels
_WHEELS = "dist"  # the fixture (tests/helpers/wheel_fixtures.py)


def _names_in(file: str) -> frozenset[str]:
    return frozenset(Path(__file__).parents[1].joinpath(file).read_text(encoding="utf-8").split())


NAMES, LONG = _names_in("sweeps.txt"), _names_in("long.txt")


def turn_of_today() -> int:
    return datetime.now(timezone.utc).toordinal()


def mark_the_rest(items: list[pytest.Item], turn: int) -> None:
    """Mark the cases of sweeps, the long tests and those of wheels that are left to other turns."""
    kinds: dict[tuple[str, str], list[pytest.Item]] = defaultdict(list)
    long, of_wheels = [], []
    for item in items:
        name, is_case, _ = item.nodeid.partition("[")
        test = name.rpartition("::")[2]
        if item.get_closest_marker("gpu") is not None:
            continue
        if _WHEELS in item.fixturenames:  # type: ignore[attr-defined]
            of_wheels.append(item)
        elif test in LONG:
            long.append(item)
        elif is_case and test in NAMES:
            kinds[name, _kind(item)].append(item)
    round_of_turns, place = divmod(turn, 1 + TURNS_OF_LONG)
    others = round_of_turns * TURNS_OF_LONG + place - 1  # turns before, without those of wheels
    if place == 0:
        left = chain(long, *(rest(cases, turn) if kind else cases for (_, kind), cases in kinds.items()))
    else:
        left = chain(of_wheels, rest(long, others, TURNS_OF_LONG), *(rest(cases, others) for cases in kinds.values()))
    for item in left:
        item.add_marker(pytest.mark.exhaustive)


def rest(cases: list[pytest.Item], turn: int, most_turns: int = TURNS_OF_SWEEPS) -> list[pytest.Item]:
    """The cases that are not those of a turn, which has at least one."""
    # In an order that does not follow the grid, else a turn could have one dtype, or one layout.
    cases = sorted(cases, key=lambda item: crc32(item.nodeid.encode()))
    turns = max(1, min(most_turns, len(cases)))
    return [case for place, case in enumerate(cases) if place % turns != turn % turns]


def _kind(item: pytest.Item) -> str:
    """What no run is without: a parameter may say which kind of case it is."""
    values = item.callspec.params.values()  # type: ignore[attr-defined]
    return " ".join(value.kind_in_every_run for value in values if hasattr(value, "kind_in_every_run"))
