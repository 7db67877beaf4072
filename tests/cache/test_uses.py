from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from jitnorm.cache import Artifact, Store, make_key, uses
from jitnorm.cache.layout import Layout
from jitnorm.cache.process import host_token
from jitnorm.cache.uses import keys_in_use, note_use, release_uses

StartWorker = Callable[..., "subprocess.Popen[str]"]
OTHER = make_key({"test": "another kernel"})
DAY = 86400
TOKEN = "0123456789abcdef"


@pytest.fixture
def layout(store: Store) -> Iterator[Layout]:
    yield store.layout
    release_uses(store.layout)


@pytest.fixture(scope="module")
def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait(timeout=30)
    return process.pid


def leave_file(layout: Layout, host: str, pid: object, key: str, *, locked: bool = True, age: float = 0.0) -> Path:
    """Leave a file behind, like a process that no longer holds its lock."""
    layout.uses.mkdir(parents=True, exist_ok=True)
    path = layout.uses / f"{host}.{os.urandom(4).hex()}"
    path.write_text(f"{TOKEN} {'locked' if locked else 'unlocked'} {pid}".ljust(63) + f"\n{TOKEN} {key}\n")
    os.utime(path, (time.time() - age,) * 2)
    return path


def test_what_this_process_loaded_and_published_is_in_use(store: Store, layout: Layout, artifact: Artifact) -> None:
    store.publish(OTHER, artifact)
    assert keys_in_use(layout) == {OTHER}
    release_uses(layout)
    assert keys_in_use(layout) == set()
    store.load(OTHER)
    assert keys_in_use(layout) == {OTHER}


def test_a_key_is_written_once(layout: Layout, key: str) -> None:
    for _ in range(5):
        note_use(layout, key)
    (path,) = layout.uses.iterdir()
    assert path.name.startswith(f"{host_token()}.")
    header, line = path.read_text().splitlines()
    token, locked, pid = header.split()
    assert (locked, pid) == ("locked", str(os.getpid()))
    assert line == f"{token} {key}"


def test_the_uses_of_another_process_count_while_it_lives(
    store: Store, key: str, artifact: Artifact, start_worker: StartWorker
) -> None:
    store.publish(key, artifact)
    release_uses(store.layout)
    worker = start_worker("load_and_stay", root=store.layout.root, key=key)
    assert worker.stdout is not None
    assert worker.stdout.readline() == "loaded\n"
    assert keys_in_use(store.layout) == {key}
    worker.kill()
    worker.wait(timeout=10)
    assert keys_in_use(store.layout) == set()
    assert list(store.layout.uses.iterdir()) == []


def test_the_file_of_a_dead_process_is_taken_over_without_its_keys(layout: Layout, key: str) -> None:
    for other in (OTHER, make_key({})):
        note_use(layout, other)
    (path,) = layout.uses.iterdir()
    release_uses(layout)
    note_use(layout, key)
    assert list(layout.uses.iterdir()) == [path]
    assert keys_in_use(layout) == {key}
    for number in range(3):
        note_use(layout, make_key({"n": str(number)}))
    assert keys_in_use(layout) == {key, *(make_key({"n": str(number)}) for number in range(3))}


def test_loads_remove_the_files_of_dead_hosts_once_an_hour(store: Store, layout: Layout, artifact: Artifact) -> None:
    store.publish(OTHER, artifact)
    path = leave_file(layout, "elsewhere-1", 1, OTHER, age=1.1 * DAY)
    store.load(OTHER)
    assert path.exists()
    os.utime(store.layout.entry(OTHER), (0, 0))
    store.load(OTHER)
    assert not path.exists()


def test_a_forked_child_keeps_what_its_parent_loaded_in_use_after_that_is_gone(
    store: Store, key: str, start_worker: StartWorker
) -> None:
    worker = start_worker("fork_after_load", root=store.layout.root, key=key, other=OTHER)
    assert worker.stdout is not None
    lines = {worker.stdout.readline(), worker.stdout.readline()}
    assert "child done\n" in lines
    worker.wait(timeout=10)  # the child waits for a line
    assert keys_in_use(store.layout) == {key, OTHER}
    assert worker.stdin is not None
    worker.stdin.close()
    worker.stdin = None
    assert worker.stdout.read() == ""  # at the end of the child
    assert keys_in_use(store.layout) == set()


