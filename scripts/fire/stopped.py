"""Builders that are stopped while they hold a lock: others wait twice the timeout at most."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor

from jitnorm.cache import Store

from fire.trial import Trial


def attack(trial: Trial) -> None:
    """One or two stopped holders of a key, and several who wait for it."""
    key, timeout = trial.key(), trial.chance.uniform(0, 0.4)
    with trial.worker("hang_in_build", root=trial.root, key=key) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "building\n"
        holder.send_signal(trial.chance.choice([signal.SIGSTOP, signal.SIGTSTP]))
        store = Store(trial.root)
        with ThreadPoolExecutor(8) as pool:
            for answer in [pool.submit(trial.ask, store, key, timeout=timeout) for _ in range(8)]:
                answer.result()
