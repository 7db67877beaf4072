"""What the cache takes, and how it is kept within its budget: what was used least recently goes first."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from jitnorm.cache.artifact import decode_manifest
from jitnorm.cache.budget import BUDGET_VARIABLE
from jitnorm.cache.errors import CacheUnusableError, CorruptEntryError
from jitnorm.cache.events import emit
from jitnorm.cache.files import open_folder, read_file
from jitnorm.cache.layout import MANIFEST, Layout
from jitnorm.cache.measure import Item, entry_items, items_in
from jitnorm.cache.private import discard, remove_stale
from jitnorm.cache.uses import keys_in_use
from jitnorm.cache.warn import warn_once

if TYPE_CHECKING:
    from jitnorm.cache.store import Store

EVICT_LAST = "evict_last"  # a manifest that holds it as true is of an entry that others depend on

_KEEP_QUARANTINE_SECONDS = 30 * 86400.0
_PRUNE_TO = 0.9
_MEASURE_EVERY_SECONDS = 60.0
_BACKGROUND_SECONDS = 5.0


@dataclass(frozen=True)
class Usage:
    """What a cache holds.

    Attributes:
        entries: how many entries.
        entry_bytes: bytes of their files.
        quarantine_bytes: bytes of the entries that failed verification.
        private_bytes: bytes of entries being written or removed.
        entries_in_use: how many of the entries living processes have loaded.
    """

    entries: int
    entry_bytes: int
    quarantine_bytes: int
    private_bytes: int
    entries_in_use: int

    @property
    def total_bytes(self) -> int:
        """What counts against the budget."""
        return self.entry_bytes + self.quarantine_bytes + self.private_bytes


@dataclass(frozen=True)
class Pruned:
    """What a pruning did, or would do.

    Attributes:
        bytes_before: what counted against the budget before.
        bytes_after: and after.
        evicted: the keys of the entries removed, in that order.
        quarantine_removed: how many quarantined entries were removed.
        spared: how many entries were in the way but in use.
        complete: whether it came to its end; not if its time ran out or another process is pruning.
    """

    bytes_before: int
    bytes_after: int
    evicted: tuple[str, ...] = ()
    quarantine_removed: int = 0
    spared: int = 0
    complete: bool = True


class _TimeOverError(Exception):
    pass


def usage(store: Store) -> Usage:
    """Measure a cache; takes as long as looking at every file in it."""
    layout = store.layout
    entries = list(entry_items(layout))
    in_use = keys_in_use(layout, dry_run=True)
    return Usage(
        len(entries),
        sum(item.size for item in entries),
        sum(item.size for item in items_in(layout.quarantine)),
        sum(item.size for item in items_in(layout.private)),
        sum(item.path.name in in_use for item in entries),
    )


def prune(store: Store, max_bytes: int, *, dry_run: bool = False, seconds: float = 600.0) -> Pruned:
    """Remove what was used least recently until a cache holds at most ``max_bytes``.

    First goes what dead processes left and what has been in quarantine for 30 days; then the quarantine, the oldest
    first; then entries. Entries that living processes have loaded stay, and those marked `EVICT_LAST` go last.

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


@dataclass(frozen=True)
class _Measured:
    when: float
    size: int


_measured: dict[Path, _Measured] = {}


def keep_within_budget(store: Store, added: int) -> None:
    """Prune after ``added`` bytes were published, if the cache passes its budget.

    What the cache holds is measured once a minute; in between only what this process adds is counted.
    """
    budget, root, now = store.max_bytes, store.layout.root, time.monotonic()
    if budget is None:
        return
    last = _measured.get(root)
    if last is None or now - last.when > _MEASURE_EVERY_SECONDS:
        keys_in_use(store.layout)  # removes the files of dead processes
        last = _Measured(now, usage(store).total_bytes)
    elif last.size > budget:
        return  # there was nothing more to remove
    else:
        last = _Measured(last.when, last.size + added)
    if last.size > budget:
        report = prune(store, int(budget * _PRUNE_TO), seconds=_BACKGROUND_SECONDS)
        # What another process is pruning meanwhile counts as pruned.
        last = _Measured(now, report.bytes_after if report.bytes_before else int(budget * _PRUNE_TO))
        if report.complete and report.bytes_after > budget:
            text = "the cache folder %s holds %d bytes, more than %s allows (%d), all of them in use"
            warn_once("budget", root, text, root, report.bytes_after, BUDGET_VARIABLE, budget)
    _measured[root] = last


