from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from jitnorm.cache import Artifact, CacheUnusableError, Store, load_or_build, make_key
from jitnorm.cache.events import subscribe
from jitnorm.cache.files import make_folder
from jitnorm.cache.flock import locked_alone
from jitnorm.cache.measure import survey
from jitnorm.cache.space import clear, prune, usage
from jitnorm.cache.uses import keys_in_use, release_uses

StartWorker = Callable[..., "subprocess.Popen[str]"]
HOUR, DAY = 3600, 86400
ARTIFACT = Artifact(b"x" * 10_000, {"target": "cpu"})
KEYS = [make_key({"n": str(n)}) for n in range(5)]


def set_used(store: Store, key: str, age: float) -> None:
    os.utime(store.layout.entry(key), (time.time() - age,) * 2)


def keys_of(store: Store) -> list[str]:
    return [entry.key for entry in store.entries()]


@pytest.fixture
def filled(store: Store) -> Store:
    """Five entries that no process uses any more, the first one least recently used."""
    for number, key in enumerate(KEYS):
        store.publish(key, ARTIFACT)
        set_used(store, key, (10 - number) * HOUR)
    forget_uses(store)
    return store


@pytest.fixture
def size(filled: Store) -> int:
    """The disk space of one entry and of a shard with nothing else in it."""
    assert len(filled.layout.shards()) == len(KEYS)
    return disk_space(filled.layout.entry(KEYS[0]).parent)


@pytest.fixture
def base(filled: Store, size: int) -> int:
    """The disk space of everything else, which stays."""
    return disk_space(filled.layout.root) - len(KEYS) * size


def disk_space(folder: Path) -> int:
    """The disk space that `du` would report; files may vanish meanwhile."""
    space = 0
    for path in (folder, *folder.rglob("*")):
        with contextlib.suppress(FileNotFoundError):
            space += path.lstat().st_blocks * 512
    return space


def forget_uses(store: Store) -> None:
    """Release all uses, as if the publishing processes had ended."""
    release_uses(store.layout)
    keys_in_use(store.layout)


def quarantine(store: Store, name: str, *, age: float) -> Path:
    folder = store.layout.quarantine / name
    folder.mkdir(parents=True)
    (folder / "payload").write_bytes(b"y" * 1000)
    os.utime(folder, (time.time() - age,) * 2)
    return folder


# Measuring.


def test_usage_counts_the_disk_space_of_everything(filled: Store) -> None:
    damaged = quarantine(filled, "damaged", age=0)
    written = filled.layout.private / "unknown.1.aa"
    written.mkdir()
    (written / "payload").write_bytes(b"z" * 77)
    filled.publish(make_key({}), Artifact(b"signed", {"source_key": make_key({"of": "a source"})}), b"a signature")
    (filled.layout.version / "toolchains").mkdir()
    (filled.layout.version / "toolchains" / "memo.txt").write_text("a compiler")
    filled.layout.misses.write_text("{}\n")
    filled.layout.locks.mkdir()
    filled.layout.holder(KEYS[0]).write_text("a process that was killed")
    found = usage(filled)
    assert (found.entries, found.entries_in_use, found.payload_bytes) == (6, 1, 5 * 10_000 + 6)
    assert found.entry_bytes == sum(disk_space(place) for _, place in filled.layout.entries())
    assert (found.quarantine_bytes, found.private_bytes) == (disk_space(damaged), disk_space(written))
    assert found.total_bytes == disk_space(filled.layout.root)


def test_an_empty_cache_takes_nothing(store: Store) -> None:
    assert usage(store).total_bytes == 0
    assert not store.layout.root.exists()


# The record of uses.


def test_a_load_records_the_use_to_the_hour(filled: Store) -> None:
    def age(key: str) -> float:
        return time.time() - filled.layout.entry(key).stat().st_mtime

    set_used(filled, KEYS[1], 0.5 * HOUR)
    for key in KEYS[:2]:
        filled.load(key)
    assert age(KEYS[0]) < 60
    assert age(KEYS[1]) == pytest.approx(0.5 * HOUR, abs=60)  # recent enough: nothing was written


def test_a_read_only_store_records_nothing(filled: Store) -> None:
    before = {path: path.stat().st_mtime_ns for path in filled.layout.root.rglob("*")}
    store = Store(filled.layout.root, writable=False)
    assert all(store.load(key) == ARTIFACT for key in KEYS)
    assert {path: path.stat().st_mtime_ns for path in filled.layout.root.rglob("*")} == before


# Pruning.


