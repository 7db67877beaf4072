"""Tiers are searched in order; failing ones are skipped, and entries of remote ones are copied to the user's cache."""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jitnorm.cache import (
    Artifact,
    Cache,
    CacheError,
    CacheTrustError,
    Store,
    failed_tiers,
    make_key,
    open_cache,
)
from jitnorm.cache.events import subscribe

SOURCE = make_key({"source": "int f();"})


@pytest.fixture
def events() -> Any:
    seen: list[tuple[str, Any]] = []
    unsubscribe = subscribe(lambda kind, fields: seen.append((kind, fields.get("tier"))))
    yield seen
    unsubscribe()


@pytest.fixture
def make_read_only(tmp_path: Path) -> Callable[..., Store]:
    def make(name: str, key: str, artifact: Artifact) -> Store:
        Store(tmp_path / name).publish(key, artifact)
        return Store(tmp_path / name, writable=False, name=name)

    return make


def test_the_first_tier_that_has_an_artifact_serves_it(
    store: Store, key: str, make_read_only: Callable[..., Store], events: list[Any]
) -> None:
    store.publish(key, Artifact(b"user", {}))
    cache = Cache(
        store, above=[make_read_only("a", key, Artifact(b"a", {})), make_read_only("b", key, Artifact(b"b", {}))]
    )
    events.clear()
    found = cache.load(key)
    assert found is not None
    assert found.payload == b"a"
    assert events == [("hit", "a")]
    assert [tier.name for tier in cache.tiers] == ["a", "b", f"user {store.layout.root}"]


def test_an_artifact_that_cannot_be_used_here_is_passed_over(
    store: Store, key: str, make_read_only: Callable[..., Store]
) -> None:
    cache = Cache(store, above=[make_read_only("a", key, Artifact(b"a", {"ok": False}))])
    accept = lambda artifact: artifact.manifest["ok"]  # noqa: E731
    assert cache.load(key, accept) is None
    assert cache.load_or_build(key, lambda: Artifact(b"built", {"ok": True}), accept=accept).payload == b"built"
    assert cache.load(key, accept) == Artifact(b"built", {"ok": True})


def test_a_hit_in_a_read_only_tier_is_not_built_and_not_copied(
    store: Store, key: str, make_read_only: Callable[..., Store]
) -> None:
    cache = Cache(store, above=[make_read_only("a", key, Artifact(b"a", {}))])
    assert cache.load_or_build(key, lambda: pytest.fail("built")).payload == b"a"
    assert not store.layout.root.exists()


def test_a_miss_is_built_once_and_told(store: Store, key: str, events: list[Any]) -> None:
    cache = Cache(store)
    assert cache.load_or_build(key, lambda: Artifact(b"built", {})).payload == b"built"
    assert cache.load_or_build(key, lambda: pytest.fail("built")).payload == b"built"
    assert [kind for kind, _ in events if kind not in ("publish", "lock_wait")] == ["miss", "build", "hit"]


def test_a_source_is_found_in_the_first_tier_that_has_it(store: Store, make_read_only: Callable[..., Store]) -> None:
    by_nvcc, by_nvrtc = (Artifact(name, {"source_key": SOURCE}) for name in (b"nvcc", b"nvrtc"))
    store.publish("1" * 64, by_nvcc)
    cache = Cache(store, above=[make_read_only("a", "2" * 64, by_nvrtc)])
    assert cache.load_source(SOURCE) == by_nvrtc
    assert cache.load_source(SOURCE, lambda found: found.payload == b"nvcc") == by_nvcc
    assert cache.load_source("3" * 64) is None


