"""A process of its own for the tests: ``worker.py TASK JSON-ARGUMENTS``. Prints what it did, line by line."""

from __future__ import annotations

# filelock and shutil are imported before privileges are dropped: the interpreter may lie where only its
# owner can read.
import hashlib
import json
import logging
import os
import shutil  # noqa: F401
import sys
import time
from pathlib import Path
from typing import Any

import filelock  # noqa: F401
from jitnorm.cache import Artifact, CacheError, Store, load_or_build, open_root, open_store

_UNPRIVILEGED = 65534


def say(line: str) -> None:
    print(line, flush=True)


def wait_for_parent() -> None:
    """Block until the parent writes a line or goes away."""
    sys.stdin.readline()


def note(log: str) -> None:
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{os.getpid()}\n".encode())
    os.close(descriptor)


def build_when_told(root: str, key: str, log: str, timeout: float, build_seconds: float, size: int = 100_000) -> None:
    """Build, leaving a line in ``log`` for every build begun."""

    def build() -> Artifact:
        note(log)
        time.sleep(build_seconds)
        return Artifact(b"x" * size, {"built": True})

    store = Store(Path(root))
    say("ready")
    wait_for_parent()
    payload = load_or_build(store, key, build, timeout=timeout).payload
    say(hashlib.sha256(payload).hexdigest())


def hang_in_build(root: str, key: str) -> None:
    def build() -> Artifact:
        say("building")
        wait_for_parent()
        return Artifact(b"too late", {})

    load_or_build(Store(Path(root)), key, build)


def hang_in_publish(root: str, key: str, call: str, at: int) -> None:
    """Stop in the ``at``-th call of ``os.write`` or ``os.fsync`` that publishing makes."""
    real = getattr(os, call)
    calls = 0

    def stop(descriptor: int, *data: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == at:
            if data:
                real(descriptor, data[0][: len(data[0]) // 2])
            say("publishing")
            wait_for_parent()
        return real(descriptor, *data)

    def build() -> Artifact:
        setattr(os, call, stop)
        return Artifact(b"x" * 10_000, {"built": True})

    load_or_build(Store(Path(root)), key, build)


def use_unwritable_default(folder: str, key: str) -> None:
    os.environ["XDG_CACHE_HOME"] = folder
    for _ in range(2):
        say(load_or_build(open_store(), key, lambda: Artifact(b"kept in memory", {})).payload.decode())


def use_unwritable_explicit(folder: str) -> None:
    os.environ["JITNORM_CACHE_DIR"] = f"{folder}/mine"
    open_store()


def open_foreign(folder: str) -> None:
    open_root(Path(folder), explicit=True)


def read_from_read_only_default(folder: str, key: str) -> None:
    os.environ["XDG_CACHE_HOME"] = folder
    store = open_store()
    store.publish(key, Artifact(b"from before", {}))
    os.chmod(store.layout.root, 0o500)
    os.chmod(store.layout.version, 0o500)
    say(load_or_build(open_store(), key, lambda: Artifact(b"built again", {})).payload.decode())


UNPRIVILEGED_TASKS = {
    task.__name__: task
    for task in (
        use_unwritable_default,
        use_unwritable_explicit,
        open_foreign,
        read_from_read_only_default,
    )
}
TASKS = {task.__name__: task for task in (build_when_told, hang_in_build, hang_in_publish)}


if __name__ == "__main__":
    logging.basicConfig(format="%(levelname)s %(message)s", level=logging.WARNING)
    name = sys.argv[1]
    if name in UNPRIVILEGED_TASKS and os.geteuid() == 0:
        os.setgroups([])
        os.setgid(_UNPRIVILEGED)
        os.setuid(_UNPRIVILEGED)
    try:
        (TASKS | UNPRIVILEGED_TASKS)[name](**json.loads(sys.argv[2]))
    except CacheError as error:
        say(f"{type(error).__name__}: {error}")
