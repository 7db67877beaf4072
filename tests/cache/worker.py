"""A process of its own for the tests: ``worker.py TASK JSON-ARGUMENTS``. Prints what it did, line by line."""

from __future__ import annotations

# shutil and the space module are imported before privileges are dropped: the interpreter may lie where only its owner
# can read.
import hashlib
import json
import logging
import multiprocessing
import os
import random
import shutil  # noqa: F401
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jitnorm.cache.archive
import jitnorm.cache.check
import jitnorm.cache.space
from jitnorm.cache import Artifact, CacheError, Store, load_or_build, open_root, open_store
from jitnorm.cache.layout import Layout
from jitnorm.cache.lock import key_lock
from jitnorm.cache.remote import RemoteTier
from jitnorm.cache.sweep import sweep_lock
from jitnorm.cache.uses import note_use, release_uses

_UNPRIVILEGED = 65534


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")  # in one piece: several processes may have the same output
    sys.stdout.flush()


def wait_for_parent() -> None:
    """Block until the parent writes a line or goes away."""
    sys.stdin.readline()


def note(log: str) -> None:
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{os.getpid()}\n".encode())
    os.close(descriptor)


def build_when_told(root: str, key: str, log: str, timeout: float, build_seconds: float, size: int = 100_000) -> None:
    """Build when told to, adding a line to ``log`` for every build begun."""

    def build() -> Artifact:
        note(log)
        time.sleep(build_seconds)
        return Artifact(b"x" * size, {"built": True})

    store = Store(Path(root))
    say("ready")
    wait_for_parent()
    payload = load_or_build(store, key, build, timeout=timeout).payload
    say(hashlib.sha256(payload).hexdigest())


def build_at_once(root: str, key: str, log: str, timeout: float, build_seconds: float, processes: int) -> None:
    """Run `build_when_told` in that many processes."""

    def build() -> Artifact:
        note(log)
        time.sleep(build_seconds)
        return Artifact(b"x" * 100_000, {"built": True})

    def ask(_: int) -> None:
        say(hashlib.sha256(load_or_build(Store(Path(root)), key, build, timeout=timeout).payload).hexdigest())

    in_processes(processes, ask)


def build_configurations(root: str, keys: list[str], log: str, build_seconds: float, processes: int) -> None:
    """Request several keys, in a different order in each process, adding a line to ``log`` for every build begun."""

    def build() -> Artifact:
        note(log)
        time.sleep(build_seconds)
        return Artifact(b"x" * 10_000, {"built": True})

    def ask(number: int) -> None:
        random.Random(number).shuffle(keys)
        store = Store(Path(root))
        say(" ".join(sorted({hashlib.sha256(load_or_build(store, key, build).payload).hexdigest() for key in keys})))

    in_processes(processes, ask)


def in_processes(count: int, run: Callable[[int], None]) -> None:
    """Fork processes that run something at the same time; starting that many interpreters takes ten times as long."""

    def run_with_the_others(number: int) -> None:
        ready.wait(30)
        run(number)

    fork = multiprocessing.get_context("fork")
    ready = fork.Barrier(count)
    children = [fork.Process(target=run_with_the_others, args=(number,)) for number in range(count)]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
    assert [child.exitcode for child in children] == [0] * count


def load_and_stay(root: str, key: str) -> None:
    """Load an entry and keep running."""
    artifact = Store(Path(root)).load(key)
    say("loaded" if artifact else "missed")
    wait_for_parent()


def prune_when_told(root: str, max_bytes: int) -> None:
    store = Store(Path(root))
    say("ready")
    wait_for_parent()
    report = jitnorm.cache.space.prune(store, max_bytes)
    say(" ".join(report.evicted))


def prune_again_and_again(root: str) -> None:
    store = Store(Path(root))
    say("pruning")
    while True:
        jitnorm.cache.space.clear(store, force=True)


def publish_many(root: str, budget: int, count: int, seed: int) -> None:
    """Publish into a cache with a budget, using nothing; report how many times."""
    store = Store(Path(root))
    store.max_bytes = budget
    for number in range(count):
        store.publish(f"{hashlib.sha256(f'{seed} {number}'.encode()).hexdigest()}", Artifact(b"x" * 10_000, {}))
        release_uses(store.layout)
    say(f"{count}")


def hold_locks(root: str, key: str, marks: str, count: int) -> None:
    """Take a lock repeatedly; report whether it was exclusive every time."""
    layout = Layout(Path(root))
    mark = Path(marks) / "held"
    for _ in range(count):
        with key_lock(layout, key, 30) as held:
            assert held
            mark.touch(exist_ok=False)
            mark.unlink()
    say("alone")


