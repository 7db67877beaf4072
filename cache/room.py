"""Makes room for an entry before it is written, so that publishing never takes a cache above its budget.

The publisher only reads the running total. If there is no room, it evicts as much as it adds. Upkeep does everything
else in the background. Modules that only a cache at its budget needs are imported late, which saves 1 ms of a first
publish's 4.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from jitnorm.cache.budget import BUDGET_VARIABLE
from jitnorm.cache.files import space_of
from jitnorm.cache.layout import Layout
from jitnorm.cache.ledger import Recount, Total, add

from jitnorm.forks import no_fork

if TYPE_CHECKING:
    from jitnorm.cache.store import Store

_BLOCK_BYTES = 4096  # on most file systems
_LINES_BYTES = 512  # more than an entry's lines in the index and the ledger
# How long a publisher may measure a cache.
_LOOK_SECONDS = 0.002


def space_needed(layout: Layout, place: Path, alias: Path | None, sizes: Iterable[int]) -> int:
    """The disk space that an entry with files of these sizes will take, with its alias and their shards."""
    folders = 1 + sum(not path.exists() for path in (place.parent, alias and alias.parent) if path)
    blocks = sum(-(-size // _BLOCK_BYTES) for size in sizes) + bool(alias and not alias.exists())
    # Small folders take a block like the root or, on tmpfs and others, nothing.
    return folders * min(space_of(layout.root), _BLOCK_BYTES) + blocks * _BLOCK_BYTES + _LINES_BYTES


def make_room(store: Store, space: int) -> None:
    """Count ``space`` bytes that are about to be written, and evict as much if they exceed the budget.

    A cache far above its budget, for example after lowering it, frees twice what is added.

    Raises:
        OSError: living processes use everything that could be evicted. Nothing is counted then.
    """
    total = add(store.layout, space)
    if store.max_bytes is None or (total is not None and _fits(store, total, space)):
        return
    # The total may be too high, but only a whole measurement proves that; an unknown one is estimated.
    found = _look(store.layout, space, estimates=total is None)
    has_room = _fits(store, found, space) if found is not None else total is None
    if has_room:
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
    """Whether a total that includes ``space`` new bytes is within the budget, or that much could be evicted."""
    assert store.max_bytes is not None
    excess = total.space - store.max_bytes
    if total.is_due or excess > 0:
        with no_fork():
            from jitnorm.cache.upkeep import upkeep

        upkeep.start(store)
    if excess <= 0:
        return True
    with no_fork():
        from jitnorm.cache.evict import evict_some

    return evict_some(store.layout, min(excess, 2 * space)) >= min(excess, space)


def _look(layout: Layout, space: int, *, estimates: bool) -> Total | None:
    """Measure a cache, and return the total with ``space`` bytes that are about to be written.

    If time does not suffice, the total is estimated or, without ``estimates``, left as it is: None.
    """
    with no_fork():
        from jitnorm.cache.measure import survey

    began = time.monotonic()
    with Recount(layout) as recount:
        found = survey(layout, lambda: time.monotonic() - began > _LOOK_SECONDS)
        if not (found.is_whole or estimates):
            return None
        recount.finish(found.space, is_exact=found.is_whole)
    return add(layout, space)
