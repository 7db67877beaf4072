"""A run takes some cases of each sweep, a few runs take them all, and nothing but cases of sweeps is left out."""

from __future__ import annotations

import os
import re
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from golden_cases import QuantCase, all_cases, quant_cases
from golden_ops import OPS
from sweeps import LONG, NAMES, TURNS, TURNS_OF_LONG, TURNS_OF_SWEEPS, mark_the_rest

TESTS = Path(__file__).parent
TEXTS = [path.read_text(encoding="utf-8") for path in TESTS.rglob("test_*.py")]


class Item:
    """What a sweep looks at of a case."""

    def __init__(self, test: str, case: object = None, *, is_gpu: bool = False, fixture: str = "tmp_path") -> None:
        self.nodeid = f"tests/test_file.py::{test}" + ("" if case is None else f"[{case}]")
        self.callspec = SimpleNamespace(params={"case": case})
        self.is_gpu = is_gpu
        self.fixturenames = [fixture]
        self.is_left_out = False

    def get_closest_marker(self, name: str) -> object:
        return (name == "gpu" and self.is_gpu) or None

    def add_marker(self, marker: Any) -> None:
        assert marker.name == "exhaustive"
        self.is_left_out = True


def taken(cases: list[Any], turn: int, test: str = min(NAMES), **options: bool) -> list[Any]:
    items = [Item(test, case, **options) for case in cases]
    mark_the_rest(items, turn)  # type: ignore[arg-type]
    return [case for case, item in zip(cases, items, strict=True) if not item.is_left_out]


def with_wheels(turn: int) -> bool:
    return turn % (1 + TURNS_OF_LONG) == 0


@pytest.mark.parametrize("count", [1, 2, 7, 8, 9, 100])
def test_each_turn_without_wheels_has_a_case_and_successive_ones_have_all(count: int) -> None:
    for first in (0, 739580):
        found = [taken(list(range(count)), turn) for turn in range(first, first + TURNS) if not with_wheels(turn)]
        assert min(map(len, found)) >= 1
        assert max(map(len, found)) <= -(-count // TURNS_OF_SWEEPS)
        assert set(chain(*found)) == set(range(count))


def test_a_turn_does_not_follow_the_grid() -> None:
    grid = [(size, dtype) for size in range(400) for dtype in range(8)]
    for turn in range(TURNS):
        assert {dtype for _, dtype in taken(grid, turn)} == (set() if with_wheels(turn) else set(range(8)))


def test_of_eight_turns_one_has_the_tests_of_wheels_and_the_others_all_long_ones() -> None:
    found = []
    for turn in range(739584, 739584 + 1 + TURNS_OF_LONG):
        items = [*(Item(name) for name in sorted(LONG)), *(Item(f"test_wheel_{i}", fixture="dist") for i in range(3))]
        mark_the_rest(items, turn)  # type: ignore[arg-type]
        found.append([item.nodeid.partition("::")[2] for item in items if not item.is_left_out])
    of_wheels, *of_others = found
    assert of_wheels == ["test_wheel_0", "test_wheel_1", "test_wheel_2"]
    assert all(len(names) >= len(LONG) // TURNS_OF_LONG for names in of_others)
    assert sorted(chain(*of_others)) == sorted(LONG)


def test_tests_that_are_no_sweep_and_those_for_gpus_are_left_alone() -> None:
    cases = list(range(100))
    for turn in (0, 1):
        assert taken(cases, turn, test="test_of_something_else") == cases
        assert taken(cases, turn, is_gpu=True) == cases


@pytest.mark.parametrize("turn", range(TURNS))
def test_every_turn_has_golden_bytes_of_every_op_and_format(turn: int) -> None:
    cases = [*all_cases(), *quant_cases(), *OPS]
    found = taken(cases, turn)
    assert len(found) < len(cases)
    assert set(found) >= set(OPS)
    for kind in (op_of, format_of):
        assert set(map(kind, found)) == set(map(kind, cases))


def op_of(case: object) -> str:
    return str(case).partition("-")[0]


def format_of(case: object) -> object:
    if isinstance(case, QuantCase):
        return case.spec.element, case.spec.block_size, case.spec.scale_format
    options = getattr(case, "options", None)
    return options and (options.block_size, options.scale_format)


def test_every_worker_has_the_turn_of_the_run(pytestconfig: pytest.Config) -> None:
    turn = pytestconfig.getoption("--turn")
    assert turn == int(os.environ.get("JITNORM_TEST_TURN", turn))


def test_every_sweep_and_every_long_test_is_a_test() -> None:
    tests = {name for text in TEXTS for name in re.findall(r"^def (test_\w+)", text, re.MULTILINE)}
    assert (NAMES | LONG) - tests == set()
    assert NAMES.isdisjoint(LONG)


@pytest.mark.parametrize("file", ["sweeps.txt", "long.txt"])
def test_the_list_is_sorted(file: str) -> None:
    names = (TESTS / file).read_text(encoding="utf-8").split()
    assert names == sorted(set(names))