def sweep_locks(root: str, key: str, until: str) -> None:
    """Sweep a lock repeatedly until a file appears; report how often it was there and free."""
    layout = Layout(Path(root))
    swept = 0
    say("sweeping")
    while not Path(until).exists():
        swept += sweep_lock(layout, key)
    say(f"{swept}")


def kill_builders(root: str, rounds: int, seed: int) -> None:
    """Kill forked builders at random moments; report the fate of each entry, and the longest wait after a kill."""
    chance = random.Random(seed)
    span = 0.02  # becomes about twice the time of a build and its publishing, however busy the machine is
    store = Store(Path(root))
    artifact = Artifact(b"x" * 10_000, {"built": True})
    killed_before = longest = 0.0
    for number in range(rounds):
        key = f"{number:064x}"
        child = os.fork()
        if child == 0:
            try:
                load_or_build(store, key, lambda: (time.sleep(0.002), artifact)[1])
            finally:
                os._exit(0)
        time.sleep(chance.uniform(0.0, span))  # the moment of the kill is what is tried here
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        there = store.layout.entry(key).exists()
        assert (store.load(key) == artifact) == there, f"round {number}: a part of an entry is visible"
        killed_before += not there
        span *= 0.9 if there else 1.1
        began = time.monotonic()
        assert load_or_build(store, key, lambda: artifact, timeout=30) == artifact
        longest = max(longest, time.monotonic() - began)
        assert store.load(key) == artifact
    assert not list(store.layout.quarantine.glob("*"))
    store.publish("f" * 64, artifact)
    assert not list(store.layout.private.iterdir())
    say(f"{killed_before:.0f} {longest:.3f}")


def fill_a_disk(root: str, count: int, size: int) -> None:
    """Request more than fits; report how many entries are stored, and how many of them are intact."""
    store = Store(Path(root))
    for number in range(count):
        artifact = Artifact(os.urandom(size), {})
        assert load_or_build(store, f"{number:064x}", lambda artifact=artifact: artifact) == artifact  # type: ignore[misc]
    results = list(jitnorm.cache.check.verify(store))
    say(f"{len(results)} {sum(result.intact for result in results)} {len(list(store.layout.private.glob('*')))}")


def fork_after_load(root: str, key: str, other: str) -> None:
    """Load in the parent; load and build in the child."""
    store = Store(Path(root))
    artifact = Artifact(b"built", {})
    load_or_build(store, key, lambda: artifact)
    child = os.fork()
    if child == 0:
        try:
            assert load_or_build(store, key, lambda: Artifact(b"built again", {})) == artifact
            assert load_or_build(store, other, lambda: artifact, timeout=10) == artifact
            say("child done")
            wait_for_parent()
        finally:
            os._exit(0)
    say(f"child {child}")
    os._exit(0)


def hang_in_build(root: str, key: str) -> None:
    def build() -> Artifact:
        say("building")
        wait_for_parent()
        return Artifact(b"too late", {})

    load_or_build(Store(Path(root)), key, build)


def hang_in_publish(root: str, key: str, call: str, at: int) -> None:
    """Stop in publishing's ``at``-th call of ``os.write`` or ``os.fsync``."""
    real = getattr(os, call)
    calls = 0

    def stop(descriptor: int, *data: Any) -> Any:
        nonlocal calls
        if os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")) == store.layout.ledger.name:
            return real(descriptor, *data)  # the running total is no part of an entry
        calls += 1
        if calls == at:
            if data:
                real(descriptor, data[0][: len(data[0]) // 2])
            say("publishing")
            wait_for_parent()
        return real(descriptor, *data)

    store = Store(Path(root))
    note_use(store.layout, key)  # its writes are none of those that publishing makes

    def build() -> Artifact:
        setattr(os, call, stop)
        return Artifact(b"x" * 10_000, {"built": True})

    load_or_build(store, key, build)


def hang_in_export(root: str, path: str) -> None:
    """Stop before an archive gets its final name."""
    os.fsync = lambda descriptor: (say("exporting"), wait_for_parent())
    jitnorm.cache.archive.export_archive(Store(Path(root)), Path(path))


def hang_in_upload(root: str, key: str) -> None:
    """Stop before a file of a remote folder gets its final name."""
    from fsspec.implementations.local import LocalFileSystem

    LocalFileSystem.mv = lambda *_, **__: (say("uploading"), wait_for_parent())
    RemoteTier(Path(root).as_uri()).write(key, Artifact(b"x" * 10_000, {}))


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
TASKS = {
    task.__name__: task
    for task in (
        build_at_once,
        build_configurations,
        build_when_told,
        fill_a_disk,
        fork_after_load,
        hang_in_build,
        hang_in_export,
        hang_in_publish,
        hang_in_upload,
        kill_builders,
        hold_locks,
        load_and_stay,
        prune_again_and_again,
        prune_when_told,
        publish_many,
        sweep_locks,
    )
}


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
