"""Builds missing artifacts, once for all callers that wait for them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import perf_counter

from jitnorm.cache.artifact import Artifact, encode_manifest
from jitnorm.cache.events import emit
from jitnorm.cache.lock import key_lock
from jitnorm.cache.store import Store
from jitnorm.cache.warn import warn_once

# Returns the signature file of a manifest file.
Sign = Callable[[bytes], bytes]


def build_once(
    store: Store,
    key: str,
    build: Callable[[], Artifact],
    find: Callable[[], Artifact | None],
    seconds: float,
    sign: Sign | None = None,
) -> Artifact:
    """Build and store a missing artifact, unless another process does so first.

    Args:
        store: the store to lock and to publish to.
        key: the key of the artifact.
        build: returns the artifact.
        find: looks the artifact up again, in all tiers, once the lock is held.
        seconds: how long to wait for another builder, and then as long for a second one.
        sign: signs the stored artifact, if given.
    """
    if not store.writable:
        return find() or _build(key, build)
    with key_lock(store.layout, key, seconds, _arrival(store.layout.entry(key))):
        # Even without the lock, because another process may have published during the wait.
        found = find()
        if found is not None:
            return found
        artifact = _build(key, build)
        store_if_possible(store, key, artifact, sign(encode_manifest(key, artifact)) if sign else None)
        return artifact


def store_if_possible(store: Store, key: str, artifact: Artifact, signature: bytes | None = None) -> bool:
    """Publish an artifact and return whether that worked; failures log one warning per process and store."""
    try:
        store.publish(key, artifact, signature)
    except OSError as error:
        warn_once(
            "publish",
            store.layout.root,
            "cannot store in the cache folder %s: %s. New builds are kept in memory only; "
            "free or repair its disk, or set JITNORM_CACHE_DIR to another folder",
            store.layout.root,
            error,
        )
        return False
    return True


def _arrival(place: Path) -> Callable[[], bool]:
    """Return a function that tells whether a new entry has appeared in a place; an existing one does not count."""
    before = _file_number(place)
    return lambda: _file_number(place) not in (None, before)


def _file_number(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:
        return None


def _build(key: str, build: Callable[[], object]) -> Artifact:
    began = perf_counter()
    built = build()
    if not isinstance(built, Artifact):
        raise TypeError(f"build returned a {type(built).__name__}; it must return an Artifact")
    backend = str(built.manifest.get("backend", ""))
    emit("build", key=key, backend=backend, seconds=perf_counter() - began, bytes=len(built.payload))
    return built
