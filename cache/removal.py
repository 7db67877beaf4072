"""A single pruning: what is removed, and in which order."""

from __future__ import annotations

import contextlib
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TypeVar

from jitnorm.cache.events import emit
from jitnorm.cache.evict import EVICT_LAST, Ties, remove
from jitnorm.cache.files import space_of
from jitnorm.cache.index import compact_index, parse_lines, read_index
from jitnorm.cache.layout import Layout
from jitnorm.cache.ledger import Recount
from jitnorm.cache.measure import Item, survey
from jitnorm.cache.parallel import Workers
from jitnorm.cache.private import remove_stale
from jitnorm.cache.sweep import aliases_in, lock_names, remove_if_empty, sweep_alias, sweep_locks
from jitnorm.cache.uses import keys_in_use

T = TypeVar("T")
_KEEP_QUARANTINE_SECONDS = 30 * 86400.0
# How many removals to do before checking the clock, and what each may free besides its own space: alias, shard.
_BATCH = 128
_MOST_BESIDE = 2 << 16


@dataclass(frozen=True)
class Pruned:
    """The result of a pruning, or of a dry run.

    Attributes:
        bytes_before: the disk space of the cache before; an estimate if time ran out before all was seen.
        bytes_after: the disk space after.
        evicted: the keys of the removed entries, in order of removal.
        quarantine_removed: how many quarantined entries were removed.
        spared: how many entries were kept because they are in use.
        complete: whether it finished; false if its time ran out or another process is pruning.
    """

    bytes_before: int
    bytes_after: int
    evicted: tuple[str, ...] = ()
    quarantine_removed: int = 0
    spared: int = 0
    complete: bool = True


class _TimeOverError(Exception):
    pass


