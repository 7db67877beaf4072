"""The budget: publishing makes room before it writes, and never waits for upkeep."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from jitnorm.cache import Artifact, Store, load_or_build, make_key
from jitnorm.cache.files import space_of
from jitnorm.cache.ledger import add
from jitnorm.cache.space import usage
from jitnorm.cache.upkeep import upkeep
from jitnorm.cache.uses import keys_in_use, release_uses

HOUR = 3600
ARTIFACT = Artifact(b"x" * 10_000, {"target": "cpu"})
ENTRY = 5 * 4096  # a folder, 10,000 bytes and a manifest, in blocks
SHARD = 4096
MakeStore = Callable[[int], Store]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk: in memory, where scripts/test has temporary files, folders take no space."""
    if space_of(tmp_path):
        yield tmp_path
    else:
        with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
            yield Path(folder)


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory, where folders take no space."""
    if not space_of(tmp_path):
        yield tmp_path
    else:
        with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
            if space_of(folder):
                pytest.skip("/dev/shm is not in memory")
            yield Path(folder)


@pytest.fixture
def with_budget(disk: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeStore]:
    """A cache with a budget for that many entries; upkeep does not start by itself."""
    monkeypatch.setattr(upkeep, "start", lambda store: None)

    def make(entries: int) -> Store:
        # root, version, tmp, uses, locks, a file of uses; the ledger and the index, with lines of what is gone
        folders = 6 * 4096 + 40 * 1024
        monkeypatch.setenv("JITNORM_CACHE_MAX_BYTES", str(folders + entries * (ENTRY + SHARD)))
        return Store(disk / "cache")

    return make


def publish(store: Store, number: int, artifact: Artifact = ARTIFACT) -> str:
    """Publish an entry that nobody uses; higher numbers were used more recently."""
    key = make_key({"number": str(number)})
    store.publish(key, artifact)
    moment = time.time() - (1000 - number) * HOUR
    os.utime(store.layout.entry(key), (moment, moment))
    release_uses(store.layout)
    keys_in_use(store.layout)
    return key


def keys_of(store: Store) -> set[str]:
    return {key for key, _ in store.layout.entries()}


def is_within_budget(store: Store) -> bool:
    assert store.max_bytes is not None
    return usage(store).total_bytes <= store.max_bytes


def test_a_publish_that_does_not_fit_evicts_what_was_used_longest_ago_and_no_more(with_budget: MakeStore) -> None:
    store = with_budget(10)
    keys = []
    for number in range(40):
        keys.append(publish(store, number))
        assert is_within_budget(store)
    assert keys_of(store) == set(keys[-len(keys_of(store)) :])
    assert len(keys_of(store)) in (10, 11, 12)


def test_what_goes_takes_its_alias_its_lock_and_its_empty_shard_with_it(with_budget: MakeStore) -> None:
    store = with_budget(3)

    def build(number: int) -> None:
        artifact = Artifact(b"x" * 10_000, {"source_key": make_key({"source": str(number)})})
        load_or_build(store, make_key({"number": str(number)}), lambda: artifact)
        release_uses(store.layout)

    for number in range(12):
        build(number)
        os.utime(store.layout.entry(make_key({"number": str(number)})), (number, number))
    keys = keys_of(store)
    assert 0 < len(keys) < 5
    named = {key for path in store.layout.sources.glob("*/*") for key in path.read_text().split()}
    assert named == keys
    assert {path.stem for path in store.layout.locks.glob("*.lock")} - keys == set()
    assert set(store.layout.shards()) == {key[:2] for key in keys}


def test_what_others_depend_on_goes_last(with_budget: MakeStore) -> None:
    store = with_budget(3)
    launcher = publish(store, 0, Artifact(b"x" * 10_000, {"evict_last": True}))
    for number in range(1, 9):
        publish(store, number)
        assert launcher in keys_of(store)


def test_a_cache_full_of_what_is_in_use_takes_no_more_with_one_warning(
    with_budget: MakeStore, caplog: pytest.LogCaptureFixture
) -> None:
    store = with_budget(2)
    for number in range(6):
        key = make_key({"number": str(number)})
        assert load_or_build(store, key, lambda: ARTIFACT) == ARTIFACT, "the caller has it all the same"
        assert is_within_budget(store)
    assert make_key({"number": "0"}) in keys_of(store), "what is in use stays"
    assert [record.getMessage().count("JITNORM_CACHE_MAX_BYTES allows") for record in caplog.records] == [1]
    with pytest.raises(OSError, match="living processes use everything evictable") as caught:
        store.publish(make_key({}), ARTIFACT)
    assert caught.value.errno == errno.EDQUOT
    release_uses(store.layout)
    store.publish(make_key({}), ARTIFACT)
    assert store.load(make_key({})) == ARTIFACT


def test_an_entry_larger_than_the_budget_is_refused_and_leaves_nothing(with_budget: MakeStore) -> None:
    store = with_budget(3)
    with pytest.raises(OSError, match="JITNORM_CACHE_MAX_BYTES allows"):
        store.publish(make_key({}), Artifact(b"x" * 200_000, {}))
    assert keys_of(store) == set()
    assert list(store.layout.private.glob("*")) == []
    assert is_within_budget(store)


def test_where_folders_take_no_blocks_no_more_is_evicted_either(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "start", lambda store: None)
    budget = 1 << 20
    monkeypatch.setenv("JITNORM_CACHE_MAX_BYTES", str(budget))
    store = Store(memory / "cache")
    for number in range(200):
        publish(store, number)
        total = usage(store).total_bytes
        assert total <= budget
        assert total > 0.9 * budget or number < 64


def test_a_cache_far_above_its_budget_shrinks_with_each_publish(
    with_budget: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = with_budget(30)
    for number in range(30):
        publish(store, number)
    small = with_budget(5)
    sizes = []
    for number in range(30, 60):
        publish(small, number)
        sizes.append(len(keys_of(small)))
    assert sizes[:10] == sorted(sizes[:10], reverse=True)
    assert sizes[0] >= 28, "a caller does not pay for all of it"
    assert is_within_budget(small)


def test_a_cache_of_unknown_size_is_measured_or_estimated_at_once(
    with_budget: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier version leaves such a cache."""
    store = with_budget(300)
    for number in range(120):
        publish(store, number)
    small = with_budget(100)
    for seconds in (60.0, 0.0):  # all shards; one of them
        monkeypatch.setattr("jitnorm.cache.room._LOOK_SECONDS", seconds)
        store.layout.ledger.unlink()
        before = len(keys_of(small))
        publish(small, 200 if seconds else 201)
        if seconds:
            assert len(keys_of(small)) < before
        assert store.layout.ledger.exists()


