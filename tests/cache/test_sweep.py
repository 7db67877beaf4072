"""Sweeping removes what belongs to no entry and no process, and nothing else."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jitnorm.cache import Artifact, Store, aliases, flock, make_key
from jitnorm.cache import sweep as sweeping
from jitnorm.cache.aliases import add_to_alias
from jitnorm.cache.flock import locked_alone, locked_open, remove_unlocked
from jitnorm.cache.layout import Layout
from jitnorm.cache.lock import key_lock
from jitnorm.cache.space import prune
from jitnorm.cache.sweep import lock_names, sweep_alias, sweep_lock
from jitnorm.cache.uses import keys_in_use, release_uses

StartWorker = Callable[..., "subprocess.Popen[str]"]
SOURCE = make_key({"source": "one"})
GOOD, GONE, OTHER = (make_key({"key": name}) for name in ("good", "gone", "other"))
ARTIFACT = Artifact(b"code", {"source_key": SOURCE})


def sweep(store: Store) -> None:
    prune(store, 1 << 40)


def test_aliases_that_lead_nowhere_go_with_their_folders(store: Store) -> None:
    alias = store.layout.alias(SOURCE)
    alias.parent.mkdir(parents=True)
    alias.write_text(f"{GONE}\n")
    sweep(store)
    assert not alias.exists()


def test_an_alias_keeps_the_keys_of_entries_that_are_there(store: Store) -> None:
    store.publish(GOOD, ARTIFACT)
    with store.layout.alias(SOURCE).open("a") as alias:
        alias.write(f"\n{GONE}\n")
    sweep(store)
    assert store.keys_of(SOURCE) == (GOOD,)


def test_what_is_evicted_leaves_no_alias_and_no_lock(store: Store) -> None:
    with key_lock(store.layout, GOOD, 1):
        store.publish(GOOD, ARTIFACT)
    release_uses(store.layout)
    prune(store, 0)
    assert [path for path in store.layout.root.rglob("*") if path.name.startswith((SOURCE, GOOD))] == []


def test_an_alias_that_cannot_be_read_is_left_alone(store: Store, tmp_path: Path) -> None:
    alias = store.layout.alias(SOURCE)
    alias.parent.mkdir(parents=True)
    alias.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").write_text(f"{GONE}\n")
    assert sweep_alias(store.layout, alias, lambda _: False) == 0
    assert alias.is_symlink()
    assert (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("moment", ["before the alias goes", "after it has gone"])
def test_an_entry_published_while_its_alias_is_swept_keeps_it(
    store: Store, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """An alias is written before its entry, and seems to lead nowhere until the entry exists."""
    alias = store.layout.alias(SOURCE)
    alias.parent.mkdir(parents=True)
    alias.write_text(f"{GOOD}\n")
    unlink = Path.unlink

    def publish_too(path: Path, missing_ok: bool = False) -> None:
        if path == alias and moment == "before the alias goes":
            store.publish(GOOD, ARTIFACT)
        unlink(path, missing_ok)
        if path == alias and moment == "after it has gone":
            store.publish(GOOD, ARTIFACT)

    monkeypatch.setattr(Path, "unlink", publish_too)
    sweep_alias(store.layout, alias, lambda _: False)
    assert store.keys_of(SOURCE) == (GOOD,)


@pytest.mark.parametrize("others", [(), (GONE,)], ids=["empty", "of another key"])
def test_an_alias_swept_between_its_opening_and_its_new_line_is_written_again(
    store: Store, monkeypatch: pytest.MonkeyPatch, others: tuple[str, ...]
) -> None:
    """The line went to a file that is no longer there, after the sweep looked into it for the last time."""
    store.publish(GOOD, Artifact(b"code", {}))
    alias = store.layout.alias(SOURCE)
    alias.parent.mkdir(parents=True)
    if others:
        alias.write_text("".join(f"{key}\n" for key in others))
    opened = aliases._open_to_append
    sweeps = iter([lambda: sweep_alias(store.layout, alias, lambda _: False)])

    def open_and_sweep(path: Path) -> int:
        descriptor = opened(path)
        next(sweeps, lambda: 0)()
        return descriptor

    monkeypatch.setattr(aliases, "_open_to_append", open_and_sweep)
    add_to_alias(alias, GOOD)
    assert store.keys_of(SOURCE) == (GOOD,)


@pytest.mark.parametrize("others", [(), (OTHER,)], ids=["empty", "of another key"])
def test_an_alias_written_again_between_two_sweeps_stays(
    store: Store, monkeypatch: pytest.MonkeyPatch, others: tuple[str, ...]
) -> None:
    """Two sweeps have read a dangling alias; one ends, an entry is published, and only then the other goes on."""
    for key in others:
        store.publish(key, ARTIFACT)
    alias = store.layout.alias(SOURCE)
    alias.parent.mkdir(parents=True, exist_ok=True)
    alias.write_text("".join(f"{key}\n" for key in (*others, GONE)))
    replace = sweeping._replace
    monkeypatch.setattr(sweeping, "_TRIES", 1)

    def sweep_and_publish_first(layout: Layout, path: Path, keys: tuple[str, ...]) -> None:
        monkeypatch.setattr(sweeping, "_replace", replace)
        sweep_alias(layout, path, lambda key: key in others)
        store.publish(GOOD, ARTIFACT)
        replace(layout, path, keys)

    monkeypatch.setattr(sweeping, "_replace", sweep_and_publish_first)
    sweep_alias(store.layout, alias, lambda key: key in others)
    assert set(store.keys_of(SOURCE)) == {GOOD, *others}


def test_a_sweep_waits_for_another_of_the_same_alias(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    alias = store.layout.alias(SOURCE)
    alias.parent.mkdir(parents=True)
    alias.write_text(f"{GONE}\n")
    with alias.open("r+") as held, locked_open(held.fileno()) as alone:
        assert alone
        second = threading.Thread(target=sweep_alias, args=(store.layout, alias, lambda _: False))
        second.start()
        time.sleep(0.1)
        assert alias.exists()
    second.join(timeout=10)
    assert not alias.exists()


def leads_to(store: Store, source: str, key: str) -> bool:
    """Whether a source leads to a key, perhaps after the moment in which a sweep restores an alias that it removed."""
    deadline = time.monotonic() + 5
    while store.keys_of(source) != (key,):
        if time.monotonic() > deadline:
            return False
        time.sleep(1e-3)
    return True


def test_publishing_and_sweeping_at_once_leave_every_entry_its_alias(
    store: Store, rounds: Callable[[int], int]
) -> None:
    is_over = threading.Event()

    def keep_sweeping() -> None:
        while not is_over.is_set():
            sweep(store)

    sweeper = threading.Thread(target=keep_sweeping)
    sweeper.start()
    try:
        for number in range(rounds(40)):
            source = make_key({"source": str(number)})
            key = make_key({"number": str(number)})
            store.publish(key, Artifact(b"code", {"source_key": source}))
            assert leads_to(store, source, key)
    finally:
        is_over.set()
        sweeper.join(timeout=30)
    for number in range(rounds(40)):
        assert store.keys_of(make_key({"source": str(number)})) == (make_key({"number": str(number)}),)


# Locks.


def test_locks_that_nobody_holds_go_with_the_notes_of_killed_holders(store: Store) -> None:
    with key_lock(store.layout, GOOD, 1):
        pass
    store.layout.holder(GONE).write_text("killed")
    with key_lock(store.layout, SOURCE, 1) as held:
        assert held
        sweep(store)
        assert list(lock_names(store.layout)) == [f"{SOURCE}.lock"], "the one that is held"
        assert store.layout.holder(SOURCE).exists()
    with key_lock(store.layout, GOOD, 1) as held:
        assert held, "it is made again when it is needed"


def test_a_lock_held_by_a_process_stays(store: Store, start_worker: StartWorker) -> None:
    builder = start_worker("hang_in_build", root=store.layout.root, key=GOOD)
    assert builder.stdout is not None
    assert builder.stdout.readline() == "building\n"
    assert not sweep_lock(store.layout, GOOD)
    builder.kill()
    builder.wait(timeout=10)
    assert sweep_lock(store.layout, GOOD)
    assert not lock_names(store.layout)


def test_pruning_removes_the_lock_of_revocation_lists_unless_it_is_held(store: Store) -> None:
    path = store.layout.revocations_lock
    path.parent.mkdir(parents=True)
    with locked_alone(path) as alone:
        assert alone
        sweep(store)
        assert path.exists()
    sweep(store)
    assert not path.exists()


def test_a_lock_file_put_in_the_place_of_the_locked_one_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a race of two sweepers and a builder, the lock belongs to a file that no longer exists."""
    path = tmp_path / "lock"
    path.touch()
    lstat = os.lstat

    def replace_first(name: Path, **options: Any) -> os.stat_result:
        path.unlink()
        path.touch()
        return lstat(name, **options)

    with monkeypatch.context() as patched:
        patched.setattr(os, "lstat", replace_first)
        open_before = path.open()  # its inode is not given to the new file
        assert not remove_unlocked(path, tmp_path / "note")
        open_before.close()
    assert path.exists()


