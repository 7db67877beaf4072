"""Upkeep in the background, by one process and by many."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from jitnorm.cache import Artifact, Store, make_key
from jitnorm.cache.check import verify
from jitnorm.cache.ledger import add
from jitnorm.cache.space import keep_within_budget, prune, usage
from jitnorm.cache.upkeep import Upkeep
from jitnorm.cache.uses import keys_in_use, release_uses

StartWorker = Callable[..., "subprocess.Popen[str]"]
ARTIFACT = Artifact(b"x" * 10_000, {"target": "cpu"})
ENTRY = 6 * 4096  # a folder, 10,000 bytes and a manifest, in blocks, and a shard


@pytest.fixture
def full(store: Store) -> Store:
    """Sixty unused entries, above a budget for fifty."""
    for number in range(60):
        store.publish(make_key({"number": str(number)}), ARTIFACT)
    release_uses(store.layout)
    keys_in_use(store.layout)
    store.max_bytes = usage(store).total_bytes - 10 * ENTRY
    return store


@pytest.fixture
def upkeep() -> Iterator[Upkeep]:
    made = Upkeep()
    yield made
    made.close()


def test_a_cache_above_its_budget_is_pruned_to_nine_tenths(full: Store, upkeep: Upkeep) -> None:
    assert full.max_bytes is not None
    upkeep.start(full)
    assert upkeep.wait(30)
    held = usage(full).total_bytes
    assert 0.9 * full.max_bytes - 2 * ENTRY <= held <= 0.9 * full.max_bytes
    total = add(full.layout, 0)
    assert total is not None
    assert (total.space, total.is_due) == (held, False), "what was measured is known to all"


def test_upkeep_leaves_the_publish_that_asks_for_it_alone(
    full: Store, upkeep: Upkeep, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[Store] = []
    monkeypatch.setattr("jitnorm.cache.space.keep_within_budget", lambda store, *_: kept.append(store))
    monkeypatch.setattr("jitnorm.cache.upkeep._DELAY_SECONDS", 600.0)
    upkeep.start(full)
    assert not kept
    assert upkeep.wait(30), "unless somebody waits for it"
    assert kept == [full]


def test_a_cache_within_its_budget_keeps_its_entries(full: Store, upkeep: Upkeep) -> None:
    full.max_bytes = usage(full).total_bytes
    upkeep.start(full)
    assert upkeep.wait(30)
    assert len(list(full.entries())) == 60


def test_upkeep_begins_at_most_once_a_minute_for_each_cache(
    full: Store, upkeep: Upkeep, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = []
    monkeypatch.setattr("jitnorm.cache.space.keep_within_budget", lambda store, *_: kept.append(store))
    for _ in range(3):
        upkeep.start(full)
        assert upkeep.wait(10)
    assert kept == [full]


def test_a_failure_is_logged_and_goes_no_further(
    full: Store, upkeep: Upkeep, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise OSError("a broken disk")

    monkeypatch.setattr("jitnorm.cache.space.keep_within_budget", fail)
    upkeep.start(full)
    assert upkeep.wait(10)
    assert f"cannot keep the cache folder {full.layout.root}: a broken disk" in caplog.text


def test_closing_stops_what_takes_long_and_begins_nothing_more(
    full: Store, upkeep: Upkeep, monkeypatch: pytest.MonkeyPatch
) -> None:
    def keep(store: Store, seconds: float, is_stopped: Callable[[], bool]) -> None:
        while not is_stopped():
            time.sleep(0.001)

    monkeypatch.setattr("jitnorm.cache.space.keep_within_budget", keep)
    monkeypatch.setattr("jitnorm.cache.upkeep._EXIT_SECONDS", 0.05)
    upkeep.start(full)
    upkeep.close()
    assert upkeep.wait(0)
    upkeep.start(full)
    assert upkeep.wait(0)


def test_what_is_stopped_leaves_a_cache_whole_and_a_total_to_be_measured_again(full: Store) -> None:
    steps = iter(range(3))
    keep_within_budget(full, 60, lambda: next(steps, None) is None)
    assert all(entry.intact for entry in verify(full))
    total = add(full.layout, 0)
    assert total is not None
    assert total.is_due


def test_a_child_forked_during_upkeep_can_have_its_own(full: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    from jitnorm.cache.upkeep import upkeep

    is_over = threading.Event()
    monkeypatch.setattr("jitnorm.cache.space.keep_within_budget", lambda *_: is_over.wait(10))
    upkeep.start(full)
    child = os.fork()
    if child == 0:
        monkeypatch.setattr("jitnorm.cache.space.keep_within_budget", lambda *_: None)
        upkeep.start(full)
        os._exit(0 if upkeep._thread is not None and upkeep.wait(10) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    is_over.set()
    assert upkeep.wait(10)
    upkeep.restart_after_fork()


# Many processes.


def held_by(root: Path) -> int:
    """The disk space that `du` would report; files may vanish meanwhile."""
    space = 0
    for folder, _, names in os.walk(root):
        for path in (folder, *(os.path.join(folder, name) for name in names)):
            with contextlib.suppress(OSError):
                space += os.lstat(path).st_blocks * 512
    return space


def test_eight_publishers_at_once_pass_the_budget_by_at_most_an_entry_each(
    store: Store, start_worker: StartWorker
) -> None:
    store.publish(make_key({}), ARTIFACT)
    release_uses(store.layout)
    budget = usage(store).total_bytes + 8 * 4096 + 40 * ENTRY  # each of the publishers has a file in uses/
    publishers = [
        start_worker("publish_many", root=store.layout.root, budget=budget, count=40, seed=seed) for seed in range(8)
    ]
    most = 0
    while any(publisher.poll() is None for publisher in publishers):
        most = max(most, held_by(store.layout.root))
    assert [publisher.communicate(timeout=30)[0] for publisher in publishers] == ["40\n"] * 8
    assert most <= budget + 8 * ENTRY
    assert most > 0.8 * budget, "the budget was reached"
    store.max_bytes = budget
    keep_within_budget(store, 60, lambda: False)
    assert held_by(store.layout.root) <= budget
    assert all(entry.intact for entry in verify(store))


def test_killed_upkeep_leaves_whole_entries_and_no_lasting_files(
    full: Store, start_worker: StartWorker, rounds: Callable[[int], int]
) -> None:
    full.max_bytes = None
    chance = random.Random(1)
    artifacts = {make_key({"number": str(number)}): ARTIFACT for number in range(60)}
    for _ in range(rounds(6)):
        pruner = start_worker("prune_again_and_again", root=full.layout.root)
        assert pruner.stdout is not None
        assert pruner.stdout.readline() == "pruning\n"
        for key, artifact in list(artifacts.items())[:: chance.randrange(1, 4)]:
            full.publish(key, artifact)
        time.sleep(chance.uniform(0.0, 0.05))  # the moment of the kill is what is tried here
        pruner.send_signal(signal.SIGKILL)
        pruner.wait(timeout=10)
        assert all(entry.intact for entry in verify(full))
    release_uses(full.layout)
    report = prune(full, 0)
    assert report.complete
    assert list(full.layout.private.iterdir()) == []
    assert [key for key, _ in full.layout.entries()] == []
    assert usage(full).total_bytes == held_by(full.layout.root) <= 12 * 4096
