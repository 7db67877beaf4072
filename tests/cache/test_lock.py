from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import logging
import os
import signal
import stat
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from jitnorm.cache import Artifact, Cache, CacheError, Store, load_or_build, make_key
from jitnorm.cache.events import subscribe
from jitnorm.cache.layout import Layout
from jitnorm.cache.lock import key_lock, wait_bound
from python_process import run_python

StartWorker = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def layout(store: Store) -> Layout:
    return store.layout


@contextlib.contextmanager
def held_by_another_thread(layout: Layout, key: str, seconds: float = 5) -> Iterator[None]:
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with key_lock(layout, key, seconds):
            held.set()
            release.wait(timeout=30)

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert held.wait(timeout=10)
        yield
    finally:
        release.set()
        thread.join(timeout=10)


def test_a_free_lock_is_obtained(layout: Layout, key: str) -> None:
    with key_lock(layout, key, 0) as locked:
        assert locked


def test_a_lock_keeps_the_other_threads_of_the_process_out(layout: Layout, key: str) -> None:
    with held_by_another_thread(layout, key), key_lock(layout, key, 0) as locked:
        assert not locked
    with key_lock(layout, key, 0) as locked:
        assert locked


def test_keys_do_not_lock_each_other(layout: Layout, key: str) -> None:
    with held_by_another_thread(layout, make_key({})), key_lock(layout, key, 0) as locked:
        assert locked


def test_an_error_frees_the_lock(layout: Layout, key: str) -> None:
    with pytest.raises(ZeroDivisionError), key_lock(layout, key, 0):
        raise ZeroDivisionError
    with key_lock(layout, key, 0) as locked:
        assert locked


def test_the_lock_file_stays_and_the_note_on_its_holder_goes(layout: Layout, key: str) -> None:
    with key_lock(layout, key, 0):
        assert {path.name for path in layout.locks.iterdir()} == {f"{key}.lock", f"{key}.holder"}
        assert {stat.S_IMODE(path.stat().st_mode) for path in layout.locks.iterdir()} == {0o600}
        inode = layout.lock(key).stat().st_ino
    assert [path.name for path in layout.locks.iterdir()] == [f"{key}.lock"]
    assert layout.lock(key).stat().st_ino == inode


def test_a_wait_that_ends_names_the_holder_and_then_builds_privately(
    store: Store, key: str, artifact: Artifact, start_worker: StartWorker, caplog: pytest.LogCaptureFixture
) -> None:
    worker = start_worker("hang_in_build", root=store.layout.root, key=key)
    assert worker.stdout is not None
    assert worker.stdout.readline() == "building\n"
    began = time.monotonic()
    assert load_or_build(store, key, lambda: artifact, timeout=0.2) == artifact
    assert 0.2 <= time.monotonic() - began < 5
    assert f"waited 0.2 s for the build of {key}" in caplog.text
    assert f"process {worker.pid} on '{os.uname().nodename}', which began " in caplog.text
    assert store.load(key) == artifact