def test_a_lock_file_that_another_sweeper_and_a_builder_replaced_before_it_was_locked_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lock"
    path.touch()
    locked = flock.try_lock

    def replace_first(descriptor: int) -> bool | None:
        path.unlink()
        path.touch()
        return locked(descriptor)

    monkeypatch.setattr(flock, "try_lock", replace_first)
    assert not remove_unlocked(path, None)
    assert path.exists()


def test_no_two_processes_hold_a_lock_at_once_while_locks_are_swept(
    store: Store, tmp_path: Path, start_worker: StartWorker, rounds: Callable[[int], int]
) -> None:
    """Each holder creates a mark, which fails if another holder's mark exists."""
    store.layout.locks.mkdir(parents=True)
    sweeper = start_worker("sweep_locks", root=store.layout.root, key=GOOD, until=tmp_path / "over")
    assert sweeper.stdout is not None
    assert sweeper.stdout.readline() == "sweeping\n"
    arguments = {"root": store.layout.root, "key": GOOD, "marks": tmp_path, "count": rounds(100)}
    holders = [start_worker("hold_locks", **arguments) for _ in range(3)]
    assert [holder.communicate(timeout=60)[0] for holder in holders] == ["alone\n"] * 3
    (tmp_path / "over").touch()
    assert int(sweeper.communicate(timeout=30)[0]) > 0, "some were swept"


def test_a_child_forked_while_the_lock_of_pruning_is_held_does_not_hold_it(store: Store) -> None:
    store.publish(GOOD, ARTIFACT)
    prune(store, 1 << 40)  # makes the folder of locks
    store.layout.locks.mkdir(exist_ok=True)
    read_end, write_end = os.pipe()
    with locked_alone(store.layout.prune_lock) as alone:
        assert alone
        child = os.fork()
        if child == 0:
            os.close(write_end)
            os.read(read_end, 1)  # lives until its parent has looked
            os._exit(0)
    try:
        with locked_alone(store.layout.prune_lock) as alone:
            assert alone
    finally:
        os.close(write_end)
        os.waitpid(child, 0)
        os.close(read_end)
    assert keys_in_use(store.layout) == {GOOD}
