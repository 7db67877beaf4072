"""Builders killed without warning, at chosen and at random moments."""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from jitnorm.cache import Artifact, Store, load_or_build

StartWorker = Callable[..., "subprocess.Popen[str]"]


def kill(worker: subprocess.Popen[str]) -> None:
    worker.kill()
    worker.wait(timeout=10)


def assert_nothing_partial_is_visible(store: Store, key: str) -> None:
    place = store.layout.entry(key)
    assert not place.exists() or store.load(key) is not None
    assert not store.layout.quarantine.exists()


def assert_the_next_caller_builds_and_cleans_up(store: Store, key: str) -> None:
    began = time.monotonic()
    artifact = Artifact(b"x" * 10_000, {"built": True})
    assert load_or_build(store, key, lambda: artifact, timeout=30) == artifact
    assert time.monotonic() - began < 10
    assert store.load(key) == artifact
    store.publish(key, artifact)
    assert list(store.layout.private.iterdir()) == []


def test_a_builder_killed_while_it_builds(store: Store, key: str, start_worker: StartWorker) -> None:
    worker = start_worker("hang_in_build", root=store.layout.root, key=key)
    assert worker.stdout is not None
    assert worker.stdout.readline() == "building\n"
    kill(worker)
    assert_nothing_partial_is_visible(store, key)
    assert_the_next_caller_builds_and_cleans_up(store, key)


@pytest.mark.parametrize(
    ("call", "at", "visible"),
    [
        pytest.param("write", 1, False, id="half a payload"),
        pytest.param("fsync", 1, False, id="payload not synced"),
        pytest.param("write", 2, False, id="half a manifest"),
        pytest.param("fsync", 2, False, id="manifest not synced"),
        pytest.param("fsync", 3, False, id="folder not synced"),
        pytest.param("fsync", 4, True, id="renamed, parent not synced"),
    ],
)
def test_a_builder_killed_while_it_publishes(
    store: Store, key: str, start_worker: StartWorker, call: str, at: int, visible: bool
) -> None:
    worker = start_worker("hang_in_publish", root=store.layout.root, key=key, call=call, at=at)
    assert worker.stdout is not None
    assert worker.stdout.readline() == "publishing\n"
    kill(worker)
    assert store.layout.entry(key).exists() == visible
    assert len(list(store.layout.private.iterdir())) == (0 if visible else 1)
    assert_nothing_partial_is_visible(store, key)
    assert_the_next_caller_builds_and_cleans_up(store, key)


@pytest.mark.parametrize("round_", range(8))
def test_a_builder_killed_at_any_moment(
    store: Store, key: str, tmp_path: Path, start_worker: StartWorker, round_: int
) -> None:
    worker = start_worker(
        "build_when_told",
        root=store.layout.root,
        key=key,
        log=tmp_path / "builds",
        timeout=30,
        build_seconds=0,
        size=10_000,
    )
    assert worker.stdout is not None
    assert worker.stdin is not None
    assert worker.stdout.readline() == "ready\n"
    worker.stdin.write("go\n")
    worker.stdin.flush()
    time.sleep(random.Random(round_).uniform(0.0, 0.08))  # the moment of the kill is what is tried here
    kill(worker)
    assert_nothing_partial_is_visible(store, key)
    if store.load(key) is None:
        assert_the_next_caller_builds_and_cleans_up(store, key)
