"""Attacks on the cache: each once here, for as long as anybody likes by scripts/under_fire."""

from __future__ import annotations

import os
import subprocess
import types
from collections.abc import Callable
from pathlib import Path

import pytest
from fire import run
from fire.trial import Trial, Unavailable
from jitnorm.cache import Store

ROOT = Path(__file__).parents[2]


def test_the_cache_withstands_each_attack_once() -> None:
    done = subprocess.run([ROOT / "scripts" / "under_fire", "1", "0"], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.split("|")[1:4] for line in done.stdout.splitlines()[2:]]
    assert [name.strip() for name, *_ in rows] == list(run.ATTACKS)
    assert all("skipped" in done.stdout or int(trials) == 1 for _, trials, _ in rows)


def test_each_module_is_an_attack() -> None:
    modules = {path.stem for path in (ROOT / "scripts" / "fire").glob("*.py")}
    assert modules - {"__init__", "run", "trial"} == set(run.ATTACKS)


def outcome(monkeypatch: pytest.MonkeyPatch, attack: Callable[[Trial], None]) -> run.Tally:
    module = types.SimpleNamespace(attack=attack)
    monkeypatch.setattr(run, "import_module", lambda name: module)
    tally = run.Tally()
    run._try("storm", 1, 7, tally)
    return tally


def write_outside(trial: Trial) -> None:
    (trial.folder / "outside" / "left").touch()


def leave_a_writer_s_folder(trial: Trial) -> None:
    trial.ask(Store(trial.root), trial.key())
    (trial.root / "v1" / "tmp" / "left").mkdir()


def wait_too_long(trial: Trial) -> None:
    with trial.bounded(-9):
        pass


def leave_a_process(trial: Trial) -> None:
    subprocess.Popen(["sleep", "60"])


def die(trial: Trial) -> None:
    os._exit(3)


@pytest.mark.parametrize(
    ("attack", "problem"),
    [
        (write_outside, "written outside"),
        (leave_a_writer_s_folder, "left behind"),
        (wait_too_long, "the bound is -9 s"),
        (leave_a_process, "a process was left behind"),
        (die, "ended early"),
    ],
)
def test_what_breaks_an_invariant_fails_and_says_how_to_repeat_it(
    monkeypatch: pytest.MonkeyPatch, attack: Callable[[Trial], None], problem: str
) -> None:
    tally = outcome(monkeypatch, attack)
    assert tally.trials == 1
    (failure,) = tally.failures
    assert problem in failure
    assert failure.endswith("again: scripts/under_fire 1 0 storm --first 7 --trials 1")


def test_what_the_machine_lacks_is_skipped_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def lack(trial: Trial) -> None:
        raise Unavailable("no such thing here")

    tally = outcome(monkeypatch, lack)
    assert (tally.trials, tally.failures, tally.skipped) == (0, [], "no such thing here")