def test_entries_are_chosen_from_a_sample_and_all_are_looked_at_where_most_are_in_use(
    with_budget: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jitnorm.cache.evict._SAMPLE", 5)
    store = with_budget(12)
    keys = [publish(store, number) for number in range(40)]
    assert is_within_budget(store)
    assert keys_of(store) <= set(keys)
    kept = sorted(keys_of(store))
    for key in kept[1:]:
        store.load(key)  # in use from here on
    monkeypatch.setattr("jitnorm.cache.evict._MOST_SAMPLES", 50)
    # In the shard of the only entry that may go: with another shard, it could take more than that one frees.
    places = {key: store.layout.entry(key).parent for key in (make_key({"new": str(n)}) for n in range(10_000))}
    new = next(key for key, place in places.items() if place == store.layout.entry(kept[0]).parent)
    store.publish(new, ARTIFACT)
    assert keys_of(store) >= {*kept[1:], new}


def test_an_estimate_makes_no_room_where_the_total_is_known(
    with_budget: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An estimate that lacks the shard of a large entry, such as the launcher, is far too low."""
    store = with_budget(20)
    store.publish(make_key({}), Artifact(b"x" * 10 * ENTRY, {}))
    monkeypatch.setattr("jitnorm.cache.room._LOOK_SECONDS", 0.0)  # one shard
    for number in range(40):
        load_or_build(store, make_key({"number": str(number)}), lambda: ARTIFACT)
        assert is_within_budget(store)
    assert len(keys_of(store)) > 5


def test_a_total_that_is_too_high_is_corrected_before_anything_is_refused(
    with_budget: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jitnorm.cache.room._LOOK_SECONDS", 60.0)
    store = with_budget(5)
    publish(store, 0)
    add(store.layout, 1 << 40)
    store.load(make_key({"number": "0"}))
    new = make_key({"new": "entry"})
    store.publish(new, ARTIFACT)
    assert keys_of(store) == {make_key({"number": "0"}), new}


def test_a_publish_that_fails_gives_its_space_back(with_budget: MakeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store = with_budget(5)
    publish(store, 0)

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("jitnorm.cache.store.write_file", fail)
        for number in range(100, 150):
            with pytest.raises(OSError, match="No space left"):
                store.publish(make_key({"number": str(number)}), ARTIFACT)
    for number in range(1, 4):
        publish(store, number)
    assert len(keys_of(store)) == 4, "nothing was evicted for what was never written"


def test_what_is_published_twice_counts_once(with_budget: MakeStore) -> None:
    store = with_budget(5)
    for _ in range(50):
        publish(store, 0)
    for number in range(1, 4):
        publish(store, number)
    assert len(keys_of(store)) == 4


def test_a_cache_that_is_deleted_meanwhile_is_made_anew(with_budget: MakeStore) -> None:
    store = with_budget(5)
    publish(store, 0)
    shutil.rmtree(store.layout.root)
    key = publish(store, 1)
    assert keys_of(store) == {key}
    assert is_within_budget(store)


def test_without_a_budget_nothing_is_measured(with_budget: MakeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("measured")

    monkeypatch.setattr("jitnorm.cache.measure.survey", refuse)
    store = with_budget(1)
    store.max_bytes = None
    for number in range(5):
        publish(store, number)
    assert len(keys_of(store)) == 5


def test_a_shard_that_vanishes_while_an_entry_is_put_there_is_made_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = Path.rename
    removed = count()

    def remove_shard_first(path: Path, target: Path) -> Path:
        if target.parent.name == make_key({})[:2] and next(removed) == 0:
            target.parent.rmdir()
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", remove_shard_first)
    store.publish(make_key({}), ARTIFACT)
    assert store.load(make_key({})) == ARTIFACT
    assert next(removed) > 1
