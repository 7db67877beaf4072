"""The cache: a chain of tiers that are searched in order, one of which is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Protocol

from jitnorm.cache.aliases import source_key_of
from jitnorm.cache.artifact import Artifact, encode_manifest
from jitnorm.cache.build import Sign, build_once, store_if_possible
from jitnorm.cache.events import emit
from jitnorm.cache.lock import wait_bound
from jitnorm.cache.store import Store

if TYPE_CHECKING:
    from jitnorm.cache.remote import RemoteTier

# Whether an artifact can be used here; if not, the search continues in the next tier.
Accept = Callable[[Artifact], bool]


class Tier(Protocol):
    """A place to look up artifacts: a `Store`, or a remote one.

    Attributes:
        name: its kind and location, such as ``user /home/me/.cache/jitnorm``.
    """

    name: str

    def load(self, key: str) -> Artifact | None:
        """Load and verify the artifact stored under ``key``, or return None. Failures are recorded and return None."""

    def keys_of(self, source_key: str) -> tuple[str, ...]:
        """Keys of artifacts of a source that may be here, the newest last; only hints."""


class Cache:
    """A cache of artifacts by key, in several tiers; see docs/cache.md.

    Args:
        store: the user's cache, which is written.
        above: tiers to search before it: wheels, then read-only folders.
        remote: the tier to search after it. Hits are copied to the store.
        sign: signs stored builds.

    Attributes:
        store: as given.
        remote: as given.
        tiers: all tiers, in search order.

    Example:
        >>> import pathlib, tempfile
        >>> cache = Cache(Store(pathlib.Path(tempfile.mkdtemp())))
        >>> cache.load_or_build("0" * 64, lambda: Artifact(b"code", {})).payload
        b'code'
    """

    def __init__(
        self,
        store: Store,
        *,
        above: Sequence[Store] = (),
        remote: RemoteTier | None = None,
        sign: Sign | None = None,
    ) -> None:
        self.store, self.remote, self.sign = store, remote, sign
        self._local: tuple[Tier, ...] = (*above, store)
        self._below: tuple[Tier, ...] = () if remote is None else (remote,)
        self.tiers: tuple[Tier, ...] = (*self._local, *self._below)

    def load(self, key: str, accept: Accept | None = None) -> Artifact | None:
        """Load the artifact stored under ``key`` from the first tier that has it, or return None.

        Args:
            key: the key of the artifact.
            accept: whether an artifact can be used here.
        """
        return self._find(key, self.tiers, accept)

    def load_source(self, source_key: str, accept: Accept | None = None) -> Artifact | None:
        """Load an artifact of a source, whatever built it, from the first tier that has one, or return None.

        Args:
            source_key: the ``source_key`` in the manifest of the artifact.
            accept: whether an artifact can be used here.
        """

        def is_wanted(artifact: Artifact) -> bool:
            return source_key_of(artifact) == source_key and (accept is None or accept(artifact))

        for tier in self.tiers:
            for key in reversed(tier.keys_of(source_key)):
                found = self._find(key, (tier,), is_wanted)
                if found is not None:
                    return found
        return None

    def load_or_build(
        self,
        key: str,
        build: Callable[[], Artifact],
        *,
        timeout: float | None = None,
        accept: Accept | None = None,
    ) -> Artifact:
        """Return the artifact stored under ``key``; build and store it if no tier has it.

        Concurrent misses query the remote tier and build once. For errors see `load_or_build`, the same for a single
        store.

        Args:
            key: the key of the artifact, from ``make_key``.
            build: returns the artifact. Must not itself ask for ``key``.
            timeout: seconds to wait for another builder, and then as long for a second one. Default:
                ``JITNORM_LOCK_TIMEOUT``, else 120.
            accept: whether a found artifact can be used here; if not, it counts as missing.
        """
        seconds = wait_bound(timeout)
        began = perf_counter()
        found = self._find(key, self._local, accept)
        if found is not None:
            return found
        looked = perf_counter() - began
        is_new = False

        def build_missing() -> Artifact:
            nonlocal is_new
            emit("miss", key=key, seconds=looked)
            built = build()
            is_new = True
            return built

        def find_again() -> Artifact | None:
            return self._find(key, (self.store, *self._below), accept)

        artifact = build_once(self.store, key, build_missing, find_again, seconds, self.sign)
        if is_new and self.remote is not None:
            self.remote.publish_soon(key, artifact, self.sign(encode_manifest(key, artifact)) if self.sign else None)
        return artifact

    def _find(self, key: str, tiers: Sequence[Tier], accept: Accept | None) -> Artifact | None:
        for tier in tiers:
            began = perf_counter()
            signature = None
            if tier is self.remote:
                found, signature = self.remote.fetch(key)
            else:
                found = tier.load(key)
            if found is None or (accept is not None and not accept(found)):
                continue
            emit("hit", tier=tier.name, key=key, seconds=perf_counter() - began, bytes=len(found.payload))
            is_far = tier is self.remote and self.store.writable
            if is_far and store_if_possible(self.store, key, found, signature):
                emit("copy_up", tier=tier.name, key=key, bytes=len(found.payload))
            return found
        return None


def load_or_build(store: Store, key: str, build: Callable[[], Artifact], *, timeout: float | None = None) -> Artifact:
    """Return the artifact stored under ``key``; build and store it if there is none.

    Concurrent misses build once: one builds, the others wait. Of those who wait longer than ``timeout``, one builds;
    whoever waits longer for that one, or works on a file system without locks, builds privately. An artifact that
    cannot be stored is returned anyway, with one logged warning.

    Args:
        store: the store to search and publish to.
        key: the key of the artifact, from ``make_key``.
        build: returns the artifact. Must not itself ask for ``key``.
        timeout: seconds to wait for another builder, 0 to 86400, and then as long for a second one. Default:
            ``JITNORM_LOCK_TIMEOUT``, else 120.

    Raises:
        Exception: whatever ``build`` raises. Nothing is stored then, and the next one in line builds.
        TypeError: ``build`` did not return an ``Artifact``.
        ValueError: ``key`` or ``timeout`` is invalid.
        CacheError: ``JITNORM_LOCK_TIMEOUT`` is invalid.

    Example:
        >>> import pathlib, tempfile
        >>> store = Store(pathlib.Path(tempfile.mkdtemp()))
        >>> load_or_build(store, "0" * 64, lambda: Artifact(b"code", {})).payload
        b'code'
    """
    return Cache(store).load_or_build(key, build, timeout=timeout)
