"""Load an artifact, or build it once for everybody who waits for it."""

from __future__ import annotations

from collections.abc import Callable

from jitnorm.cache.artifact import Artifact
from jitnorm.cache.lock import key_lock, wait_bound
from jitnorm.cache.store import Store
from jitnorm.cache.warn import warn_once


def load_or_build(store: Store, key: str, build: Callable[[], Artifact], *, timeout: float | None = None) -> Artifact:
    """Return the artifact stored under ``key``; build and store it if there is none.

    Processes and threads that miss together build once: the others wait. Whoever waits longer than
    ``timeout``, or works on a file system without locks, builds privately. An artifact that cannot be stored
    is returned all the same, and a warning is logged once.

    Args:
        store: where to look and to publish.
        key: what the artifact is stored under, from ``make_key``.
        build: makes the artifact. Must not itself ask for ``key``.
        timeout: seconds to wait for another builder, 0 to 86400. Default: ``JITNORM_LOCK_TIMEOUT``, else 120.

    Raises:
        Exception: whatever ``build`` raises. Nothing is stored then, and the next one who waits builds.
        TypeError: ``build`` returned something else than an ``Artifact``.
        ValueError: ``key`` or ``timeout`` is not valid.
        CacheError: ``JITNORM_LOCK_TIMEOUT`` is not valid.

    Example:
        >>> import pathlib, tempfile
        >>> store = Store(pathlib.Path(tempfile.mkdtemp()))
        >>> load_or_build(store, "0" * 64, lambda: Artifact(b"code", {})).payload
        b'code'
    """
    seconds = wait_bound(timeout)
    found = store.load(key)
    if found is not None:
        return found
    if not store.writable:
        return _checked(build())
    with key_lock(store.layout, key, seconds):
        # Even without the lock: another process may have published during the wait.
        found = store.load(key)
        if found is not None:
            return found
        artifact = _checked(build())
        _publish_if_possible(store, key, artifact)
        return artifact


def _checked(built: object) -> Artifact:
    if not isinstance(built, Artifact):
        raise TypeError(f"build returned a {type(built).__name__}; it must return an Artifact")
    return built


def _publish_if_possible(store: Store, key: str, artifact: Artifact) -> None:
    try:
        store.publish(key, artifact)
    except OSError as error:
        warn_once(
            "publish",
            store.layout.root,
            "cannot store in the cache folder %s: %s. What is built is kept in memory only; "
            "free or repair its disk, or set JITNORM_CACHE_DIR to another folder",
            store.layout.root,
            error,
        )
