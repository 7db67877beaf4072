"""Clocks that jump, and file times in the past and the future: neither answers nor waits depend on them."""

from __future__ import annotations

import os
import time

from jitnorm.cache import Store
from jitnorm.cache.space import prune

from fire.trial import Trial


def attack(trial: Trial) -> None:
    """Thirty lookups, builds and prunings, before each of which the clock jumps."""
    store, real = Store(trial.root), time.time
    keys = [trial.key() for _ in range(8)]
    try:
        for _ in range(30):
            jump = trial.chance.choice([0, 1, -1]) * 10 ** trial.chance.uniform(0, 9)
            time.time = lambda jump=jump: max(0.0, real() + jump)  # type: ignore[misc]
            for path in trial.root.rglob("*"):
                if trial.chance.random() < 0.2:
                    moment = max(0.0, real() + trial.chance.choice([1, -1]) * 10 ** trial.chance.uniform(0, 9))
                    os.utime(path, (moment, moment))
            trial.ask(store, trial.chance.choice(keys))
            if trial.chance.random() < 0.2:
                with trial.bounded(5):
                    prune(store, trial.chance.choice([0, 1 << 30]))
    finally:
        time.time = real
