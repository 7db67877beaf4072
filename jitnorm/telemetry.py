"""Counts what this process gets from its cache, and lets callers subscribe to events."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from jitnorm.cache.events import subscribe as subscribe_to_cache


@dataclass(frozen=True)
class Stats:
    """Counters of the cache since this process started; a forked child starts at zero.

    Calls of a loaded kernel are not counted, because they run no Python.

    Attributes:
        hits: artifacts found, by the name of the tier.
        misses: artifacts found in no tier.
        builds: artifacts built by this process.
        build_seconds: total time of these builds.
        bytes_loaded: payload bytes of the artifacts found.
        bytes_built: payload bytes of the artifacts built.
        load_seconds: total time to load and verify the artifacts found.
        publishes: artifacts stored in the cache folder.
        copies_up: artifacts of other tiers copied to the cache folder.
        lock_waits: waits for another builder of the same artifact.
        lock_wait_seconds: total time of these waits.
        tier_failures: failures of tiers, by name; a failed tier is skipped from then on.
        quarantined: damaged entries moved to the quarantine.
        evictions: entries removed to keep the folder within its budget.
        bytes_evicted: bytes of these entries.

    Example:
        >>> stats().builds + sum(stats().hits.values()) >= 0
        True
    """

    hits: Mapping[str, int] = field(default_factory=dict)
    misses: int = 0
    builds: int = 0
    build_seconds: float = 0.0
    bytes_loaded: int = 0
    bytes_built: int = 0
    load_seconds: float = 0.0
    publishes: int = 0
    copies_up: int = 0
    lock_waits: int = 0
    lock_wait_seconds: float = 0.0
    tier_failures: Mapping[str, int] = field(default_factory=dict)
    quarantined: int = 0
    evictions: int = 0
    bytes_evicted: int = 0


# What each event adds to its counters: 1, or the value of a field.
_COUNTERS: Mapping[str, Mapping[str, str]] = {
    "hit": {"bytes_loaded": "bytes", "load_seconds": "seconds"},
    "miss": {"misses": ""},
    "build": {"builds": "", "build_seconds": "seconds", "bytes_built": "bytes"},
    "publish": {"publishes": ""},
    "copy_up": {"copies_up": ""},
    "lock_wait": {"lock_waits": "", "lock_wait_seconds": "seconds"},
    "quarantine": {"quarantined": ""},
    "evict": {"evictions": "", "bytes_evicted": "bytes"},
}
# Events counted by tier.
_BY_TIER = {"hit": "hits", "tier_failed": "tier_failures"}


class _Counts:
    """Thread-safe counters."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.totals: dict[str, Any] = {}
        self.by_tier: dict[str, dict[str, int]] = {name: {} for name in _BY_TIER.values()}

    def add(self, kind: str, fields: Mapping[str, Any]) -> None:
        with self.lock:
            for name, source in _COUNTERS.get(kind, {}).items():
                self.totals[name] = self.totals.get(name, 0) + (fields[source] if source else 1)
            if kind in _BY_TIER:
                tiers = self.by_tier[_BY_TIER[kind]]
                tiers[fields["tier"]] = tiers.get(fields["tier"], 0) + 1

    def read(self) -> Stats:
        with self.lock:
            by_tier: dict[str, Any] = {name: dict(tiers) for name, tiers in self.by_tier.items()}
            return Stats(**self.totals, **by_tier)


_counts = _Counts()


def stats() -> Stats:
    """Return the counters of the cache since this process started.

    Example:
        >>> isinstance(stats().misses, int)
        True
    """
    return _counts.read()


def subscribe(callback: Callable[[str, Mapping[str, Any]], None]) -> Callable[[], None]:
    """Call ``callback(kind, fields)`` on every event in the cache of this process.

    The callback runs in the thread of the event, possibly in several at once, and should be fast. Its exceptions are
    logged and do not reach the call. docs/cache.md lists the kinds and their fields.

    Args:
        callback: takes the kind (``"hit"``, ``"miss"``, ``"build"``, ...) and the fields, which it must not modify.

    Returns:
        A function without arguments that unsubscribes the callback.

    Raises:
        TypeError: ``callback`` is not callable.

    Example:
        >>> unsubscribe = subscribe(lambda kind, fields: print(kind, fields))
        >>> unsubscribe()
    """
    return subscribe_to_cache(callback)


def _count(kind: str, fields: Mapping[str, Any]) -> None:
    _counts.add(kind, fields)


def _begin_anew() -> None:
    # Another thread may have held the lock during the fork.
    global _counts
    _counts = _Counts()


subscribe_to_cache(_count)
os.register_at_fork(after_in_child=_begin_anew)
