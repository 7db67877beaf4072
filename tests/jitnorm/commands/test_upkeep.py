"""`jitnorm cache verify`, `prune` and `clear`."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cache_entries import CPU, ENTRIES, LAUNCHER, SM90, SM100, Answer, Invoke, fill
from jitnorm.cache import Store
from jitnorm.cache.private import discard
from jitnorm.cache.space import usage
from jitnorm.cache.uses import note_use, release_uses

from jitnorm.commands import upkeep


def keys(store: Store) -> set[str]:
    return {entry.key for entry in store.entries()}


def spoil(store: Store, key: str) -> None:
    payload = store.layout.entry(key) / "payload"
    payload.write_bytes(b"?" * payload.stat().st_size)


def test_an_intact_cache_is_verified(store: Store, answer: Answer) -> None:
    assert answer("cache", "verify") == {"checked": len(ENTRIES), "wrong": []}


def test_what_is_damaged_is_found_and_left_alone(store: Store, answer: Answer, invoke: Invoke) -> None:
    spoil(store, SM90)
    found = answer("cache", "verify", exit_code=1)
    problem = "payload does not match its digest"
    assert found["wrong"] == [{"tier": store.name, "key": SM90, "problem": problem, "quarantined": False}]
    assert store.layout.entry(SM90).exists()
    assert f"{SM90[:12]} in {store.name}: {problem}" in invoke("cache", "verify").stdout


def test_a_repair_moves_it_to_the_quarantine_once(store: Store, answer: Answer) -> None:
    spoil(store, SM90)
    assert answer("cache", "verify", "--repair", exit_code=1)["wrong"][0]["quarantined"]
    assert keys(store) == set(ENTRIES) - {SM90}
    assert answer("cache", "verify", "--repair") == {"checked": len(ENTRIES) - 1, "wrong": []}


def test_only_the_entries_that_are_named_are_verified(store: Store, answer: Answer) -> None:
    spoil(store, SM90)
    assert answer("cache", "verify", SM100[:12], CPU)["checked"] == 2


def test_an_entry_that_others_remove_while_it_is_verified_is_not_wrong(
    store: Store, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    verify = upkeep.verify

    def verify_after_removal(*arguments: Any, **options: Any) -> Any:
        discard(store.layout.entry(SM90), store.layout.private)
        return verify(*arguments, **options)

    monkeypatch.setattr(upkeep, "verify", verify_after_removal)
    assert answer("cache", "verify") == {"checked": len(ENTRIES) - 1, "wrong": []}


def test_folders_that_are_only_read_are_verified_and_never_repaired(
    store: Store, tmp_path: Path, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Store(tmp_path / "shared")
    fill(other)
    spoil(other, SM90)
    monkeypatch.setenv("JITNORM_READONLY_CACHE", str(tmp_path / "shared"))
    found = answer("cache", "verify", "--repair", exit_code=1)
    assert found["checked"] == 2 * len(ENTRIES)
    assert [(each["tier"], each["quarantined"]) for each in found["wrong"]] == [
        (f"read-only {tmp_path / 'shared'}", False)
    ]
    assert other.layout.entry(SM90).exists()


def test_where_keys_are_trusted_what_they_have_not_signed_is_wrong_and_left_alone(
    store: Store, tmp_path: Path, answer: Answer, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("cryptography", reason="signatures need jitnorm[sign]")
    fill(Store(tmp_path / "shared"))
    invoke("cache", "keygen", tmp_path / "fleet.pem")
    invoke("cache", "keygen", tmp_path / "stranger.pem")
    invoke("cache", "sign", SM90, "--key", tmp_path / "fleet.pem")
    invoke("cache", "sign", SM100, "--key", tmp_path / "stranger.pem")
    monkeypatch.setenv("JITNORM_READONLY_CACHE", str(tmp_path / "shared"))
    assert answer("cache", "verify")["wrong"] == []
    monkeypatch.setenv("JITNORM_TRUSTED_KEYS", str(tmp_path / "fleet.pub.pem"))
    wrong = answer("cache", "verify", "--repair", exit_code=1)["wrong"]
    shared = f"read-only {tmp_path / 'shared'}"
    found = {tier: {each["key"] for each in wrong if each["tier"] == tier} for tier in (shared, store.name)}
    assert found == {shared: set(ENTRIES), store.name: {SM100, CPU, LAUNCHER}}
    for each in wrong:
        assert (
            "is signed by the key" if each["key"] == SM100 and each["tier"] == store.name else "not signed"
        ) in each["problem"]
        assert ("It is loaded anyway" in each["problem"]) == (each["tier"] == store.name)
        assert not each["quarantined"]
    assert keys(store) == set(ENTRIES)


def use_long_ago(store: Store, *order: str) -> None:
    """Pretend that the entries were last used in this order, days ago."""
    for days, key in enumerate(reversed(order), start=1):
        moment = time.time() - 86400 * days
        os.utime(store.layout.entry(key), (moment, moment))


def test_pruning_removes_what_was_used_least_recently(store: Store, answer: Answer) -> None:
    use_long_ago(store, SM100, SM90, CPU, LAUNCHER)
    bound = usage(store).total_bytes - 5000  # the block of a dead process's uses is not enough
    planned = answer("cache", "prune", "--max-bytes", bound, "--dry-run")
    assert (planned["evicted"], planned["dry_run"], keys(store)) == ([SM100], True, set(ENTRIES))
    done = answer("cache", "prune", "--max-bytes", bound)
    assert (done["evicted"], done["dry_run"]) == ([SM100], False)
    assert done["bytes_after"] <= bound < done["bytes_before"]
    assert keys(store) == set(ENTRIES) - {SM100}


def test_the_bound_comes_from_the_environment(store: Store, answer: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    use_long_ago(store, LAUNCHER, CPU, SM90, SM100)
    assert answer("cache", "prune")["evicted"] == [], "4 GiB are enough"
    monkeypatch.setenv("JITNORM_CACHE_MAX_BYTES", str(usage(store).total_bytes // 2))
    assert LAUNCHER in answer("cache", "prune")["evicted"]


def test_pruning_fails_where_the_rest_is_in_use(store: Store, answer: Answer) -> None:
    note_use(store.layout, SM90)
    try:
        done = answer("cache", "prune", "--max-bytes", "1", exit_code=1)
    finally:
        release_uses(store.layout)
    assert (done["spared"], keys(store)) == (1, {SM90})


@pytest.mark.parametrize("size", ["-1", "lots", "1.5G"])
def test_a_bound_that_is_no_size_is_wrong_usage(store: Store, invoke: Invoke, size: str) -> None:
    result = invoke("cache", "prune", f"--max-bytes={size}")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"error: max-bytes: is {size!r}; allowed are bytes")
    assert keys(store) == set(ENTRIES)


def test_clearing_removes_everything_and_asks_nobody_where_nobody_can_answer(store: Store, answer: Answer) -> None:
    assert set(answer("cache", "clear", "--dry-run")["evicted"]) == set(ENTRIES)
    assert keys(store) == set(ENTRIES)
    assert set(answer("cache", "clear")["evicted"]) == set(ENTRIES)
    assert keys(store) == set()


def test_clearing_spares_what_is_in_use_unless_forced(store: Store, answer: Answer) -> None:
    note_use(store.layout, SM90)
    try:
        assert answer("cache", "clear", exit_code=1)["spared"] == 1
        assert keys(store) == {SM90}
        assert answer("cache", "clear", "--force")["evicted"] == [SM90]
    finally:
        release_uses(store.layout)
    assert keys(store) == set()


@pytest.mark.parametrize(
    ("options", "typed", "exit_code", "left"), [([], "n\n", 1, 4), ([], "y\n", 0, 0), (["--yes"], "", 0, 0)]
)
def test_on_a_terminal_clearing_asks_first(
    store: Store,
    invoke: Invoke,
    options: list[str],
    typed: str,
    exit_code: int,
    left: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr(upkeep, "sys", terminal)
    result = invoke("cache", "clear", *options, input=typed)
    assert result.exit_code == exit_code
    assert ("Remove 4 entries" in result.output) is not bool(options)
    assert len(keys(store)) == left


def test_the_folder_is_printed_and_not_created(folder: Path, invoke: Invoke, answer: Answer) -> None:
    assert invoke("cache", "dir").stdout == f"{folder}\n"
    assert answer("cache", "dir") == {"path": str(folder), "exists": False}
    assert not folder.exists()
