"""Many processes ask for a few keys of an empty cache at once: each is built once."""

from __future__ import annotations

import hashlib

from fire.trial import Trial


def attack(trial: Trial) -> None:
    """A storm of 2 to 24 processes on 1 to 6 keys."""
    keys = [trial.key() for _ in range(trial.chance.randint(1, 6))]
    processes, log = trial.chance.randint(2, 24), trial.folder / "builds"
    with trial.bounded(10):
        seconds = trial.chance.choice([0, 0.01, 0.1])
        answers = trial.output_of(
            "build_configurations", root=trial.root, keys=keys, log=log, build_seconds=seconds, processes=processes
        )
    assert answers.split() == [hashlib.sha256(b"x" * 10_000).hexdigest()] * processes, "wrong bytes"
    built = len(log.read_text().splitlines())
    assert built == len(keys), f"{built} builds of {len(keys)} keys by {processes} processes"