def test_the_file_of_a_dead_process_is_removed_but_by_no_dry_run(layout: Layout, key: str, dead_pid: int) -> None:
    path = leave_file(layout, host_token(), dead_pid, key)
    assert keys_in_use(layout, dry_run=True) == set()
    assert path.exists()
    assert keys_in_use(layout) == set()
    assert not path.exists()


def test_a_file_that_took_the_place_of_a_dead_process_s_while_that_was_read_stays(
    layout: Layout, key: str, dead_pid: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two pruners have the dead file open; one removes it, and a living process creates its own there."""
    path = leave_file(layout, host_token(), dead_pid, OTHER)
    locked = uses.try_lock

    def replace_first(descriptor: int) -> bool | None:
        monkeypatch.setattr(uses, "try_lock", locked)
        assert keys_in_use(layout) == set()
        monkeypatch.setattr(uses, "_open_file", lambda _: (uses._open_or_create(layout, str(path)), True))
        note_use(layout, key)
        return locked(descriptor)

    monkeypatch.setattr(uses, "try_lock", replace_first)
    keys_in_use(layout)
    assert key in path.read_text()


def test_a_process_id_that_another_process_got_does_not_keep_a_file(layout: Layout, key: str) -> None:
    leave_file(layout, host_token(), os.getppid(), key, locked=True)
    assert keys_in_use(layout) == set()


def test_without_a_lock_a_process_that_lives_counts_for_a_day(layout: Layout, key: str) -> None:
    leave_file(layout, host_token(), os.getppid(), key, locked=False, age=0.9 * DAY)
    leave_file(layout, host_token(), os.getppid(), OTHER, locked=False, age=1.1 * DAY)
    assert keys_in_use(layout) == {key}


@pytest.mark.parametrize("sign", [1, -1], ids=["past", "future"])
def test_the_file_of_another_host_counts_for_a_day(layout: Layout, key: str, dead_pid: int, sign: int) -> None:
    leave_file(layout, "elsewhere-1", dead_pid, key, age=sign * 0.9 * DAY)
    leave_file(layout, "elsewhere-2", dead_pid, OTHER, age=sign * 1.1 * DAY)
    assert keys_in_use(layout) == {key}
    assert len(list(layout.uses.iterdir())) == 1


def test_a_file_system_without_locks_keeps_what_living_processes_use(
    layout: Layout, key: str, dead_pid: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    note_use(layout, key)
    leave_file(layout, host_token(), dead_pid, OTHER, locked=False)
    assert keys_in_use(layout) == {key}


def test_what_makes_no_sense_is_tolerated(layout: Layout, key: str) -> None:
    layout.uses.mkdir(parents=True)
    token, junk = TOKEN.encode(), b"\xff\x00" * 100
    (layout.uses / "unknown").write_bytes(b"%b\n%b\n%b %b\n%b half" % (token, junk, token, key.encode(), token))
    (layout.uses / "empty").touch()
    (layout.uses / "a folder").mkdir()
    (layout.uses / "a link").symlink_to("/etc/hostname")
    os.mkfifo(layout.uses / "a pipe")
    assert keys_in_use(layout) == {key}


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path, key: str) -> None:
    (tmp_path / "v1").touch()
    note_use(Layout(tmp_path), key)
    assert keys_in_use(Layout(tmp_path / "missing")) == set()


def test_threads_of_a_process_share_one_file(layout: Layout) -> None:
    keys = [make_key({"n": str(n)}) for n in range(16)]
    start = threading.Barrier(16)

    def use(key: str) -> None:
        start.wait(timeout=10)
        note_use(layout, key)

    threads = [threading.Thread(target=use, args=(key,)) for key in keys]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=10)
    assert keys_in_use(layout) == set(keys)
    assert len(list(layout.uses.iterdir())) == 1
