"""Runs trials of attacks for a while, each in a separate process, and prints the outcomes.

    scripts/under_fire SEED SECONDS [ATTACK ...]

A trial depends only on the seed, the attack and its number, apart from scheduling by the machine. The exit status is 1
if any failed; a failure prints the command that repeats it.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

from fire.trial import Trial, Unavailable, assert_sound

ATTACKS = (
    "storm", "kills", "stopped", "io_errors", "full_disk", "hostile", "corruption", "toctou", "archives", "remotes",
    "signatures", "forks", "clock", "nfs", "mounted_nfs",
)  # fmt: skip
# A trial that takes longer hangs: every bound within it is shorter.
TRIAL_SECONDS = 180.0
_ENOUGH = 3  # failures of an attack after which it is not tried again


@dataclass
class Tally:
    """The outcome of the trials of an attack."""

    trials: int = 0
    failures: list[str] = field(default_factory=list)
    worst_wait: float = 0.0
    skipped: str = ""


def main() -> int:
    """Run the trials that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seed", type=int)
    parser.add_argument("seconds", type=float, help="how long to begin new trials")
    parser.add_argument("attacks", nargs="*", metavar="ATTACK", help=f"default: all of {', '.join(ATTACKS)}")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="number of the first trial of each attack")
    parser.add_argument("--trials", type=int, default=1 << 30, metavar="N", help="most trials of each attack")
    chosen = parser.parse_args()
    unknown = set(chosen.attacks) - set(ATTACKS)
    if unknown:
        parser.error(f"no such attack: {', '.join(sorted(unknown))}; there are {', '.join(ATTACKS)}")
    tallies = {name: Tally() for name in chosen.attacks or ATTACKS}
    end = time.monotonic() + chosen.seconds
    for number in range(chosen.first, chosen.first + chosen.trials):
        for name, tally in tallies.items():
            # Every attack is tried once, however short the time.
            if number == chosen.first or time.monotonic() < end:
                _try(name, chosen.seed, number, tally)
        if time.monotonic() >= end:
            break
    print(table(tallies))
    for name, tally in tallies.items():
        for failure in tally.failures:
            print(f"\n{name}: {failure}")
    return any(tally.failures for tally in tallies.values())


def table(tallies: dict[str, Tally]) -> str:
    """The outcome as Markdown."""
    lines = ["| attack | trials | failures | worst wait, s |", "| --- | ---: | ---: | ---: |"]
    for name, tally in tallies.items():
        outcome = f"skipped: {tally.skipped}" if tally.skipped else f"{tally.worst_wait:.2f}"
        lines.append(f"| {name} | {tally.trials} | {len(tally.failures)} | {outcome} |")
    return "\n".join(lines)


def _try(name: str, seed: int, number: int, tally: Tally) -> None:
    if tally.skipped or len(tally.failures) >= _ENOUGH:
        return
    folder = Path(tempfile.mkdtemp(prefix=f"fire-{name}-"))
    try:
        outcome = _in_a_process(folder, name, f"{seed} {name} {number}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if "skipped" in outcome:
        tally.skipped = str(outcome["skipped"])
        return
    tally.trials += 1
    tally.worst_wait = max(tally.worst_wait, *outcome.get("waits", []), 0.0)  # type: ignore[misc]
    if "failure" in outcome:
        again = f"scripts/under_fire {seed} 0 {name} --first {number} --trials 1"
        tally.failures.append(f"{outcome['failure']}again: {again}")


def _in_a_process(folder: Path, name: str, seed: str) -> dict[str, object]:
    """The outcome of a trial, after whose end its process and everything that it started are gone."""
    answer, report = folder / "answer", folder / "report"
    attack: Callable[[Trial], None] = import_module(f"fire.{name}").attack
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os.setsid()
        _settle(folder, report)
        answer.write_text(json.dumps(_outcome(attack, Trial(folder, random.Random(seed)))))
        os._exit(0)
    end = time.monotonic() + TRIAL_SECONDS
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > end:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return {"failure": f"hung for {TRIAL_SECONDS:g} s\n"}
        time.sleep(0.002)
    try:
        os.killpg(child, signal.SIGKILL)
    except ProcessLookupError:
        left = False
    else:
        left = True
    if not answer.exists():
        return {"failure": f"the process ended early: {report.read_text()}\n"}
    outcome: dict[str, object] = json.loads(answer.read_text())
    if left and "failure" not in outcome:
        outcome["failure"] = "a process was left behind\n"
    return outcome


def _settle(folder: Path, report: Path) -> None:
    """Give the process an empty home and temporary folder, which must stay empty."""
    (folder / "outside").mkdir()
    for variable in [name for name in os.environ if name.startswith("JITNORM_")]:
        del os.environ[variable]
    os.environ.update(HOME=str(folder / "outside"), TMPDIR=str(folder / "outside"))
    tempfile.tempdir = None
    os.dup2(os.open(report, os.O_WRONLY | os.O_CREAT, 0o600), 2)
    logging.disable(logging.CRITICAL)


def _outcome(attack: Callable[[Trial], None], trial: Trial) -> dict[str, object]:
    try:
        attack(trial)
        assert_sound(trial)
    except Unavailable as reason:
        return {"skipped": str(reason)}
    except BaseException:
        return {"failure": traceback.format_exc(), "waits": trial.waits}
    return {"waits": trial.waits}


if __name__ == "__main__":
    sys.exit(main())