def test_what_was_used_longest_ago_goes_first(filled: Store, size: int, base: int) -> None:
    filled.load(KEYS[0])
    forget_uses(filled)
    report = prune(filled, base + 3 * size)
    assert report.evicted == (KEYS[1], KEYS[2])
    assert (report.bytes_before, report.bytes_after, report.complete) == (base + 5 * size, base + 3 * size, True)
    assert keys_of(filled) == sorted([KEYS[0], KEYS[3], KEYS[4]])
    assert usage(filled).total_bytes == disk_space(filled.layout.root) == base + 3 * size


def test_a_cache_within_its_limit_is_left_alone(filled: Store, size: int, base: int) -> None:
    assert prune(filled, base + 5 * size).evicted == ()
    assert len(keys_of(filled)) == 5


def test_an_estimate_takes_for_more_only_what_lies_in_shards(filled: Store) -> None:
    whole = survey(filled.layout)
    (filled.layout.version / "misses.jsonl").write_bytes(b"m" * (1 << 20))
    part = survey(filled.layout, lambda: True)
    assert part.share == 1 / len(KEYS)
    assert part.space == pytest.approx(whole.space + (1 << 20), abs=64 << 10)


def test_usage_is_estimated_when_the_time_is_over(filled: Store) -> None:
    whole, part = usage(filled), usage(filled, seconds=0)
    assert (whole.is_estimate, part.is_estimate) == (False, True)
    assert (part.entries, part.payload_bytes) == (whole.entries, whole.payload_bytes), "a shard is like any other"
    assert part.total_bytes == pytest.approx(whole.total_bytes, abs=64 << 10)


@pytest.mark.parametrize("without", ["neither", "index", "manifest"])
def test_what_goes_last_goes_after_all_others(filled: Store, size: int, base: int, without: str) -> None:
    launcher = make_key({"kind": "launcher"})
    filled.publish(launcher, Artifact(ARTIFACT.payload, {"evict_last": True}))
    if without == "index":
        filled.layout.index.write_bytes(b"")
    if without == "manifest":
        (filled.layout.entry(launcher) / "manifest.json").write_bytes(b"")
    set_used(filled, launcher, 100 * HOUR)
    forget_uses(filled)
    assert prune(filled, base + 2 * size).evicted == tuple(KEYS[:4])
    assert prune(filled, 0).evicted == (KEYS[4], launcher)


def test_the_quarantine_goes_before_entries_its_oldest_first(filled: Store) -> None:
    kept = quarantine(filled, "new", age=1 * HOUR)
    old = quarantine(filled, "old", age=9 * HOUR)
    report = prune(filled, disk_space(filled.layout.root) - disk_space(old))
    assert (report.evicted, report.quarantine_removed) == ((), 1)
    assert list(filled.layout.quarantine.iterdir()) == [kept]


def test_what_is_in_quarantine_for_30_days_goes_at_any_size(filled: Store) -> None:
    kept = quarantine(filled, "young", age=29 * DAY)
    quarantine(filled, "old", age=31 * DAY)
    prune(filled, 1 << 40)
    assert list(filled.layout.quarantine.iterdir()) == [kept]


def test_a_dry_run_says_what_would_go_and_removes_nothing(filled: Store, size: int, base: int) -> None:
    before = sorted(filled.layout.root.rglob("*"))
    dry = prune(filled, base + 2 * size, dry_run=True)
    assert sorted(filled.layout.root.rglob("*")) == before
    assert prune(filled, base + 2 * size) == dry


def test_pruning_ends_when_its_time_is_over(filled: Store) -> None:
    report = prune(filled, 0, seconds=0)
    assert not report.complete
    assert len(keys_of(filled)) == 5


def test_a_time_in_the_future_is_no_protection(filled: Store, size: int, base: int) -> None:
    for key in KEYS:
        set_used(filled, key, -400 * DAY)
    assert len(prune(filled, base + 2 * size).evicted) == 3


def test_damaged_entries_and_stray_files_are_removed_like_others(filled: Store) -> None:
    (filled.layout.entry(KEYS[0]) / "manifest.json").write_bytes(b"{")
    stray = filled.layout.entry(make_key({}))
    stray.parent.mkdir(exist_ok=True)
    stray.write_bytes(b"not a folder")
    prune(filled, 0)
    assert usage(filled).entry_bytes == 0
    assert not stray.exists()


