"""The index and the listings from it are complete and correct, whatever the index lacks or claims."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from jitnorm.cache import Artifact, Store, make_key
from jitnorm.cache.index import compact_index, parse_lines, read_index
from jitnorm.cache.listing import count_entries, list_entries
from jitnorm.cache.space import prune
from jitnorm.cache.uses import release_uses

KEYS = [make_key({"n": str(n)}) for n in range(5)]


def manifest_of(number: int) -> dict[str, str]:
    return {"kind": "kernel", "target": f"sm_{number}", "recipe": "r" * 1000, "source_key": KEYS[0]}


@pytest.fixture
def filled(store: Store) -> Store:
    for number, key in enumerate(KEYS):
        store.publish(key, Artifact(b"x" * number, manifest_of(number)))
    return store


def listed(store: Store) -> dict[str, tuple[int, dict[str, str]]]:
    return {entry.key: (entry.payload_size, dict(entry.manifest)) for entry, _ in list_entries(store)}


def indexed(store: Store) -> set[str]:
    return {key for lines in read_index(store.layout).values() for key in parse_lines(lines)}


EXPECTED = {key: (number, {"kind": "kernel", "target": f"sm_{number}"}) for number, key in enumerate(KEYS)}


def test_a_listing_has_what_manifests_say(filled: Store) -> None:
    assert listed(filled) == EXPECTED
    verified = {entry.key: entry for entry in filled.entries()}
    for entry, used in list_entries(filled):
        assert entry.modified == pytest.approx(verified[entry.key].modified, abs=5)
        assert used == filled.layout.entry(entry.key).stat().st_mtime
    assert count_entries(filled) == (5, 0 + 1 + 2 + 3 + 4)


def test_a_listing_reads_no_manifest_that_is_in_the_index(filled: Store) -> None:
    for key in KEYS:
        (filled.layout.entry(key) / "manifest.json").unlink()
    assert listed(filled) == EXPECTED


DAMAGES = ["removed", "emptied", "cut", "garbage", "a line of garbage", "of other types", "a folder", "a pipe"]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_missing_or_damaged_index_costs_time_and_nothing_else(filled: Store, damage: str) -> None:
    index = filled.layout.index
    whole = index.read_bytes()
    index.unlink()
    if damage == "a folder":
        index.mkdir()
    elif damage == "a pipe":
        os.mkfifo(index)
    elif damage != "removed":
        lines = [json.dumps([key, filled.layout.entry(key).stat().st_ino, {}, [], 5]) for key in KEYS]
        others = {
            "emptied": b"",
            "cut": whole[:-30],
            "garbage": b"\xff" * 1000 + b"\n[1, 2\n[]\nnull\n",
            "a line of garbage": whole.replace(b"sm_2", b'"\0\0\0'),
        }
        index.write_bytes(others.get(damage, "".join(f"{line}\n" for line in lines).encode()))
    for _ in range(2):
        assert listed(filled) == EXPECTED
    if damage not in ("a folder", "a pipe"):
        assert indexed(filled) == set(KEYS), "what it lacked was added"


def test_an_entry_that_was_replaced_is_not_listed_by_its_old_line(filled: Store, tmp_path: Path) -> None:
    other = Store(tmp_path / "other")
    other.publish(KEYS[0], Artifact(b"another payload", {"kind": "launcher"}))
    filled.layout.entry(KEYS[0]).rename(tmp_path / "old")  # keeps its inode
    other.layout.entry(KEYS[0]).rename(filled.layout.entry(KEYS[0]))
    for _ in range(2):
        assert listed(filled)[KEYS[0]] == (15, {"kind": "launcher"})


def test_entries_whose_manifests_cannot_be_read_are_left_out(filled: Store) -> None:
    filled.layout.index.unlink()
    (filled.layout.entry(KEYS[0]) / "manifest.json").write_bytes(b"{")
    (filled.layout.entry(KEYS[1]) / "manifest.json").write_bytes(b'{"manifest": [], "payload": {"size": 1}}')
    (filled.layout.entry(KEYS[2]) / "manifest.json").unlink()
    assert listed(filled).keys() == set(KEYS[3:])


def test_a_read_only_cache_is_listed_and_not_written(filled: Store) -> None:
    filled.layout.index.unlink()
    assert listed(Store(filled.layout.root, writable=False)) == EXPECTED
    assert not filled.layout.index.exists()


def test_no_line_of_processes_that_publish_at_once_is_lost(store: Store) -> None:
    program = f"""
import sys
from pathlib import Path
from jitnorm.cache import Artifact, Store, make_key
store = Store(Path({str(store.layout.root)!r}))
for number in range(20):
    store.publish(make_key({{"n": f"{{sys.argv[1]}} {{number}}"}}), Artifact(b"x", {{"kind": "kernel"}}))
"""
    publishers = [subprocess.Popen([sys.executable, "-c", program, str(number)]) for number in range(4)]
    assert [publisher.wait(timeout=60) for publisher in publishers] == [0] * 4
    assert indexed(store) == {key for key, _ in store.layout.entries()}


def test_pruning_takes_what_is_gone_out_of_the_index(filled: Store) -> None:
    release_uses(filled.layout)
    filled.load(KEYS[4])
    prune(filled, 0)
    assert indexed(filled) == {KEYS[4]}
    assert listed(filled) == {KEYS[4]: EXPECTED[KEYS[4]]}


def test_an_index_that_is_mostly_of_use_is_not_written_again(filled: Store) -> None:
    before = filled.layout.index.stat().st_ino
    compact_index(filled.layout, KEYS[1:])
    assert filled.layout.index.stat().st_ino == before
