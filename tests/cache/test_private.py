from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from jitnorm.cache import Artifact, Store
from jitnorm.cache.private import private_folder, remove_stale
from jitnorm.cache.process import host_token

HOUR = 3600


@pytest.fixture(scope="module")
def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait(timeout=30)
    return process.pid


def make(parent: Path, name: str, *, age: float = 0.0) -> Path:
    folder = parent / name
    folder.mkdir(parents=True)
    (folder / "payload").write_bytes(b"half an ent")
    os.utime(folder, (time.time() - age,) * 2)
    return folder


def test_a_private_folder_names_its_writer_and_goes_with_it(tmp_path: Path) -> None:
    with private_folder(tmp_path) as folder:
        assert folder.name.startswith(f"{host_token()}.{os.getpid()}.")
        (folder / "payload").touch()
    assert list(tmp_path.iterdir()) == []


def test_the_folder_of_a_dead_process_is_removed_however_the_clock_stands(tmp_path: Path, dead_pid: int) -> None:
    make(tmp_path, f"{host_token()}.{dead_pid}.aa", age=-10 * HOUR)
    remove_stale(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_an_old_folder_of_anyone_is_removed(tmp_path: Path) -> None:
    make(tmp_path, "elsewhere.1.aa", age=1.1 * HOUR)
    make(tmp_path, f"{host_token()}.{os.getpid()}.aa", age=1.1 * HOUR)
    make(tmp_path, "unknown", age=1.1 * HOUR)
    remove_stale(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_fresh_folder_of_a_process_that_may_live_is_kept(tmp_path: Path, dead_pid: int) -> None:
    kept = {
        make(tmp_path, f"{host_token()}.{os.getpid()}.aa", age=0.9 * HOUR),
        make(tmp_path, f"elsewhere.{dead_pid}.aa", age=0.9 * HOUR),
        make(tmp_path, f"{host_token()}.notanumber.aa"),
        make(tmp_path, "unknown"),
    }
    remove_stale(tmp_path)
    assert set(tmp_path.iterdir()) == kept


def test_publishing_removes_what_the_dead_left(store: Store, key: str, artifact: Artifact, dead_pid: int) -> None:
    make(store.layout.private, f"{host_token()}.{dead_pid}.aa")
    store.publish(key, artifact)
    assert list(store.layout.private.iterdir()) == []


def test_a_writer_overtaken_by_a_removal_fails_as_a_whole(
    store: Store, key: str, artifact: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process considers the folder stale, and has removed half of it when the writer publishes."""
    rename = Path.rename

    def late_rename(folder: Path, target: Path) -> Path:
        os.utime(folder, (0, 0))
        with monkeypatch.context() as patched:
            patched.setattr(Path, "rename", rename)
            patched.setattr("jitnorm.cache.private.remove_tree", lambda doomed: (doomed / "payload").unlink())
            remove_stale(store.layout.private)
        return rename(folder, target)

    monkeypatch.setattr(Path, "rename", late_rename)
    with pytest.raises(FileNotFoundError):
        store.publish(key, artifact)
    assert not store.layout.entry(key).exists()