def test_a_long_wait_says_so_while_it_lasts_and_is_told_to_callbacks(
    store: Store,
    key: str,
    artifact: Artifact,
    start_worker: StartWorker,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("jitnorm.cache.lock._LONG_WAIT_SECONDS", 0.1)
    waits: list[Mapping[str, Any]] = []
    unsubscribe = subscribe(lambda kind, fields: waits.append(fields) if kind == "lock_wait" else None)
    worker = start_worker("hang_in_build", root=store.layout.root, key=key)
    assert worker.stdout is not None
    assert worker.stdout.readline() == "building\n"

    class KillOnWarning(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            worker.kill()

    log = logging.getLogger("jitnorm.cache.lock")
    log.addHandler(handler := KillOnWarning())
    began = time.monotonic()
    try:
        assert load_or_build(store, key, lambda: artifact, timeout=60) == artifact
    finally:
        log.removeHandler(handler)
        unsubscribe()
    assert time.monotonic() - began < 10
    holder = f"process {worker.pid} on '{os.uname().nodename}', which began 0 s ago"
    assert [record.getMessage() for record in caplog.records] == [
        f"waiting for the build of {key} by {holder}: for 0 s, at most 60 s"
    ]
    (wait,) = waits
    assert (wait["key"], wait["obtained"]) == (key, True)
    assert 0.1 <= wait["seconds"] < 10
    assert f"process {worker.pid} on" in wait["holder"]


def test_a_lock_that_is_free_is_no_wait(layout: Layout, key: str) -> None:
    kinds: list[str] = []
    unsubscribe = subscribe(lambda kind, _: kinds.append(kind))
    with key_lock(layout, key, 5):
        unsubscribe()
    assert kinds == []


def test_the_lock_of_a_killed_holder_is_free_at_once(store: Store, key: str, start_worker: StartWorker) -> None:
    worker = start_worker("hang_in_build", root=store.layout.root, key=key)
    assert worker.stdout is not None
    assert worker.stdout.readline() == "building\n"
    worker.kill()
    worker.wait(timeout=10)
    with key_lock(store.layout, key, 0) as locked:
        assert locked


def test_an_entry_that_appears_ends_the_wait_while_its_lock_is_still_held(
    store: Store, key: str, artifact: Artifact, caplog: pytest.LogCaptureFixture
) -> None:
    with held_by_another_thread(store.layout, key):
        publishing = threading.Timer(0.3, store.publish, (key, artifact))
        publishing.start()
        began = time.monotonic()
        assert load_or_build(store, key, lambda: pytest.fail("built"), timeout=60) == artifact
        assert time.monotonic() - began < 10
        publishing.join(timeout=10)
    assert not caplog.records


def test_an_entry_that_is_of_no_use_does_not_end_the_wait(store: Store, key: str, artifact: Artifact) -> None:
    store.publish(key, artifact)
    with held_by_another_thread(store.layout, key):
        began = time.monotonic()
        rebuilt = Cache(store).load_or_build(key, lambda: artifact, timeout=0.3, accept=lambda _: False)
        assert rebuilt is artifact
        assert time.monotonic() - began >= 0.3


def test_of_many_who_wait_for_a_stopped_builder_one_builds(
    store: Store, key: str, tmp_path: Path, start_worker: StartWorker
) -> None:
    stopped = start_worker("hang_in_build", root=store.layout.root, key=key)
    assert stopped.stdout is not None
    assert stopped.stdout.readline() == "building\n"
    stopped.send_signal(signal.SIGSTOP)
    log = tmp_path / "builds"
    arguments = {"root": store.layout.root, "key": key, "log": log, "timeout": 4, "build_seconds": 0.2}
    waiting = [start_worker("build_when_told", **arguments) for _ in range(12)]
    for worker in waiting:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    answers = {worker.communicate(timeout=60)[0] for worker in waiting}
    assert answers == {f"ready\n{hashlib.sha256(b'x' * 100_000).hexdigest()}\n"}
    assert len(log.read_text().splitlines()) == 1


def test_a_wait_for_two_stopped_builders_lasts_twice_as_long_and_no_longer(
    store: Store, key: str, artifact: Artifact, caplog: pytest.LogCaptureFixture
) -> None:
    with held_by_another_thread(store.layout, key), held_by_another_thread(store.layout, key, 0.1):
        began = time.monotonic()
        assert load_or_build(store, key, lambda: artifact, timeout=0.5) == artifact
        assert 1.0 <= time.monotonic() - began < 10
    assert caplog.text.count(f"waited 0.5 s for the build of {key}") == 2


def test_without_patience_nobody_waits_for_the_second_lock_either(layout: Layout, key: str) -> None:
    with held_by_another_thread(layout, key), key_lock(layout, key, 0) as locked:
        assert not locked
    assert [path.name for path in layout.locks.iterdir()] == [f"{key}.lock"]


FORK_WHILE_LOCKED = """
import os, sys
from pathlib import Path
from jitnorm.cache import Store
from jitnorm.cache.lock import key_lock

layout, key = Store(Path(sys.argv[1])).layout, sys.argv[2]

def fork_and_try():
    "Whether another process gets the lock."
    child = os.fork()
    if child == 0:
        with key_lock(layout, key, 0) as locked:
            pass
        os._exit(locked)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

reading, writing = os.pipe()
with key_lock(layout, key, 0):
    living = os.fork()
    if living == 0:
        os.close(writing)
        os.read(reading, 1)
        os._exit(0)
    ended = os.fork()
    if ended == 0:
        sys.exit(0)  # out of the block, as if it had the lock
    os.waitpid(ended, 0)
    print(fork_and_try(), layout.holder(key).exists())
print(fork_and_try(), layout.holder(key).exists())
"""


def test_a_forked_child_neither_frees_nor_keeps_its_parents_lock(store: Store, key: str, tmp_path: Path) -> None:
    assert run_python(FORK_WHILE_LOCKED, str(store.layout.root), key, cwd=tmp_path) == "0 True\n1 False\n"


def test_a_lock_file_that_is_removed_while_it_is_being_locked_is_made_anew(
    layout: Layout, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock, removed = fcntl.flock, []

    def remove_then_lock(descriptor: int, operation: int) -> None:
        if not removed:
            removed.append(layout.lock(key).unlink())
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", remove_then_lock)
    with held_by_another_thread(layout, key), key_lock(layout, key, 0) as locked:
        assert removed
        assert not locked


@pytest.mark.parametrize(
    "note", [b"", b"{", b"\xff" * 300, b"[1]", b'{"pid": "x", "host": 1, "started": "y"}', b"[" * 300]
)
def test_a_note_that_makes_no_sense_is_tolerated(
    layout: Layout, key: str, note: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with held_by_another_thread(layout, key):
        layout.holder(key).write_bytes(note)
        with key_lock(layout, key, 0) as locked:
            assert not locked
    assert "by an unknown process" in caplog.text


def test_a_clock_set_back_during_a_build_does_not_matter(
    layout: Layout, key: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with held_by_another_thread(layout, key):
        monkeypatch.setattr(time, "time", lambda: 1.0)
        with key_lock(layout, key, 0.1) as locked:
            assert locked  # the second lock, as the first was waited for in vain
            assert layout.holder(key, second=True).exists()
    assert "which began 0 s ago" in caplog.text


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EIO], ids=errno.errorcode.get)
def test_a_file_system_without_locks_means_a_private_build(
    store: Store,
    key: str,
    artifact: Artifact,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with key_lock(store.layout, key, 5) as locked:
        assert not locked
    assert load_or_build(store, key, lambda: artifact) == artifact
    assert store.load(key) == artifact
    assert caplog.text.count("has no locks") == (0 if code == errno.EIO else 1)


def test_the_wait_is_120_seconds_unless_said_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    assert wait_bound(None) == 120
    monkeypatch.setenv("JITNORM_LOCK_TIMEOUT", "2.5")
    assert wait_bound(None) == 2.5
    assert wait_bound(0) == 0
    monkeypatch.setenv("JITNORM_LOCK_TIMEOUT", "")
    assert wait_bound(None) == 120


@pytest.mark.parametrize("text", ["-1", "inf", "nan", "soon", "1e9"])
def test_a_wait_without_a_sensible_bound_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JITNORM_LOCK_TIMEOUT", text)
    with pytest.raises(CacheError, match=rf"JITNORM_LOCK_TIMEOUT is '{text}'; allowed are 0 to 86400 seconds"):
        wait_bound(None)
    if text != "soon":
        with pytest.raises(ValueError, match=r"timeout is .*; allowed are 0 to 86400 seconds"):
            wait_bound(float(text))