def test_evictions_are_events(filled: Store, size: int, base: int) -> None:
    space = disk_space(filled.layout.entry(KEYS[0]))
    heard: list[tuple[str, Mapping[str, Any]]] = []
    unsubscribe = subscribe(lambda kind, fields: heard.append((kind, fields)))
    prune(filled, base + 4 * size)
    unsubscribe()
    ((kind, fields),) = heard
    assert (kind, fields["key"], fields["bytes"]) == ("evict", KEYS[0], space)


def test_a_negative_limit_and_a_read_only_store_are_refused(filled: Store) -> None:
    with pytest.raises(ValueError, match="max_bytes is -1"):
        prune(filled, -1)
    store = Store(filled.layout.root, writable=False)
    for remove in (lambda: prune(store, 0), lambda: clear(store)):
        with pytest.raises(CacheUnusableError, match="cannot be written"):
            remove()
    assert len(prune(store, 0, dry_run=True).evicted) == 5


def test_an_entry_that_cannot_be_removed_stays_whole(
    filled: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError("no")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", refuse)
        assert prune(filled, 0).evicted == ()
    assert all(filled.load(key) == ARTIFACT for key in KEYS)
    assert caplog.text.count("cannot remove") == 1


# Several processes.


def test_what_a_living_process_has_loaded_is_spared(filled: Store, size: int, start_worker: StartWorker) -> None:
    worker = start_worker("load_and_stay", root=filled.layout.root, key=KEYS[0])
    assert worker.stdout is not None
    assert worker.stdout.readline() == "loaded\n"
    set_used(filled, KEYS[0], 100 * HOUR)
    report = prune(filled, 0)
    assert (report.evicted, report.spared) == (tuple(KEYS[1:]), 1)
    assert clear(filled).evicted == ()
    worker.kill()
    worker.wait(timeout=10)
    assert prune(filled, 0).evicted == (KEYS[0],)


def test_one_process_prunes_at_a_time_and_the_other_does_not_wait(filled: Store) -> None:
    make_folder(filled.layout.locks)
    with locked_alone(filled.layout.prune_lock) as alone:
        assert alone
        began = time.monotonic()
        assert not prune(filled, 0).complete
        assert time.monotonic() - began < 1
    assert len(keys_of(filled)) == 5


def test_two_pruners_at_once_remove_no_more_than_one(
    filled: Store, size: int, base: int, start_worker: StartWorker
) -> None:
    bound = base + 2 * size
    workers = [start_worker("prune_when_told", root=filled.layout.root, max_bytes=bound) for _ in range(2)]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    evicted = [key for worker in workers for key in worker.communicate("go\n", timeout=30)[0].split()]
    assert sorted(evicted) == sorted(KEYS[:3])
    assert keys_of(filled) == sorted(KEYS[3:])


def test_readers_of_a_cache_that_is_pruned_see_entries_whole_or_not_at_all(filled: Store) -> None:
    done = threading.Event()
    seen: list[Artifact | None] = []

    def read() -> None:
        while not done.is_set():
            seen.append(filled.load(KEYS[0]))

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for _ in range(30):
        clear(filled, force=True)
        # Loaded and published anew between the two, it may be there already.
        filled.publish(KEYS[0], ARTIFACT)
    done.set()
    for reader in readers:
        reader.join(timeout=10)
    assert any(found == ARTIFACT for found in seen)
    assert all(found in (None, ARTIFACT) for found in seen)
    assert not list(filled.layout.quarantine.glob("*"))


def test_builders_and_pruners_at_once_harm_nobody(
    filled: Store, start_worker: StartWorker, rounds: Callable[[int], int]
) -> None:
    done = threading.Event()

    def keep_pruning() -> None:
        while not done.is_set():
            clear(filled, force=True)

    pruner = threading.Thread(target=keep_pruning)
    pruner.start()
    with contextlib.ExitStack() as end:
        end.callback(pruner.join, 10)
        end.callback(done.set)
        for number in range(rounds(40)):
            assert load_or_build(filled, KEYS[number % 5], lambda: ARTIFACT, timeout=10) == ARTIFACT
    assert not list(filled.layout.quarantine.glob("*"))


# Clearing.


def test_clear_removes_entries_and_quarantine_but_what_is_in_use_only_by_force(filled: Store) -> None:
    quarantine(filled, "new", age=0)
    filled.load(KEYS[2])
    dry = clear(filled, dry_run=True)
    assert len(keys_of(filled)) == 5
    report = clear(filled)
    assert report == dry
    assert (len(report.evicted), report.spared, report.quarantine_removed) == (4, 1, 1)
    assert keys_of(filled) == [KEYS[2]]
    assert clear(filled, force=True).evicted == (KEYS[2],)
    assert usage(filled).entry_bytes == 0
