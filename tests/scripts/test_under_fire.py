"""Attacks on the cache: each once here, for as long as anybody likes by scripts/under_fire."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fire import run
from fire.trial import Trial, Unavailable
from jitnorm.cache import Store
from python_process import run_python

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("attack", run.ATTACKS)
def test_the_cache_withstands_an_attack(attack: str) -> None:
    command = [ROOT / "scripts" / "under_fire", "1", "0", attack]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    ((name, trials, _),) = (line.split("|")[1:4] for line in done.stdout.splitlines()[2:])
    assert name.strip() == attack
    assert "skipped" in done.stdout or int(trials) == 1


def test_each_module_is_an_attack() -> None:
    modules = {path.stem for path in (ROOT / "scripts" / "fire").glob("*.py")}
    assert modules - {"__init__", "mounts", "run", "trial"} == set(run.ATTACKS)


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


def lack(trial: Trial) -> None:
    raise Unavailable("no such thing here")


PROBLEMS: dict[Callable[[Trial], None], str] = {
    write_outside: "written outside",
    leave_a_writer_s_folder: "left behind",
    wait_too_long: "the bound is -9 s",
    leave_a_process: "a process was left behind",
    die: "ended early",
}
# Trials are forked, which the process of the tests, with the threads of frameworks, had better not be.
TRY_EACH = """
import json, types
import test_under_fire
from fire import run

tallies = {}
for attack in (*test_under_fire.PROBLEMS, test_under_fire.lack):
    run.import_module = lambda name: types.SimpleNamespace(attack=attack)
    run._try("storm", 1, 7, tallies.setdefault(attack.__name__, run.Tally()))
print(json.dumps({name: vars(tally) for name, tally in tallies.items()}))
"""


@pytest.fixture(scope="module")
def tallies(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The tally of each attack after one trial."""
    folders = (ROOT / "scripts", ROOT / "tests" / "helpers", Path(__file__).parent)
    path = os.pathsep.join(map(str, folders))
    output = run_python(TRY_EACH, cwd=tmp_path_factory.mktemp("trials"), PYTHONPATH=path)
    found: dict[str, dict[str, Any]] = json.loads(output)
    return found


@pytest.mark.parametrize("attack", PROBLEMS, ids=lambda attack: attack.__name__)
def test_what_breaks_an_invariant_fails_and_says_how_to_repeat_it(
    tallies: dict[str, dict[str, Any]], attack: Callable[[Trial], None]
) -> None:
    tally = tallies[attack.__name__]
    assert tally["trials"] == 1
    (failure,) = tally["failures"]
    assert PROBLEMS[attack] in failure
    assert failure.endswith("again: scripts/under_fire 1 0 storm --first 7 --trials 1")


def test_what_the_machine_lacks_is_skipped_with_the_reason(tallies: dict[str, dict[str, Any]]) -> None:
    tally = tallies["lack"]
    assert (tally["trials"], tally["failures"], tally["skipped"]) == (0, [], "no such thing here")