def _remove(store: Store, max_bytes: int, *, spare_uses: bool, dry_run: bool, seconds: float) -> Pruned:
    if not (store.writable or dry_run):
        raise CacheUnusableError(f"the cache folder {store.layout.root} cannot be written, so nothing can be removed")
    if dry_run:
        return _Removal(store.layout, max_bytes, spare_uses, dry_run, seconds).run()
    with _pruning_alone(store.layout) as alone:
        if not alone:
            return Pruned(0, 0, complete=False)
        return _Removal(store.layout, max_bytes, spare_uses, dry_run, seconds).run()


class _Removal:
    """One pruning under way."""

    def __init__(self, layout: Layout, max_bytes: int, spare_uses: bool, dry_run: bool, seconds: float) -> None:
        self.layout = layout
        self.max_bytes = max_bytes
        self.dry_run = dry_run
        self.deadline = time.monotonic() + seconds
        self.in_use = keys_in_use(layout, dry_run=dry_run) if spare_uses else set()
        self.size = 0
        self.evicted: list[str] = []
        self.quarantine_removed = 0
        self.spared = 0

    def run(self) -> Pruned:
        if not self.dry_run:
            remove_stale(self.layout.private)
        entries: list[Item] = []
        quarantine = sorted(items_in(self.layout.quarantine), key=lambda item: item.used)
        self.size = sum(item.size for item in (*quarantine, *items_in(self.layout.private)))
        before = self.size
        complete = True
        try:
            for item in entry_items(self.layout):
                self._check_time()
                entries.append(item)
                self.size += item.size
                before = self.size
            self._remove_quarantine(quarantine)
            self._evict(sorted(entries, key=lambda item: item.used))
        except _TimeOverError:
            complete = False
        return Pruned(before, self.size, tuple(self.evicted), self.quarantine_removed, self.spared, complete)

    def _remove_quarantine(self, items: list[Item]) -> None:
        too_old = time.time() - _KEEP_QUARANTINE_SECONDS
        for item in items:
            if self.size > self.max_bytes or item.used < too_old:
                self.quarantine_removed += self._discard(item)

    def _evict(self, items: list[Item]) -> None:
        last = []
        for item in items:
            if self.size <= self.max_bytes:
                return
            if item.path.name in self.in_use:
                self.spared += 1
            elif _goes_last(item):
                last.append(item)
            else:
                self._evict_one(item)
        for item in last:
            if self.size > self.max_bytes:
                self._evict_one(item)

    def _evict_one(self, item: Item) -> None:
        if self._discard(item):
            self.evicted.append(item.path.name)
            if not self.dry_run:
                emit("evict", key=item.path.name, bytes=item.size, used=item.used)

    def _discard(self, item: Item) -> bool:
        self._check_time()
        try:
            if not self.dry_run:
                discard(item.path, self.layout.private)
        except FileNotFoundError:
            pass  # somebody else removed it
        except OSError as error:
            warn_once("discard", self.layout.root, "cannot remove %s: %s", item.path, error)
            return False
        self.size -= item.size
        return True

    def _check_time(self) -> None:
        if time.monotonic() > self.deadline:
            raise _TimeOverError


def _goes_last(item: Item) -> bool:
    with contextlib.suppress(OSError, CorruptEntryError), open_folder(item.path) as folder:
        return decode_manifest(item.path.name, read_file(MANIFEST, folder)).manifest.get(EVICT_LAST) is True
    return False


@contextlib.contextmanager
def _pruning_alone(layout: Layout) -> Iterator[bool]:
    """Keep other pruners out; yield whether there was none. Without locks there may be two, to no harm."""
    import filelock

    lock = filelock.FileLock(layout.prune_lock, mode=0o600, fallback_to_soft=False)
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        yield False
        return
    except (OSError, NotImplementedError):
        yield True
        return
    try:
        yield True
    finally:
        with contextlib.suppress(OSError):
            lock.release()
