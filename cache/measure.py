"""Measures how much disk space the cache's contents take, and when they were last used.

Space is counted in disk blocks, of files and of folders.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from jitnorm.cache.files import BLOCK, open_folder, space_of
from jitnorm.cache.layout import MANIFEST, PAYLOAD, SIGNATURE, Layout, keys_in

_LOCK_SUFFIX = ".lock"


class Item(NamedTuple):
    """Something that can be removed as a whole.

    Attributes:
        name: the name of a folder or a stray file within its parent; for an entry, its key.
        space: bytes on the disk.
        used: when it was last used, in seconds since the epoch.
        payload_size: bytes of its payload, if it is an entry.
    """

    name: str
    space: int
    used: float
    payload_size: int = 0


@dataclass
class Survey:
    """The contents of a cache.

    Attributes:
        entries: every entry, in the order found.
        quarantine: entries that failed verification.
        private_space: disk space of what is being written or removed.
        shard_space: disk space of the folders of entries, and of aliases and their folders.
        other_space: disk space of everything else: locks, uses, records, and the other folders.
        share: the fraction of the shards that was examined; 1.0 for all.
    """

    entries: list[Item] = field(default_factory=list)
    quarantine: list[Item] = field(default_factory=list)
    private_space: int = 0
    shard_space: int = 0
    other_space: int = 0
    share: float = 1.0

    @property
    def is_whole(self) -> bool:
        """Whether all shards were examined."""
        return self.share == 1.0

    @property
    def space(self) -> int:
        """Total disk space; an estimate if only some shards were examined: keys are hashes, so shards are alike."""
        in_shards = self.shard_space + sum(item.space for item in self.entries)
        beside = self.private_space + self.other_space + sum(item.space for item in self.quarantine)
        return beside + int(in_shards / self.share)


def survey(layout: Layout, is_over: Callable[[], bool] = lambda: False) -> Survey:
    """Measure a cache.

    Args:
        layout: the cache.
        is_over: whether to stop at the shards seen so far; called after each of them.
    """
    found = Survey(quarantine=items_in(layout.quarantine))
    found.private_space = sum(item.space for item in items_in(layout.private))
    shards = sorted({*layout.shards(), *layout.source_shards()})
    found.other_space = _space_beside_entries(layout, {*shards, layout.sources.name})
    # Start at a random shard, so that a partial survey is not always the same prefix.
    begin = os.urandom(1)[0] % max(1, len(shards))
    for done, shard in enumerate((*shards[begin:], *shards[:begin]), start=1):
        found.entries += entry_items(layout.version / shard)
        found.shard_space += space_of(layout.version / shard) + _alias_space(layout.sources / shard)
        if is_over() and done < len(shards):
            found.share = done / len(shards)
            return found
    found.other_space += _note_space(layout.locks)
    return found


def entry_items(shard: Path) -> Iterator[Item]:
    """Measure every entry of a shard by its files."""
    now = time.time()
    with contextlib.suppress(OSError), open_folder(shard) as folder:
        for key in keys_in(shard):
            found = _stat(key, folder)
            if found is None:  # it was removed meanwhile
                continue
            payload = _stat(f"{key}/{PAYLOAD}", folder)
            blocks = found.st_blocks + (payload.st_blocks if payload else 0)
            for name in (MANIFEST, SIGNATURE):
                if file := _stat(f"{key}/{name}", folder):
                    blocks += file.st_blocks
            # A use in the future comes from a wrong clock.
            yield Item(key, blocks * BLOCK, min(found.st_mtime, now), payload.st_size if payload else 0)


def entry_space(place: Path) -> int:
    """Disk space of one entry."""
    return sum(map(space_of, (place, place / PAYLOAD, place / MANIFEST, place / SIGNATURE)))


def last_uses(shard: Path) -> Iterator[tuple[float, str]]:
    """When each entry of a shard was last used, and its key."""
    now = time.time()
    with contextlib.suppress(OSError), open_folder(shard) as folder:
        for key in keys_in(shard):
            if found := _stat(key, folder):
                yield min(found.st_mtime, now), key


def items_in(folder: Path) -> list[Item]:
    """Measure the contents of a folder, which may be missing."""
    items = []
    with contextlib.suppress(FileNotFoundError):
        for found in os.scandir(folder):
            with contextlib.suppress(OSError):
                used = min(found.stat(follow_symlinks=False).st_mtime, time.time())
                items.append(Item(found.name, tree_space(found), used))
    return items


def tree_space(path: str | os.PathLike[str]) -> int:
    """Disk space of a file, or of a folder with its contents; 0 if it does not exist."""
    space = space_of(path)
    with contextlib.suppress(OSError):
        for found in os.scandir(path):
            if found.is_dir(follow_symlinks=False):
                space += tree_space(found)
            else:
                with contextlib.suppress(FileNotFoundError):
                    space += found.stat(follow_symlinks=False).st_blocks * BLOCK
    return space


def _space_beside_entries(layout: Layout, shards: set[str]) -> int:
    """Disk space of the folders themselves, and of everything outside shards, quarantine and private folders."""
    space = sum(map(space_of, (layout.root, layout.version, layout.sources, layout.quarantine, layout.private)))
    measured = {*shards, layout.quarantine.name, layout.private.name}
    with contextlib.suppress(OSError):
        for found in os.scandir(layout.version):
            if found.name == layout.locks.name:
                space += space_of(found)
            elif found.name not in measured:
                space += tree_space(found)
    return space


def _stat(name: str, folder: int) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return None


def _alias_space(shard: Path) -> int:
    """Disk space of a shard of aliases. Each is a line or two, so the first stands for all, which saves much time."""
    space, names = space_of(shard), keys_in(shard)
    if names:
        space += len(names) * space_of(shard / names[0])
    return space


def _note_space(locks: Path) -> int:
    """Disk space of the notes about lock holders; lock files are empty, and too many to examine each."""
    space = 0
    with contextlib.suppress(OSError):
        space = sum(space_of(locks / name) for name in os.listdir(locks) if not name.endswith(_LOCK_SUFFIX))
    return space
