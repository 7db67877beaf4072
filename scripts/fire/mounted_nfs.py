"""A mounted NFS: two hosts share a cache while processes die, one host clears it, and the server stops or dies."""

from __future__ import annotations

import json
import logging
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from jitnorm.cache import Artifact, Cache, Store
from jitnorm.cache.check import verify
from jitnorm.cache.space import clear, prune

from fire.mounts import Host, Mounts, mounted
from fire.trial import PROCESS_SECONDS, Trial, artifact_of

_TIMEOUT = 1.0  # for each of the two locks
_STORM_TIMEOUT = 30.0  # so that no process builds because it waited too long
_BUILD_SECONDS = 0.05
_CALLERS = 2  # of each host
_TROUBLES = 6
_STEP_SECONDS = 0.5  # between two troubles


def attack(trial: Trial) -> None:
    """A storm of both hosts, troubles amid lookups, builds and prunings, a writer of each host, and the loss of one."""
    chance = trial.chance
    keys = [trial.key() for _ in range(5)]
    with mounted(trial.folder, seconds=chance.choice([0, 1, 3]), locks=chance.random() < 0.5) as mounts:
        _storm(trial, mounts, keys)
        _troubles(trial, mounts, keys)
        for host in mounts.hosts:  # which removes what dead processes of the host have left
            _finish(trial, [_worker(host, "ask", key=trial.key())], 0.0)
        mounts.settle()
        _lost_host(trial, mounts, trial.key())
    (mounts.export / "cache").rename(trial.root)


def _storm(trial: Trial, mounts: Mounts, keys: list[str]) -> None:
    """Processes of both hosts ask for the same keys at once; each is built once, or once on each host.

    Once on each host if it does not see the other's locks, or sees what the other published only later.
    """
    log = trial.folder / "builds"
    log.touch()
    with ExitStack() as stack:
        workers = [
            stack.enter_context(_worker(host, "ask_once", keys=keys, log=str(log), begin=time.monotonic() + 1.0))
            for host in mounts.hosts
            for _ in range(_CALLERS)
        ]
        logged = _finish(trial, workers, 0.0)
    built = len(log.read_text().splitlines())
    most = len(keys) * (1 if mounts.locks and not mounts.seconds else len(mounts.hosts))
    assert len(keys) <= built <= most, f"{built} builds of {len(keys)} keys, at most {most} were due: {logged}"


def _troubles(trial: Trial, mounts: Mounts, keys: list[str]) -> None:
    """Troubles of two hosts and their server, while they use the cache."""
    stop, paused = trial.folder / "stop", 0.0

    def start(host: Host) -> subprocess.Popen[str]:
        return _worker(host, "use", keys=keys, seed=trial.chance.getrandbits(31), until=str(stop))

    workers = [(host, start(host)) for host in mounts.hosts for _ in range(_CALLERS)]
    try:
        for _ in range(_TROUBLES):
            time.sleep(_STEP_SECONDS)
            what, began = trial.chance.random(), time.monotonic()
            if what < 0.6:
                host, worker = workers.pop(trial.chance.randrange(len(workers)))
                worker.kill()
                worker.communicate()
                workers.append((host, start(host)))
                continue
            if what < 0.8:
                mounts.signal_server(signal.SIGSTOP)
                time.sleep(trial.chance.uniform(0.1, 3))
                mounts.signal_server(signal.SIGCONT)
            else:
                mounts.kill_server()
                time.sleep(trial.chance.uniform(0, 1))
                mounts.start_server()
            paused += time.monotonic() - began
        stop.touch()
        _finish(trial, [worker for _, worker in workers], paused)
    finally:
        for _, worker in workers:
            worker.kill()


def _lost_host(trial: Trial, mounts: Mounts, key: str) -> None:
    """A host crashes amid a build, and the server keeps its lock; the other one waits only as long as it may."""
    lost, left = trial.chance.sample(mounts.hosts, 2)
    builder = _worker(lost, "build_for_ever", key=key)
    try:
        assert builder.stdout is not None
        assert builder.stdout.readline() == "building\n"
        mounts.lose(lost)
    finally:
        builder.kill()
        builder.communicate()
    _finish(trial, [_worker(left, "ask", key=key)], 0.0)


def _worker(host: Host, task: str, **arguments: object) -> subprocess.Popen[str]:
    """A process of a host that uses the cache."""
    words = json.dumps({"root": str(host.folder / "cache"), **arguments})
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return host.start([sys.executable, "-m", "fire.mounted_nfs", task, words], env=environment, **pipes)


def _finish(trial: Trial, workers: list[subprocess.Popen[str]], paused: float) -> str:
    """Wait for processes, which must succeed and must not have waited too long; return what they have logged."""
    logged = ""
    for worker in workers:
        output, errors = worker.communicate(timeout=PROCESS_SECONDS)
        assert worker.returncode == 0, errors
        trial.note_wait(float(output), 2 * _TIMEOUT + paused)
        logged += errors
    return logged


def _ask(root: str, key: str, log: str | None = None, timeout: float = _TIMEOUT) -> float:
    """Ask for an artifact, which must be the right one; return how long that took beyond its build."""

    def build() -> Artifact:
        if log is not None:
            with open(log, "a") as file:
                file.write(f"{key}\n")
        time.sleep(_BUILD_SECONDS)
        return artifact_of(key)

    began = time.monotonic()
    assert Cache(Store(Path(root))).load_or_build(key, build, timeout=timeout) == artifact_of(key), "wrong bytes"
    return time.monotonic() - began


def _ask_once(root: str, keys: list[str], log: str, begin: float) -> float:
    time.sleep(max(0.0, begin - time.monotonic()))
    random.shuffle(keys)
    return max(_ask(root, key, log, _STORM_TIMEOUT) for key in keys)


def _use(root: str, keys: list[str], seed: int, until: str) -> float:
    """Use a cache at random; return the longest wait."""
    chance, store, longest = random.Random(seed), Store(Path(root)), 0.0
    while not Path(until).exists():
        what, key = chance.random(), chance.choice(keys)
        if what < 0.7:
            longest = max(longest, _ask(root, key))
        elif what < 0.9:
            assert store.load(key) in (None, artifact_of(key)), "wrong bytes"
        elif what < 0.94:
            prune(store, chance.choice([0, 1 << 14]))
        elif what < 0.97:
            clear(store, force=True)
        else:
            list(verify(store, repair=True))
    return longest


def _build_for_ever(root: str, key: str) -> float:
    def build() -> Artifact:
        print("building", flush=True)
        time.sleep(PROCESS_SECONDS)
        return artifact_of(key)

    Cache(Store(Path(root))).load_or_build(key, build, timeout=_TIMEOUT)
    return 0.0


if __name__ == "__main__":
    tasks = {"ask_once": _ask_once, "use": _use, "ask": _ask, "build_for_ever": _build_for_ever}
    logging.basicConfig(level=logging.INFO)  # read where an invariant does not hold
    print(tasks[sys.argv[1]](**json.loads(sys.argv[2])))
