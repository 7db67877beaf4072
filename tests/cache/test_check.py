from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from jitnorm.cache import Artifact, Store, make_key
from jitnorm.cache.check import Verified, verify
from jitnorm.cache.private import discard

KEYS = sorted(make_key({"n": str(n)}) for n in range(4))


@pytest.fixture
def filled(store: Store, artifact: Artifact) -> Store:
    for key in KEYS:
        store.publish(key, artifact)
    return store


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-2] ^= 1
    path.write_bytes(data)


def test_intact_entries_are_reported_as_such_in_the_order_of_the_keys(filled: Store, artifact: Artifact) -> None:
    assert list(verify(filled)) == [Verified(key, None, len(artifact.payload)) for key in KEYS]
    assert all(result.intact for result in verify(filled))


@pytest.mark.parametrize("file", ["payload", "manifest.json"])
def test_one_changed_byte_is_found_and_left_where_it_is(filled: Store, file: str) -> None:
    damage(filled.layout.entry(KEYS[1]) / file)
    problems = {result.key: result.problem for result in verify(filled)}
    assert [key for key, problem in problems.items() if problem] == [KEYS[1]]
    assert file.partition(".")[0] in str(problems[KEYS[1]])
    assert filled.layout.entry(KEYS[1]).exists()
    assert not list(filled.layout.quarantine.glob("*"))


def test_repair_moves_what_is_damaged_to_the_quarantine_and_nothing_else(filled: Store) -> None:
    damage(filled.layout.entry(KEYS[1]) / "payload")
    assert [result.key for result in verify(filled, repair=True) if result.quarantined] == [KEYS[1]]
    assert len(list(filled.layout.quarantine.iterdir())) == 1
    assert [result.key for result in verify(filled)] == [key for key in KEYS if key != KEYS[1]]


def test_what_is_not_a_folder_is_damaged_too(filled: Store) -> None:
    place = filled.layout.entry(make_key({}))
    place.parent.mkdir(exist_ok=True)
    place.touch()
    (result,) = [result for result in verify(filled, repair=True) if not result.intact]
    assert result.quarantined


def test_chosen_keys_are_looked_at_alone(filled: Store) -> None:
    assert [result.key for result in verify(filled, KEYS[2:3])] == KEYS[2:3]
    (missing,) = verify(filled, [make_key({})], repair=True)
    assert missing.problem == "there is no such entry"
    assert not missing.quarantined
    with pytest.raises(ValueError, match="cache key is 'abc'"):
        list(verify(filled, ["abc"]))


# Beside others, who remove entries and store them anew.


def act_once_opened(monkeypatch: pytest.MonkeyPatch, folder: Path, act: Callable[[], object]) -> None:
    """Run something between the opening of a folder and the opening of its files."""
    fstat, awaited = os.fstat, [folder.stat()]

    def fstat_and_act(descriptor: int) -> os.stat_result:
        found = fstat(descriptor)
        if awaited and os.path.samestat(found, awaited[0]):
            awaited.clear()
            act()
        return found

    monkeypatch.setattr(os, "fstat", fstat_and_act)


@pytest.mark.parametrize("repair", [False, True])
def test_an_entry_that_is_removed_before_its_turn_is_no_problem(filled: Store, repair: bool) -> None:
    results = verify(filled, repair=repair)
    assert next(results).intact
    discard(filled.layout.entry(KEYS[2]), filled.layout.private)
    assert [(result.key, result.problem) for result in results] == [(KEYS[1], None), (KEYS[3], None)]


@pytest.mark.parametrize("repair", [False, True])
def test_an_entry_that_is_removed_while_it_is_read_is_no_problem(
    filled: Store, repair: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = filled.layout.entry(KEYS[1])
    act_once_opened(monkeypatch, place, lambda: discard(place, filled.layout.private))
    assert [(result.key, result.problem) for result in verify(filled, repair=repair)] == [
        (key, None) for key in KEYS if key != KEYS[1]
    ]


@pytest.mark.parametrize("repair", [False, True])
def test_of_an_entry_that_is_replaced_while_it_is_read_the_new_one_counts(
    filled: Store, artifact: Artifact, repair: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = filled.layout.entry(KEYS[1])

    def replace() -> None:
        discard(place, filled.layout.private)
        filled.publish(KEYS[1], artifact)

    act_once_opened(monkeypatch, place, replace)
    assert list(verify(filled, repair=repair)) == [Verified(key, None, len(artifact.payload)) for key in KEYS]
    assert not list(filled.layout.quarantine.glob("*"))


def test_an_entry_that_is_damaged_after_others_were_replaced_is_still_found(
    filled: Store, artifact: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = filled.layout.entry(KEYS[1])

    def replace_by_damage() -> None:
        discard(place, filled.layout.private)
        filled.publish(KEYS[1], artifact)
        damage(place / "payload")

    act_once_opened(monkeypatch, place, replace_by_damage)
    assert [result.key for result in verify(filled) if not result.intact] == [KEYS[1]]


def test_verifying_is_no_use_of_an_entry(filled: Store) -> None:
    place = filled.layout.entry(KEYS[0])
    os.utime(place, (0, 0))
    list(verify(filled))
    assert place.stat().st_mtime == 0


def test_a_read_only_store_is_verified_but_not_repaired(filled: Store) -> None:
    damage(filled.layout.entry(KEYS[1]) / "payload")
    store = Store(filled.layout.root, writable=False)
    assert [(r.key, r.quarantined) for r in verify(store, repair=True) if not r.intact] == [(KEYS[1], False)]
    assert store.layout.entry(KEYS[1]).exists()
