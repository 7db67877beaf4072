"""Evicts single entries, each atomically: some for a publisher, which looks only at a few hundred."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from jitnorm.cache.aliases import SOURCE_KEY
from jitnorm.cache.errors import CorruptEntryError
from jitnorm.cache.events import emit
from jitnorm.cache.files import open_folder, read_file
from jitnorm.cache.key import is_key
from jitnorm.cache.layout import MANIFEST, Layout
from jitnorm.cache.ledger import add
from jitnorm.cache.measure import entry_space, last_uses
from jitnorm.cache.private import discard
from jitnorm.cache.sweep import remove_if_empty, sweep_alias, sweep_lock
from jitnorm.cache.uses import keys_in_use
from jitnorm.cache.warn import warn_once

EVICT_LAST = "evict_last"  # true in the manifest of an entry that others depend on
# How many entries to choose the least recently used from, and how many such samples to try if all are in use.
_SAMPLE = 512
_MOST_SAMPLES = 4


class Ties(NamedTuple):
    """The parts of an entry's manifest that matter for eviction; not verified, because nothing is loaded.

    Attributes:
        goes_last: whether other entries depend on it.
        source_key: the source key of the alias that may name it, if any.
    """

    goes_last: bool = False
    source_key: str | None = None

    @classmethod
    def read(cls, layout: Layout, key: str) -> Ties:
        """Read the ties of an entry; empty if its manifest cannot be read."""
        with contextlib.suppress(OSError, CorruptEntryError, ValueError, KeyError, TypeError, RecursionError):
            with open_folder(layout.entry(key)) as folder:
                manifest = json.loads(read_file(MANIFEST, folder))["manifest"]
            source_key = manifest.get(SOURCE_KEY)
            named = isinstance(source_key, str) and is_key(source_key)
            return cls(manifest.get(EVICT_LAST) is True, source_key if named else None)
        return cls()


def remove(layout: Layout, place: Path) -> bool:
    """Remove a file or folder, and return whether that was possible; failures are logged once.

    Raises:
        FileNotFoundError: it does not exist.
    """
    try:
        discard(place, layout.private)
    except FileNotFoundError:
        raise
    except OSError as error:
        warn_once("discard", layout.root, "cannot remove %s: %s", place, error)
        return False
    return True


def evict_some(layout: Layout, space: int) -> int:
    """Evict at least ``space`` bytes, as far as possible, by the last use of some entries; return how many."""
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