def test_a_tier_that_cannot_be_read_is_passed_over_with_one_warning_and_remembered(
    store: Store,
    key: str,
    make_read_only: Callable[..., Store],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    tier = make_read_only("stale mount", key, Artifact(b"a", {}))
    real = os.open

    def fail(path: Any, *arguments: Any, **options: Any) -> int:
        if str(path).startswith(str(tier.layout.root)):
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return real(path, *arguments, **options)

    monkeypatch.setattr(os, "open", fail)
    cache = Cache(store, above=[tier])
    for _ in range(2):
        assert cache.load_or_build(key, lambda: Artifact(b"built", {})).payload == b"built"
    assert [record.getMessage() for record in caplog.records] == [
        "skipping the cache tier stale mount: [Errno 116] Stale file handle"
    ]
    assert "Stale" in failed_tiers()["stale mount"]


# Read-only folders.


def test_the_folders_of_the_variable_are_read_in_order(
    tmp_path: Path, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        Store(tmp_path / name).publish(key, Artifact(name.encode(), {}))
    Store(tmp_path / "b").publish("1" * 64, Artifact(b"only in b", {}))
    monkeypatch.setenv("JITNORM_CACHE_DIR", str(tmp_path / "user"))
    monkeypatch.setenv("JITNORM_READONLY_CACHE", f"{tmp_path / 'a'}{os.pathsep}{tmp_path / 'b'}{os.pathsep}")
    cache = open_cache()
    assert cache.load(key) == Artifact(b"a", {})
    assert cache.load("1" * 64) == Artifact(b"only in b", {})
    assert [tier.name for tier in cache.tiers][:2] == [f"read-only {tmp_path / 'a'}", f"read-only {tmp_path / 'b'}"]


def test_nothing_is_ever_written_to_a_read_only_folder(
    tmp_path: Path, key: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Not even a damaged entry is quarantined; it is reported, and built into the user's cache."""
    folder = Store(tmp_path / "a")
    folder.publish(key, Artifact(b"good", {}))
    payload = folder.layout.entry(key) / "payload"
    payload.write_bytes(b"evil")
    before = {path: path.stat().st_mtime_ns for path in sorted((tmp_path / "a").rglob("*"))}
    for path in [tmp_path / "a", *before]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    monkeypatch.setenv("JITNORM_CACHE_DIR", str(tmp_path / "user"))
    monkeypatch.setenv("JITNORM_READONLY_CACHE", str(tmp_path / "a"))
    cache = open_cache()
    assert cache.load_or_build(key, lambda: Artifact(b"built", {})).payload == b"built"
    assert cache.load(key) == Artifact(b"built", {})
    assert {path: path.stat().st_mtime_ns for path in sorted((tmp_path / "a").rglob("*"))} == before
    assert str(folder.layout.entry(key)) in caplog.text
    for path in [tmp_path / "a", *before]:
        path.chmod(0o700)


def test_a_missing_read_only_folder_is_passed_over_with_one_warning(
    tmp_path: Path, key: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("JITNORM_CACHE_DIR", str(tmp_path / "user"))
    monkeypatch.setenv("JITNORM_READONLY_CACHE", str(tmp_path / "missing"))
    for _ in range(2):
        assert open_cache().load_or_build(key, lambda: Artifact(b"built", {})).payload == b"built"
    (warning,) = (record for record in caplog.records if record.levelno == logging.WARNING)
    assert str(tmp_path / "missing") in warning.getMessage()
    assert "No such file" in failed_tiers()[f"read-only {tmp_path / 'missing'}"]


@pytest.mark.parametrize("folder", ["", "v1"])
@pytest.mark.parametrize("mode", [0o775, 0o757])
def test_a_read_only_folder_that_others_can_write_to_is_refused_by_name(
    tmp_path: Path, key: str, monkeypatch: pytest.MonkeyPatch, folder: str, mode: int
) -> None:
    Store(tmp_path / "a").publish(key, Artifact(b"evil", {}))
    (tmp_path / "a" / folder).chmod(mode)
    monkeypatch.setenv("JITNORM_CACHE_DIR", str(tmp_path / "user"))
    monkeypatch.setenv("JITNORM_READONLY_CACHE", str(tmp_path / "a"))
    with pytest.raises(CacheTrustError, match=f"{tmp_path / 'a' / folder}.*others can write.*chmod -R go-w"):
        open_cache()
    monkeypatch.setenv("JITNORM_CACHE_TRUST", "any")
    assert open_cache().load(key) == Artifact(b"evil", {})


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to somebody else")
def test_a_read_only_folder_of_a_stranger_is_refused_by_name(
    tmp_path: Path, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Store(tmp_path / "a").publish(key, Artifact(b"evil", {}))
    os.chown(tmp_path / "a", 65534, -1)
    monkeypatch.setenv("JITNORM_CACHE_DIR", str(tmp_path / "user"))
    monkeypatch.setenv("JITNORM_READONLY_CACHE", str(tmp_path / "a"))
    with pytest.raises(CacheTrustError, match="belongs to user 65534"):
        open_cache()


def test_a_folder_of_root_serves_everybody(tmp_path: Path, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from jitnorm.cache.readonly import open_read_only

    Store(tmp_path / "a").publish(key, Artifact(b"root's", {}))
    fstat = os.fstat

    def owned_by_root(descriptor: int) -> os.stat_result:
        found = fstat(descriptor)
        return os.stat_result((*found[:4], 0, *found[5:]))

    monkeypatch.setattr(os, "fstat", owned_by_root)
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    assert open_read_only(tmp_path / "a", "a").load(key) == Artifact(b"root's", {})


@pytest.mark.parametrize(
    ("variable", "value", "allowed"),
    [
        ("JITNORM_REMOTE_MODE", "write", "read and readwrite"),
        ("JITNORM_REMOTE_TIMEOUT", "soon", "more than 0"),
        ("JITNORM_REMOTE_TIMEOUT", "0", "more than 0"),
        ("JITNORM_REMOTE_TIMEOUT", "inf", "more than 0"),
        ("JITNORM_CACHE_TRUST", "all", "'any'"),
    ],
)
def test_a_value_that_is_not_allowed_is_an_error_that_says_what_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, allowed: str
) -> None:
    monkeypatch.setenv("JITNORM_CACHE_DIR", str(tmp_path / "user"))
    monkeypatch.setenv(variable, value)
    with pytest.raises(CacheError, match=f"{variable} is '{value}'.*{allowed}"):
        open_cache()


def test_a_present_artifact_is_found_and_verified_within_milliseconds(
    store: Store, key: str, record_property: Callable[[str, object], None]
) -> None:
    """The artifact has 200 kB, like a kernel or the launcher, and is in the last of three folder tiers."""
    store.publish(key, Artifact(os.urandom(200_000), {"recipe": "x" * 2000}))
    above = [Store(store.layout.root / name, writable=False) for name in ("a", "b")]
    cache = Cache(store, above=above)
    times = []
    for _ in range(50):
        began = time.perf_counter()
        assert cache.load(key) is not None
        times.append((time.perf_counter() - began) * 1e3)
    record_property("lookup of a present key, milliseconds", min(times))
    print(f"lookup of a present key of 200 kB: {min(times):.3f} ms, median {sorted(times)[25]:.3f} ms")
    assert min(times) < 3


def test_a_cache_of_one_store_is_as_fast_as_the_store(store: Store, key: str) -> None:
    store.publish(key, Artifact(b"x" * 20_000, {}))
    cache = Cache(store)

    def batch(load: Callable[[str], object]) -> float:
        began = time.perf_counter()
        for _ in range(5):
            load(key)
        return (time.perf_counter() - began) / 5 * 1e6

    # In short turns, some of which no other process interrupts.
    pairs = [(batch(store.load), batch(cache.load)) for _ in range(100)]
    alone, chained = map(min, zip(*pairs, strict=True))
    print(f"a store alone {alone:.1f} us, a cache of it {chained:.1f} us")
    assert chained - alone < 100
