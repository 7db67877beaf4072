"""Measures the cache's disk space, and keeps it within budget by removing the least recently used entries first."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jitnorm.cache.budget import BUDGET_VARIABLE
from jitnorm.cache.errors import CacheUnusableError
from jitnorm.cache.flock import locked_alone
from jitnorm.cache.measure import survey
from jitnorm.cache.removal import Pruned, Removal
from jitnorm.cache.uses import keys_in_use
from jitnorm.cache.warn import warn_once

if TYPE_CHECKING:
    from jitnorm.cache.store import Store

_PRUNE_TO = 0.9


@dataclass(frozen=True)
class Usage:
    """The disk space of a cache, in blocks of files and folders.

    Attributes:
        entries: how many entries.
        payload_bytes: bytes of their payloads, as they are loaded.
        entry_bytes: disk space of the entries.
        quarantine_bytes: disk space of the entries that failed verification.
        private_bytes: disk space of entries being written or removed.
        other_bytes: disk space of everything else: aliases, locks, uses, records, and the folders themselves.
        entries_in_use: how many of the entries are loaded by living processes.
        is_estimate: whether time ran out before everything was measured; then all of these are estimates.
    """

    entries: int
    payload_bytes: int
    entry_bytes: int
    quarantine_bytes: int
    private_bytes: int
    other_bytes: int
    entries_in_use: int
    is_estimate: bool

    @property
    def total_bytes(self) -> int:
        """Disk space that counts against the budget."""
        return self.entry_bytes + self.quarantine_bytes + self.private_bytes + self.other_bytes


def usage(store: Store, seconds: float = math.inf) -> Usage:
    """Measure a cache.

    Args:
        store: the cache.
        seconds: how long to look at entries; the rest is then estimated from those seen. By default, all are seen.
    """
    end = time.monotonic() + seconds
    found = survey(store.layout, lambda: time.monotonic() > end)
    in_use = keys_in_use(store.layout, dry_run=True)

    def whole(part: int) -> int:
        return round(part / found.share)

    return Usage(
        entries=whole(len(found.entries)),
        payload_bytes=whole(sum(item.payload_size for item in found.entries)),
        entry_bytes=whole(sum(item.space for item in found.entries)),
        quarantine_bytes=sum(item.space for item in found.quarantine),
        private_bytes=found.private_space,
        other_bytes=whole(found.shard_space) + found.other_space,
        entries_in_use=whole(sum(item.name in in_use for item in found.entries)),
        is_estimate=not found.is_whole,
    )


def prune(store: Store, max_bytes: int, *, dry_run: bool = False, seconds: float = 600.0) -> Pruned:
    """Remove the least recently used entries until a cache takes at most ``max_bytes`` of disk space.

    This first removes leftovers of dead processes, dangling aliases, locks that nobody holds, and entries quarantined
    for 30 days; then the rest of the quarantine, oldest first; then entries. Entries that living processes have loaded
    stay, and those marked `EVICT_LAST` go last.

    Args:
        store: the cache.
        max_bytes: what may stay, 0 or more.
        dry_run: only say what would be removed.
        seconds: how long it may take.

    Raises:
        ValueError: ``max_bytes`` is negative.
        CacheUnusableError: the cache is read-only, and this is no dry run.
    """
    if max_bytes < 0:
        raise ValueError(f"max_bytes is {max_bytes}; allowed are 0 and more")
    return _remove(store, max_bytes, spare_uses=True, dry_run=dry_run, seconds=seconds)


def clear(store: Store, *, force: bool = False, dry_run: bool = False, seconds: float = 600.0) -> Pruned:
    """Remove every entry and the quarantine.

    Args:
        store: the cache.
        force: also remove what living processes have loaded. That does them no harm: they keep it in memory.
        dry_run: only say what would be removed.
        seconds: how long it may take.

    Raises:
        CacheUnusableError: the cache is read-only, and this is no dry run.
    """
    return _remove(store, 0, spare_uses=not force, dry_run=dry_run, seconds=seconds)


def keep_within_budget(store: Store, seconds: float, is_stopped: Callable[[], bool]) -> None:
    """Measure a cache and sweep it; if it is above its budget, prune it to nine tenths of that.

    Args:
        store: the cache.
        seconds: how long it may take.
        is_stopped: whether to give up; asked before every step.
    """
    budget, layout = store.max_bytes, store.layout
    if budget is None:
        return
    with locked_alone(layout.prune_lock) as alone:
        if not alone:
            return
        goal = int(budget * _PRUNE_TO)
        removal = Removal(layout, budget, goal=goal, dry_run=False, seconds=seconds, is_stopped=is_stopped, threads=0)
        done = removal.run()
    if done.complete and done.bytes_after > budget:
        text = "the cache folder %s takes %d bytes, more than %s allows (%d), all of them in use"
        warn_once("budget", layout.root, text, layout.root, done.bytes_after, BUDGET_VARIABLE, budget)


def _remove(store: Store, max_bytes: int, *, spare_uses: bool, dry_run: bool, seconds: float) -> Pruned:
    if not (store.writable or dry_run):
        raise CacheUnusableError(f"the cache folder {store.layout.root} cannot be written, so nothing can be removed")
    if dry_run:
        return Removal(store.layout, max_bytes, spare_uses=spare_uses, dry_run=True, seconds=seconds).run()
    with locked_alone(store.layout.prune_lock) as alone:
        if not alone:
            return Pruned(0, 0, complete=False)
        return Removal(store.layout, max_bytes, spare_uses=spare_uses, dry_run=False, seconds=seconds).run()
