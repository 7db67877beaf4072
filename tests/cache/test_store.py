from __future__ import annotations

import errno
import logging
import os
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from jitnorm.cache import Artifact, Entry, Store, load_or_build, make_key


def files_in(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.exists() else []


def test_what_was_published_is_loaded(store: Store, key: str, artifact: Artifact) -> None:
    assert store.load(key) is None
    store.publish(key, artifact)
    assert store.load(key) == artifact


def test_an_entry_lies_where_the_layout_says(store: Store, key: str, artifact: Artifact) -> None:
    store.publish(key, artifact)
    place = store.layout.root / "v1" / key[:2] / key
    assert [path.name for path in files_in(place)] == ["manifest.json", "payload"]
    assert (place / "payload").read_bytes() == artifact.payload
    assert files_in(store.layout.private) == []


def test_an_empty_payload_is_stored(store: Store, key: str) -> None:
    store.publish(key, Artifact(b"", {}))
    assert store.load(key) == Artifact(b"", {})


def test_the_first_of_two_publishers_wins(store: Store, key: str) -> None:
    store.publish(key, Artifact(b"first", {}))
    store.publish(key, Artifact(b"second", {}))
    assert store.load(key) == Artifact(b"first", {})
    assert files_in(store.layout.private) == []


@pytest.mark.parametrize("key", ["", "ab", "../" * 22, "A" * 64, "0" * 63 + "/", "0" * 64 + "\n"])
def test_what_is_not_a_key_is_refused(store: Store, key: str, artifact: Artifact) -> None:
    for use in (store.load, lambda key: store.publish(key, artifact)):
        with pytest.raises(ValueError, match="cache key"):
            use(key)
    assert not store.layout.root.exists()


def test_loading_from_a_missing_root_creates_nothing(store: Store, key: str) -> None:
    assert store.load(key) is None
    assert list(store.entries()) == []
    assert not store.layout.root.exists()


def test_a_store_that_is_not_writable_publishes_nothing(store: Store, key: str, artifact: Artifact) -> None:
    Store(store.layout.root, writable=False).publish(key, artifact)
    assert not store.layout.root.exists()


# Damage. The bits of both files are flipped one by one in test_artifact; here it is the disk that matters.


def change(position: float) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[int(position * (len(data) - 1))] ^= 0x10
        path.write_bytes(data)

    return damage


def cut(share: float) -> Callable[[Path], None]:
    return lambda path: os.truncate(path, int(path.stat().st_size * share))


def replace_by(make: Callable[[Path], object]) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        path.unlink()
        make(path)

    return damage


DAMAGES = {
    "flipped first byte": change(0.0),
    "flipped middle byte": change(0.5),
    "flipped last byte": change(1.0),
    "emptied": cut(0.0),
    "cut in half": cut(0.5),
    "cut by little": cut(0.9999),
    "removed": Path.unlink,
    "a folder": replace_by(Path.mkdir),
    "a pipe": replace_by(os.mkfifo),
    "a link": replace_by(lambda path: path.symlink_to("/etc/hostname")),
    "zeroed": lambda path: path.write_bytes(bytes(path.stat().st_size)),
}


@pytest.mark.parametrize("file", ["payload", "manifest.json"])
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_entry_is_quarantined_with_a_warning_and_built_again(
    store: Store,
    key: str,
    artifact: Artifact,
    file: str,
    damage: Callable[[Path], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    store.publish(key, artifact)
    damage(store.layout.entry(key) / file)
    assert store.load(key) is None
    (quarantined,) = files_in(store.layout.quarantine)
    (warning,) = caplog.records
    assert warning.levelno == logging.WARNING
    assert str(store.layout.entry(key)) in warning.getMessage()
    assert str(quarantined) in warning.getMessage()
    assert load_or_build(store, key, lambda: artifact) == artifact
    assert store.load(key) == artifact


@pytest.mark.parametrize("make", [Path.touch, lambda path: path.symlink_to("/etc")], ids=["a file", "a link"])
def test_what_is_not_a_folder_at_the_place_of_an_entry_is_quarantined(
    store: Store, key: str, artifact: Artifact, make: Callable[[Path], None]
) -> None:
    place = store.layout.entry(key)
    place.parent.mkdir(parents=True)
    make(place)
    assert load_or_build(store, key, lambda: artifact) == artifact
    assert store.load(key) == artifact
    assert len(files_in(store.layout.quarantine)) == 1


def test_an_entry_copied_to_another_key_is_not_loaded(store: Store, key: str, artifact: Artifact) -> None:
    other = make_key({"test": "another kernel"})
    store.publish(key, artifact)
    store.layout.entry(other).parent.mkdir(parents=True)
    store.layout.entry(key).rename(store.layout.entry(other))
    assert store.load(other) is None


def test_damage_that_cannot_be_moved_away_is_a_miss(
    store: Store,
    key: str,
    artifact: Artifact,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    store.publish(key, artifact)
    cut(0.5)(store.layout.entry(key) / "payload")

    def refuse(*_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "rename", refuse)
    assert store.load(key) is None
    assert "cannot be moved away" in caplog.text


def test_a_store_that_is_not_writable_leaves_damage_where_it_is(store: Store, key: str, artifact: Artifact) -> None:
    store.publish(key, artifact)
    cut(0.5)(store.layout.entry(key) / "payload")
    assert Store(store.layout.root, writable=False).load(key) is None
    assert store.layout.entry(key).exists()


def test_a_good_entry_that_replaced_a_damaged_one_is_not_quarantined(
    store: Store, key: str, artifact: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When a slow reader acts on damage, a faster one has already quarantined and rebuilt the entry."""
    store.publish(key, artifact)
    place = store.layout.entry(key)
    cut(0.5)(place / "payload")
    slow_quarantine = store.quarantine

    def after_a_faster_reader(*arguments: object) -> bool:
        assert load_or_build(Store(store.layout.root), key, lambda: artifact) == artifact
        return slow_quarantine(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "quarantine", after_a_faster_reader)
    assert store.load(key) is None
    assert len(files_in(store.layout.quarantine)) == 1
    assert Store(store.layout.root).load(key) == artifact


# Writing.


def test_readers_see_an_entry_whole_or_not_at_all(store: Store, key: str) -> None:
    artifact = Artifact(os.urandom(200_000), {})
    done = threading.Event()
    seen: list[Artifact | None] = []

    def read() -> None:
        while not done.is_set():
            seen.append(store.load(key))

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for _ in range(30):
        store.publish(key, artifact)
        store.layout.entry(key).rename(store.layout.root / os.urandom(4).hex())
    done.set()
    for reader in readers:
        reader.join(timeout=10)
    assert len(seen) > 0
    assert all(found is None or found == artifact for found in seen)
    assert files_in(store.layout.quarantine) == []


def test_racing_publishers_leave_one_whole_entry_and_nothing_else(store: Store) -> None:
    for round_ in range(10):
        key = make_key({"round": str(round_)})
        candidates = [Artifact(bytes([i]) * 50_000, {"publisher": i}) for i in range(8)]
        start = threading.Barrier(len(candidates))

        def publish(artifact: Artifact, start: threading.Barrier = start, key: str = key) -> None:
            start.wait(timeout=10)
            store.publish(key, artifact)

        threads = [threading.Thread(target=publish, args=(artifact,)) for artifact in candidates]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=10)
        assert store.load(key) in candidates
    assert files_in(store.layout.private) == []
    assert files_in(store.layout.quarantine) == []


def test_a_write_that_the_system_splits_is_completed(
    store: Store, key: str, artifact: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:1000]))
    store.publish(key, artifact)
    assert store.load(key) == artifact


@pytest.mark.parametrize("call", ["write", "fsync"])
def test_a_failing_publisher_raises_and_leaves_nothing(
    store: Store, key: str, artifact: Artifact, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, call, fail)
        with pytest.raises(OSError, match="No space left"):
            store.publish(key, artifact)
    assert files_in(store.layout.private) == []
    assert store.load(key) is None


def test_files_and_folders_are_for_the_owner_alone_whatever_the_umask(
    tmp_path: Path, key: str, artifact: Artifact
) -> None:
    top = tmp_path / "missing"
    store = Store(top / "parents" / "cache")
    former = os.umask(0)
    try:
        load_or_build(store, key, lambda: artifact)
        cut(0.5)(store.layout.entry(key) / "payload")
        load_or_build(store, key, lambda: artifact)
    finally:
        os.umask(former)
    paths = [top, *top.rglob("*")]
    assert {stat.S_IMODE(path.stat().st_mode) for path in paths if path.is_dir()} == {0o700}
    assert {stat.S_IMODE(path.stat().st_mode) for path in paths if path.is_file()} == {0o600}


def test_a_wrong_clock_does_not_matter(
    store: Store, key: str, artifact: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.publish(make_key({"published": "before"}), artifact)
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert load_or_build(store, key, lambda: artifact) == artifact
    assert len(list(store.entries())) == 2
    assert all(store.load(entry.key) == artifact for entry in store.entries())


# Listing.


def test_entries_are_listed_by_key(store: Store) -> None:
    before = time.time()
    artifacts = {make_key({"n": str(n)}): Artifact(b"x" * n, {"n": n}) for n in range(5)}
    for key, artifact in artifacts.items():
        store.publish(key, artifact)
    listed = list(store.entries())
    assert [entry.key for entry in listed] == sorted(artifacts)
    for entry in listed:
        assert entry == Entry(
            entry.key, len(artifacts[entry.key].payload), entry.modified, artifacts[entry.key].manifest
        )
        assert abs(entry.modified - before) < 60


@pytest.mark.parametrize("file", ["payload", "manifest.json"])
def test_unreadable_entries_are_left_out_of_the_list_and_left_alone(
    store: Store, key: str, artifact: Artifact, file: str
) -> None:
    good = make_key({"test": "another kernel"})
    store.publish(key, artifact)
    store.publish(good, artifact)
    cut(0.5)(store.layout.entry(key) / file)
    (store.layout.entry(key).parent / "stray").touch()
    assert [entry.key for entry in store.entries()] == [good]
    assert store.layout.entry(key).exists()
