"""Random calls give the reference's bytes; what does not is found, reduced and printed as a test."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import Any

import pytest
from fuzz import ops
from fuzz.case import BLOCK_SIZES, Case, Config, Place
from fuzz.check import Mismatch, check
from fuzz.run import FRAMEWORKS, fuzz
from unoptimized import unoptimized

__all__ = ["unoptimized"]

CASE = Case(
    Config("rmsnorm", "float16", 40, (("weight", "same"), ("rounding", "once"))),
    leading=(3, 2),
    kind="nan",
    seed=5,
    places=(("out", Place(1, 0, 1)), ("input", Place(0, 1))),
)


@pytest.fixture(autouse=True)
def _plain(unoptimized: None) -> None:
    """Kernels are not optimized here, which changes no bit."""


def test_every_encoding_has_whole_blocks_in_all_lengths_that_are_drawn() -> None:
    assert [spec for spec in ops.KINDS if any(size % spec.block_columns for size in BLOCK_SIZES)] == []


def test_random_calls_give_the_bytes_of_the_reference() -> None:
    pytest.importorskip("torch", reason="some calls are of torch's tensors")
    assert fuzz(seed=9, calls=8, kernels=2, frameworks=FRAMEWORKS["cpu"], echo=False) == []


@pytest.mark.parametrize("framework", FRAMEWORKS["cpu"])
def test_a_case_is_the_same_in_all_frameworks(framework: str) -> None:
    pytest.importorskip("torch", reason="some tensors are torch's")
    check(replace(CASE, framework=framework))


def broken(monkeypatch: pytest.MonkeyPatch, spoil: Any) -> None:
    """An op that spoils its tensors after the call."""
    op = ops.OPS["rmsnorm"]

    def call(t: dict[str, Any], eps: float, choices: dict[str, Any]) -> None:
        op.call(t, eps, choices)
        spoil(t)

    monkeypatch.setitem(ops.OPS, "rmsnorm", replace(op, call=call))


def wrong_value(t: dict[str, Any]) -> None:
    if len(t["out"]):
        t["out"][(0,) * t["out"].ndim] = 3


def written_beside(t: dict[str, Any]) -> None:
    ctypes.c_uint8.from_address(t["out"][..., -1:].ctypes.data + t["out"].itemsize).value ^= 1


def written_input(t: dict[str, Any]) -> None:
    if t["input"].size:
        t["input"][...] = 0


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [(wrong_value, "out: 2 bytes differ, 0 of"), (written_beside, "1 of them outside"), (written_input, "input:")],
)
def test_what_is_wrong_is_found(monkeypatch: pytest.MonkeyPatch, spoil: Any, problem: str) -> None:
    broken(monkeypatch, spoil)
    with pytest.raises(Mismatch, match=problem):
        check(replace(CASE, kind="random"))


def test_what_is_found_is_reduced_to_a_test_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def spoil(t: dict[str, Any]) -> None:
        if t["out"].ndim > 1 and t["out"].strides[-2] != 2 * t["out"].shape[-1]:
            wrong_value(t)

    broken(monkeypatch, spoil)
    monkeypatch.setattr("fuzz.run.draw_config", lambda chance: CASE.config)
    monkeypatch.setattr("fuzz.run.draw_case", lambda *_: CASE)
    (test,) = fuzz(seed=1, calls=1, kernels=1, frameworks=("numpy",), echo=False)
    namespace: dict[str, Any] = {}
    exec(test, namespace)
    with pytest.raises(Mismatch):
        namespace["test_found_by_fuzzing"]()
    assert "leading=(1,)" in test
    assert "('out', Place(row_gap=1, offset=0, gap=0))" in test
    assert "'input'" not in test
