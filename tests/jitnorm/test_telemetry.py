from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from jitnorm.cache import Artifact, Store, load_or_build
from jitnorm.cache.events import emit
from python_process import run_python

import jitnorm
from jitnorm.telemetry import Stats

KEYS = [f"{number:064x}" for number in range(4)]
USE_ONE_KERNEL = """
import json
from dataclasses import asdict
import jitnorm
jitnorm.get_kernel("rmsnorm:hidden_size=64,input=float16")
print(json.dumps(asdict(jitnorm.stats())))
"""

FORK = """
import os
import jitnorm
from jitnorm.cache.events import emit
emit("miss", key="")
print(jitnorm.stats().misses, end=" ", flush=True)
child = os.fork()
if child == 0:
    print(jitnorm.stats().misses, end=" ", flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""


def difference(before: Stats, after: Stats) -> dict[str, Any]:
    """The difference of two snapshots, without the times."""
    changed: dict[str, Any] = {}
    for name, value in vars(after).items():
        old = getattr(before, name)
        if isinstance(value, dict):
            value = {tier: count - old.get(tier, 0) for tier, count in value.items() if count != old.get(tier, 0)}
            old = {}
        else:
            value, old = value - old, 0
        if value != old and not name.endswith("seconds"):
            changed[name] = value
    return changed


def test_a_build_and_a_hit_are_counted(tmp_path: Path) -> None:
    store = Store(tmp_path)
    before = jitnorm.stats()
    load_or_build(store, KEYS[0], lambda: Artifact(b"12345", {}))
    assert difference(before, jitnorm.stats()) == {"misses": 1, "builds": 1, "bytes_built": 5, "publishes": 1}
    before = jitnorm.stats()
    load_or_build(store, KEYS[0], lambda: pytest.fail("built"))
    assert difference(before, jitnorm.stats()) == {"hits": {f"user {tmp_path}": 1}, "bytes_loaded": 5}
    assert jitnorm.stats().load_seconds > before.load_seconds


def test_every_kind_of_event_is_counted() -> None:
    before = jitnorm.stats()
    emit("tier_failed", tier="remote s3://bucket", reason="no route")
    emit("copy_up", key=KEYS[0], tier="remote s3://bucket")
    emit("lock_wait", key=KEYS[0], seconds=0.5, holder="process 1")
    emit("quarantine", key=KEYS[0], reason="damaged")
    emit("evict", key=KEYS[0], bytes=7)
    after = jitnorm.stats()
    assert difference(before, after) == {
        "tier_failures": {"remote s3://bucket": 1},
        "copies_up": 1,
        "lock_waits": 1,
        "quarantined": 1,
        "evictions": 1,
        "bytes_evicted": 7,
    }
    assert after.lock_wait_seconds - before.lock_wait_seconds == pytest.approx(0.5)


def test_counters_do_not_lose_events_of_threads() -> None:
    before = jitnorm.stats().misses
    threads = [threading.Thread(target=lambda: [emit("miss", key=KEYS[0]) for _ in range(500)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert jitnorm.stats().misses - before == 4000


def test_what_was_returned_does_not_change() -> None:
    before = jitnorm.stats()
    copy = difference(Stats(), before)
    emit("hit", tier="user", key=KEYS[0], seconds=0.0, bytes=1)
    assert difference(Stats(), before) == copy


def test_a_forked_child_begins_at_zero(tmp_path: Path) -> None:
    assert run_python(FORK, cwd=tmp_path) == "1 0 "


def test_callbacks_hear_of_events_until_they_unsubscribe(tmp_path: Path) -> None:
    heard: list[tuple[str, Mapping[str, Any]]] = []
    unsubscribe = jitnorm.subscribe(lambda kind, fields: heard.append((kind, fields)))
    load_or_build(Store(tmp_path), KEYS[0], lambda: Artifact(b"12345", {"backend": "nvrtc"}))
    unsubscribe()
    load_or_build(Store(tmp_path), KEYS[1], lambda: Artifact(b"12345", {}))
    assert [kind for kind, _ in heard] == ["miss", "build", "publish"]
    assert {fields["key"] for _, fields in heard} == {KEYS[0]}
    assert heard[1][1]["backend"] == "nvrtc"


def test_a_callback_that_fails_does_not_reach_the_call(tmp_path: Path) -> None:
    unsubscribe = jitnorm.subscribe(lambda kind, fields: 1 / 0)
    try:
        assert load_or_build(Store(tmp_path), KEYS[0], lambda: Artifact(b"1", {})).payload == b"1"
    finally:
        unsubscribe()


def test_a_second_process_loads_what_the_first_one_built(tmp_path: Path) -> None:
    first, second = (
        json.loads(run_python(USE_ONE_KERNEL, cwd=tmp_path, JITNORM_CACHE_DIR=str(tmp_path / "cache")))
        for _ in range(2)
    )
    assert (first["builds"], first["hits"]) == (2, {})  # the kernel and the launcher
    assert (second["builds"], list(second["hits"].values())) == (0, [2])
    assert second["bytes_loaded"] == first["bytes_built"] > 0