class Removal:
    """Removes the least recently used entries.

    Args:
        layout: the cache.
        max_bytes: what may stay.
        goal: the size to prune down to if there is more.
        spare_uses: whether entries that living processes have loaded stay.
        dry_run: whether to only report what would be removed.
        seconds: how long it may take; measuring takes at most half of that, and then becomes an estimate.
        is_stopped: whether to give up; called before every step.
        threads: how many threads remove entries; 0 for only the caller's, which disturbs others least.
    """

    def __init__(
        self,
        layout: Layout,
        max_bytes: int,
        *,
        goal: int | None = None,
        spare_uses: bool = True,
        dry_run: bool,
        seconds: float,
        is_stopped: Callable[[], bool] = lambda: False,
        threads: int = 8,
    ) -> None:
        self.layout = layout
        self.max_bytes = max_bytes
        self.goal = max_bytes if goal is None else goal
        self.dry_run = dry_run
        self.began = time.monotonic()
        self.seconds = seconds
        self.is_stopped = is_stopped
        self.threads = threads
        self.in_use = keys_in_use(layout, dry_run=dry_run) if spare_uses else set()
        self.size = 0
        self.evicted: list[str] = []
        self.quarantine_removed = 0
        self.spared = 0
        self.seen: frozenset[str] = frozenset()
        self.there: set[str] = set()
        self.left: Counter[str] = Counter()  # how many entries remain in each shard
        self.goes_last: dict[str, bool] = {}  # according to the index
        self.sources: dict[str, list[str]] = {}  # the source keys whose aliases name an entry

    def run(self) -> Pruned:
        """Run the pruning."""
        if self.dry_run:
            return self._run()
        remove_stale(self.layout.private)
        with Recount(self.layout) as recount:
            pruned = self._run()
            if pruned.complete:
                compact_index(self.layout, self.there)
            recount.finish(pruned.bytes_after, is_exact=pruned.complete)
        return pruned

    def _run(self) -> Pruned:
        found = survey(self.layout, lambda: self._is_over(0.5))
        self.seen = frozenset(item.name for item in found.entries)
        self.there = set(self.seen)
        self.left.update(item.name[:2] for item in found.entries)
        before = self.size = found.space
        complete = found.is_whole
        try:
            with Workers(self.threads) as workers:
                self._sweep(workers)
                goal = self.goal if self.size > self.max_bytes else self.size
                self._remove_quarantine(sorted(found.quarantine, key=lambda item: item.used), goal)
                self._evict(workers, sorted(found.entries, key=lambda item: item.used), goal)
        except _TimeOverError:
            complete = False
        return Pruned(before, self.size, tuple(self.evicted), self.quarantine_removed, self.spared, complete)

    def _sweep(self, workers: Workers) -> None:
        """Remove what belongs to neither an entry nor a process."""
        for shard in self.layout.source_shards():
            doubtful = []
            for source, keys in aliases_in(self.layout, shard):
                for key in keys:
                    self.sources.setdefault(key, []).append(source)
                if not keys or not self.there.issuperset(keys):
                    doubtful.append(source)
            for sources in self._batches(doubtful):
                self.size -= sum(workers.map(self._sweep_alias, sources))
            self._check_time()
        for names in self._batches(() if self.dry_run else lock_names(self.layout).items()):
            sweep_locks(self.layout, names)

    def _sweep_alias(self, source: str) -> int:
        return sweep_alias(self.layout, self.layout.alias(source), self._is_there, dry_run=self.dry_run)

    def _is_there(self, key: str) -> bool:
        return key in self.there or (key not in self.seen and self.layout.entry(key).exists())

    def _remove_quarantine(self, items: list[Item], goal: int) -> None:
        too_old = time.time() - _KEEP_QUARANTINE_SECONDS
        for item in items:
            self._check_time()
            if (self.size > goal or item.used < too_old) and self._remove(self.layout.quarantine / item.name):
                self.size -= item.space
                self.quarantine_removed += 1

    def _evict(self, workers: Workers, items: list[Item], goal: int) -> None:
        """Evict entries in the given order, except that those marked to go last come after all others."""
        if self.size > goal:
            for lines in read_index(self.layout).values():
                known = parse_lines(lines)
                self.goes_last.update((key, EVICT_LAST in line.entry.manifest) for key, line in known.items())
        last: deque[Item] = deque()
        self._evict_from(workers, deque(items), goal, last)
        self._evict_from(workers, last, goal, None)

    def _evict_from(self, workers: Workers, queue: deque[Item], goal: int, last: deque[Item] | None) -> None:
        while batch := self._next_batch(queue, goal, last):
            for item, freed in zip(batch, workers.map(self._evict_one, batch), strict=True):
                if freed is not None:
                    self._note(item, freed)

    def _next_batch(self, queue: deque[Item], goal: int, last: deque[Item] | None) -> list[Item]:
        """The next entries that must go, whatever the previous ones free; those marked to go last are postponed."""
        self._check_time()
        batch: list[Item] = []
        excess = self.size - goal
        while queue and excess > 0 and len(batch) < _BATCH:
            item = queue.popleft()
            if item.name in self.in_use:
                self.spared += 1
            elif last is not None and self._goes_last(item.name):
                last.append(item)
            else:
                batch.append(item)
                excess -= item.space + _MOST_BESIDE
        return batch

    def _goes_last(self, key: str) -> bool:
        """Whether others depend on an entry; the index tells without opening its manifest."""
        known = self.goes_last.get(key)
        return Ties.read(self.layout, key).goes_last if known is None else known

    def _evict_one(self, item: Item) -> int | None:
        """Remove an entry and its aliases; return the bytes freed, or None if it cannot be removed."""
        if not self._remove(self.layout.entry(item.name)):
            return None
        self.there.discard(item.name)
        return item.space + sum(map(self._sweep_alias, self.sources.get(item.name, ())))

    def _note(self, item: Item, freed: int) -> None:
        self.size -= freed
        self.evicted.append(item.name)
        self.left[item.name[:2]] -= 1
        if not self.left[item.name[:2]]:
            shard = self.layout.entry(item.name).parent
            self.size -= space_of(shard) if self.dry_run else remove_if_empty(shard)
        if not self.dry_run:
            emit("evict", key=item.name, bytes=item.space, used=item.used)

    def _remove(self, path: Path) -> bool:
        with contextlib.suppress(FileNotFoundError):  # somebody else has removed it
            return self.dry_run or remove(self.layout, path)
        return True

    def _batches(self, things: Iterable[T]) -> Iterator[list[T]]:
        waiting = iter(things)
        while batch := list(islice(waiting, _BATCH)):
            self._check_time()
            yield batch

    def _is_over(self, share: float = 1.0) -> bool:
        return self.is_stopped() or time.monotonic() > self.began + share * self.seconds

    def _check_time(self) -> None:
        if self._is_over():
            raise _TimeOverError
