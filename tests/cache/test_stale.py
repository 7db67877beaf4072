"""Files that another NFS client has removed: processes that have them open cannot use them, and continue without."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jitnorm.cache import Artifact, Store
from jitnorm.cache.entry import read_entry
from jitnorm.cache.failures import failed_tiers
from jitnorm.cache.layout import Layout
from jitnorm.cache.ledger import Recount, add
from jitnorm.cache.lock import key_lock
from jitnorm.cache.uses import keys_in_use, note_use


@pytest.fixture(autouse=True)
def removed_files_are_stale(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make calls with the descriptor of a removed file fail as on NFS."""
    status = os.fstat

    def on_nfs(call: Callable[..., Any]) -> Callable[..., Any]:
        def fail_if_removed(descriptor: int, *rest: Any) -> Any:
            path = os.readlink(f"/proc/self/fd/{descriptor}")
            if status(descriptor).st_nlink == 0 and path.startswith(str(store.layout.root)):
                raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
            return call(descriptor, *rest)

        return fail_if_removed

    for name in ("fstat", "pread", "pwrite", "write"):
        monkeypatch.setattr(os, name, on_nfs(getattr(os, name)))


def measure(layout: Layout, space: int) -> None:
    with Recount(layout) as recount:
        recount.finish(space, is_exact=True)


def total(layout: Layout) -> int | None:
    found = add(layout, 0)
    return None if found is None else found.space


def test_a_measurement_gives_way_to_that_of_another_host(store: Store) -> None:
    measure(store.layout, 1000)
    with Recount(store.layout) as recount:
        measure(store.layout, 5000)
        recount.finish(7000, is_exact=True)
    assert total(store.layout) == 5000


def test_what_is_added_as_another_host_replaces_the_ledger_counts(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout, write, replaced = store.layout, os.write, []
    measure(layout, 1000)

    def replace_before_the_first(descriptor: int, data: bytes) -> int:
        if not replaced:
            replaced.append(True)
            measure(layout, 5000)
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", replace_before_the_first)
    found = add(layout, 100)
    assert replaced
    assert found is not None
    assert found.space == total(layout) == 5100


def test_a_lock_file_that_another_host_removes_while_it_is_being_locked_is_made_anew(
    store: Store, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock, removed = fcntl.flock, []

    def remove_before_the_first(descriptor: int, operation: int) -> None:
        if not removed:
            removed.append(store.layout.lock(key).unlink())
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", remove_before_the_first)
    with key_lock(store.layout, key, 5) as locked:
        assert removed
        assert locked
        assert store.layout.lock(key).exists()


def test_uses_are_noted_anew_once_another_host_has_deleted_the_cache(store: Store, key: str) -> None:
    note_use(store.layout, key)
    assert keys_in_use(store.layout) == {key}
    shutil.rmtree(store.layout.root)
    note_use(store.layout, key)
    assert keys_in_use(store.layout) == {key}


def test_an_entry_is_stored_although_another_host_removes_its_empty_shard(
    store: Store, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename, place, tries = Path.rename, store.layout.entry(key), []

    def find_the_shard_removed(path: Path, target: Path) -> Path:
        if target == place and not tries:
            tries.append(place.parent.rmdir())
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", find_the_shard_removed)
    store.publish(key, Artifact(b"code", {}))
    assert tries
    assert store.load(key) == Artifact(b"code", {})


def test_a_shard_that_another_host_removes_once_it_has_an_entry_is_no_error(
    store: Store, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync, shard, removed = os.fsync, store.layout.entry(key).parent, []

    def find_the_shard_removed(descriptor: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}") == str(shard):
            removed.append(shutil.rmtree(shard))
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", find_the_shard_removed)
    store.publish(key, Artifact(b"code", {}))
    assert removed
    assert store.load(key) is None


def test_an_entry_of_another_host_stays_although_its_private_name_has_been_seen_here(
    store: Store, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux then returns ESTALE on every rename to its place, without looking there."""
    place, rename = store.layout.entry(key), Path.rename
    store.publish(key, Artifact(b"first", {}))

    def be_stale(path: Path, target: Path) -> Path:
        if target == place:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", be_stale)
    store.publish(key, Artifact(b"second", {}))
    assert store.load(key) == Artifact(b"first", {})


@pytest.mark.parametrize("is_removed", [True, False])
def test_an_entry_that_another_host_removes_while_it_is_read_is_absent_and_no_failure_of_the_tier(
    store: Store, key: str, monkeypatch: pytest.MonkeyPatch, is_removed: bool
) -> None:
    store.publish(key, Artifact(b"code", {}))

    def be_stale(*arguments: Any) -> Artifact:
        assert read_entry(*arguments) == Artifact(b"code", {})
        if is_removed:
            shutil.rmtree(store.layout.entry(key))
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    monkeypatch.setattr("jitnorm.cache.store.read_entry", be_stale)
    assert store.load(key) is None
    assert (store.name in failed_tiers()) == (not is_removed)
