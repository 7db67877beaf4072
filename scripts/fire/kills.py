"""Builders that are killed at random moments: entries are whole or absent, and the next caller need not wait."""

from __future__ import annotations

from fire.trial import Trial


def attack(trial: Trial) -> None:
    """Ten kills, each followed by a caller who builds."""
    killed, longest = trial.output_of(
        "kill_builders", root=trial.root, rounds=10, seed=trial.chance.getrandbits(32)
    ).split()
    assert 0 <= int(killed) <= 10
    trial.waits.append(float(longest))
    assert float(longest) < 5, f"the next caller waited {longest} s"
