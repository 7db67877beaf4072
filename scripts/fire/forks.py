"""Forks and exits while threads build: child and parent continue, and no lock outlives its holder."""

from __future__ import annotations

import os
import signal
import threading
import time

from jitnorm.cache import Artifact, Cache, Store

from fire.trial import SLACK_SECONDS, Trial, artifact_of


def attack(trial: Trial) -> None:
    """Four threads build while the process forks; each child also builds, then ends in one of several ways."""
    store, keys = Store(trial.root), [trial.key() for _ in range(6)]
    pause = trial.chance.choice([0, 0.005, 0.02])
    errors: list[BaseException] = []

    def build(number: int) -> None:
        try:
            for key in keys[number:] + keys[:number]:
                found = Cache(store).load_or_build(key, lambda key=key: _slowly(key, pause), timeout=5)  # type: ignore[misc]
                assert found == artifact_of(key), "wrong bytes"
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=build, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(3):
        time.sleep(trial.chance.uniform(0, 0.03))  # the trial varies the moment of the fork
        with trial.bounded(10):
            _fork(trial, store, keys)
    with trial.bounded(10):
        for thread in threads:
            thread.join()
    if errors:
        raise errors[0]


def _fork(trial: Trial, store: Store, keys: list[str]) -> None:
    ending, key = trial.chance.choice(["_exit", "kill", "none"]), trial.chance.choice(keys)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            trial.ask(store, key, timeout=5)
            status = 0
        finally:
            if ending == "kill" and status == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            os._exit(status)
    if ending == "none":  # killed in any case
        time.sleep(trial.chance.uniform(0, 0.02))
        os.kill(child, signal.SIGKILL)
    end = time.monotonic() + 10 + SLACK_SECONDS
    while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0):
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise AssertionError("a forked child hangs")
        time.sleep(0.002)
    assert ending != "_exit" or ended[1] == 0, "a forked child could not build"


def _slowly(key: str, pause: float) -> Artifact:
    time.sleep(pause)
    return artifact_of(key)
