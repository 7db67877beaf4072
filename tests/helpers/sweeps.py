"""Sweeps: tests of one property at each point of a grid, of which a run takes only some points.

`tests/sweeps.txt` names them. A run has a turn, by default the day, and takes every 48th case of each sweep, so that 48
turns take them all. Of eight turns, one takes the tests that need the wheels of a release, which take a core two
minutes to build, and each of the others a seventh of the long tests, which `tests/long.txt` names. What a run leaves to
others is marked `exhaustive`.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime, timezone
from itertools import chain
from pathlib import Path
from zlib import crc32

import pytest

TURNS, TURNS_OF_LONG = 48, 8
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
    long_turn = turn % TURNS_OF_LONG
    others = [*of_wheels, *rest(long, long_turn, TURNS_OF_LONG - 1)] if long_turn else long
    for item in chain(others, *(rest(cases, turn) for cases in kinds.values())):
        item.add_marker(pytest.mark.exhaustive)


def rest(cases: list[pytest.Item], turn: int, most_turns: int = TURNS) -> list[pytest.Item]:
    """The cases that are not those of a turn, which has at least one."""
    # In an order that does not follow the grid, else a turn could have one dtype, or one layout.
    cases = sorted(cases, key=lambda item: crc32(item.nodeid.encode()))
    turns = max(1, min(most_turns, len(cases)))
    return [case for place, case in enumerate(cases) if place % turns != turn % turns]


def _kind(item: pytest.Item) -> str:
    """What no run is without: a parameter may say which kind of case it is."""
    values = item.callspec.params.values()  # type: ignore[attr-defined]
    return " ".join(value.kind_in_every_run for value in values if hasattr(value, "kind_in_every_run"))
