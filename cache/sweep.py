"""Removes what entries and processes have left behind: aliases that lead nowhere, and locks that nobody holds."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from jitnorm.cache.aliases import MAX_BYTES, add_to_alias, decode_alias, encode_alias
from jitnorm.cache.files import write_file
from jitnorm.cache.flock import remove_unlocked
from jitnorm.cache.key import is_key
from jitnorm.cache.layout import Layout, keys_in
from jitnorm.cache.measure import space_of
from jitnorm.cache.private import private_folder

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def alias_paths(layout: Layout) -> Iterator[Path]:
    """Every alias file of a cache."""
    for shard in layout.source_shards():
        folder = layout.sources / shard
        yield from (folder / key for key in keys_in(folder))


def sweep_alias(layout: Layout, path: Path, is_there: Callable[[str], bool], *, dry_run: bool = False) -> int:
    """Take the keys out of an alias that lead to no entry; remove it if it has no others.

    A publisher writes the alias, puts the entry in its place, and writes the alias again if it is gone. Here the alias
    goes, and then its keys are looked for once more. Whatever the order of the two, no entry is left without.

    Args:
        layout: the cache.
        path: the alias.
        is_there: whether a key has an entry.
        dry_run: only say what would come of it.

    Returns:
        How many bytes on the disk are free now.
    """
    with contextlib.suppress(OSError), _opened(path) as descriptor:
        keys = decode_alias(os.pread(descriptor, MAX_BYTES, 0))
        kept = tuple(key for key in keys if is_there(key))
        if kept and len(kept) == len(keys):
            return 0
        space = space_of(path)
        if dry_run:
            return 0 if kept else space
        _replace(layout, path, kept)
        # Also what was appended meanwhile.
        for key in decode_alias(os.pread(descriptor, MAX_BYTES, 0)):
            if key not in kept and layout.entry(key).exists():
                add_to_alias(path, key)
        return space - space_of(path)
    return 0


def locked_keys(layout: Layout) -> list[str]:
    """The keys that have a lock or a note on its holder, whether held or not."""
    try:
        return sorted({key for name in os.listdir(layout.locks) if is_key(key := name.partition(".")[0])})
    except OSError:
        return []


def sweep_lock(layout: Layout, key: str) -> bool:
    """Remove the locks of a key that nobody holds, and the notes on their holders; return whether there was one."""
    swept = [_sweep(layout.lock(key, second=each), layout.holder(key, second=each)) for each in (False, True)]
    return any(swept)


def _sweep(lock: Path, note: Path) -> bool:
    with contextlib.suppress(OSError):
        return (lock.exists() or note.exists()) and remove_unlocked(lock, note)
    return False


def remove_if_empty(folder: Path) -> int:
    """Remove a folder that nothing lies in, and return how many bytes that freed.

    Whoever is about to put something there makes it anew.
    """
    space = space_of(folder)
    try:
        folder.rmdir()
    except OSError:
        return 0
    return space


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    descriptor = os.open(path, _FLAGS)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _replace(layout: Layout, path: Path, keys: tuple[str, ...]) -> None:
    if not keys:
        path.unlink()
        return
    with private_folder(layout.private) as folder:
        write_file(folder / path.name, encode_alias(keys))
        (folder / path.name).rename(path)
