from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import stat
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from jitnorm.cache import Artifact, CacheError, Store, load_or_build, make_key
from jitnorm.cache.events import subscribe
from jitnorm.cache.layout import Layout
from jitnorm.cache.lock import key_lock, wait_bound

StartWorker = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def layout(store: Store) -> Layout:
    return store.layout


@contextlib.contextmanager
def held_by_another_thread(layout: Layout, key: str) -> Iterator[None]:
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with key_lock(layout, key, 5):
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
            assert not locked
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
