"""Makes room for an entry before it is written, so that publishing never takes a cache above its budget.

The publisher only reads the running total. If there is no room, it looks at the entries of some shards and evicts the
least recently used of these, as much as it adds. Upkeep does everything else in the background.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from jitnorm.cache.budget import BUDGET_VARIABLE
from jitnorm.cache.events import emit
from jitnorm.cache.evict import Ties, remove
from jitnorm.cache.layout import Layout
from jitnorm.cache.ledger import Recount, Total, add
from jitnorm.cache.measure import USUAL_BLOCK, entry_space, expected_space, last_uses, survey
from jitnorm.cache.sweep import remove_if_empty, sweep_alias, sweep_lock
from jitnorm.cache.upkeep import upkeep
from jitnorm.cache.uses import keys_in_use

if TYPE_CHECKING:
    from jitnorm.cache.store import Store

# How many entries to choose the least recently used from, and how many such samples to try if all are in use.
_SAMPLE = 512
_MOST_SAMPLES = 4
# How long a publisher may measure a cache; it estimates the rest.
_LOOK_SECONDS = 0.002


def space_needed(place: Path, alias: Path | None, sizes: Iterable[int]) -> int:
    """The disk space of an entry with files of these sizes, with its alias and their shards."""
    beside = [place.parent, *((alias, alias.parent) if alias else ())]
    return expected_space(sizes) + sum(USUAL_BLOCK for path in beside if not path.exists())


def make_room(store: Store, space: int) -> None:
    """Count ``space`` bytes that are about to be written, and evict as much if they exceed the budget.

    A cache far above its budget, for example after lowering it, frees twice what is added.

    Raises:
        OSError: living processes use everything that could be evicted. Nothing is counted then.
    """
    total = add(store.layout, space)
    if store.max_bytes is None or (total is not None and _fits(store, total, space)):
        return
    # The total is unknown, or may be too high.
    total = _look(store.layout, space)
    if total is None or _fits(store, total, space):
        return
    give_back(store, space)
    text = (
        f"{BUDGET_VARIABLE} allows {store.max_bytes} bytes, and living processes use everything evictable; allow more"
    )
    raise OSError(errno.EDQUOT, text)


def give_back(store: Store, space: int) -> None:
    """Count bytes that were not written after all as free."""
    add(store.layout, -space)


def _fits(store: Store, total: Total, space: int) -> bool:
    """Whether a total that includes ``space`` own bytes is within the budget, or as much could be evicted."""
    assert store.max_bytes is not None
    excess = total.space - store.max_bytes
    if total.is_due or excess > 0:
        upkeep.start(store)
    return excess <= 0 or _evict(store.layout, min(excess, 2 * space)) >= min(excess, space)


def _look(layout: Layout, space: int) -> Total | None:
    """Measure or estimate a cache, and return the total with ``space`` bytes that are about to be written."""
    began = time.monotonic()
    with Recount(layout) as recount:
        found = survey(layout, lambda: time.monotonic() - began > _LOOK_SECONDS)
        recount.finish(found.space, is_exact=found.is_whole)
    return add(layout, space)


def _evict(layout: Layout, space: int) -> int:
    """Evict at least ``space`` bytes, as far as possible; return how many."""
    in_use = keys_in_use(layout)
    freed = 0
    last = []
    for sample in islice(_samples(layout), _MOST_SAMPLES):
        for used, key in sorted(sample):
            if freed >= space:
                return freed
            if key in in_use:
                continue
            ties = Ties.read(layout, key)
            if ties.goes_last:
                last.append((used, key, ties))
            else:
                freed += _evict_one(layout, used, key, ties)
    for used, key, ties in last:
        if freed < space:
            freed += _evict_one(layout, used, key, ties)
    return freed


def _samples(layout: Layout) -> Iterator[list[tuple[float, str]]]:
    """Yield samples of keys with their last use; keys are hashes, so some shards represent all."""
    shards = layout.shards()
    begin = os.urandom(1)[0] % max(1, len(shards))
    sample: list[tuple[float, str]] = []
    for shard in (*shards[begin:], *shards[:begin]):
        sample += last_uses(layout.version / shard)
        if len(sample) >= _SAMPLE:
            yield sample
            sample = []
    yield sample


def _evict_one(layout: Layout, used: float, key: str, ties: Ties) -> int:
    """Evict an entry, its alias and its lock, and return the bytes freed."""
    place = layout.entry(key)
    space = entry_space(place)
    try:
        if not remove(layout, place):
            return 0
    except FileNotFoundError:  # another process removed it
        return 0
    freed = space + remove_if_empty(place.parent)
    if ties.source_key is not None:
        alias = layout.alias(ties.source_key)
        freed += sweep_alias(layout, alias, lambda other: layout.entry(other).exists()) + remove_if_empty(alias.parent)
    sweep_lock(layout, key)
    add(layout, -freed)
    emit("evict", key=key, bytes=space, used=used)
    return freed
