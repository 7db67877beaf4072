"""Reduces a failing case as long as it still fails, and prints it as a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pprint import pformat

from fuzz.case import Case, Place


def reduced(case: Case, fails: Callable[[Case], bool]) -> Case:
    """The smallest failing case that can be reached by one simplification after another."""
    while (smaller := next((each for each in _simpler(case) if fails(each)), None)) is not None:
        case = smaller
    return case


def as_test(case: Case, problem: str) -> str:
    """The source of a test that fails as the case does."""
    body = pformat(case, width=100).replace("\n", "\n    ")
    return (
        f"# {problem}\nfrom fuzz.case import Case, Config, Place\nfrom fuzz.check import check\n\n\n"
        f"def test_found_by_fuzzing() -> None:\n    case = {body}\n    check(case)\n"
    )


def _simpler(case: Case) -> Iterator[Case]:
    """Cases that are simpler in one way, the simplest first, with the same kernel: another must be compiled."""
    plain: dict[str, object] = {
        "leading": (1,),
        "framework": "numpy",
        "gives_outputs": False,
        "places": (),
        "kind": "random",
        "eps": 1e-6,
        "seed": 0,
    }
    for name, value in plain.items():
        if getattr(case, name) != value and not (name == "framework" and case.framework == "cuda"):
            yield replace(case, **{name: value})  # type: ignore[arg-type]
    for kind in ("zeros",):
        if case.kind not in ("random", kind):
            yield replace(case, kind=kind)
    if case.rows > 1:
        yield replace(case, leading=(case.rows,)) if len(case.leading) > 1 else replace(case, leading=(case.rows // 2,))
    for number, (_, where) in enumerate(case.places):
        yield replace(case, places=case.places[:number] + case.places[number + 1 :])
        for simpler in {where._replace(row_gap=0), where._replace(offset=0), where._replace(gap=0)} - {where, Place()}:
            changed = (case.places[number][0], simpler)
            yield replace(case, places=(*case.places[:number], changed, *case.places[number + 1 :]))
