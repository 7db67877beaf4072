"""Removes what entries and processes have left behind: dangling aliases, and locks that nobody holds."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from jitnorm.cache.aliases import MAX_BYTES, add_to_alias, decode_alias, encode_alias
from jitnorm.cache.files import is_at, open_folder, space_of, write_file
from jitnorm.cache.flock import locked_open, remove_unlocked
from jitnorm.cache.key import is_key
from jitnorm.cache.layout import Layout, keys_in
from jitnorm.cache.private import private_folder

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# How often to try for an alias that another sweep has locked, which takes it milliseconds.
_TRIES = 100
_PAUSE_SECONDS = 0.01


def aliases_in(layout: Layout, shard: str) -> Iterator[tuple[str, list[str]]]:
    """The source keys of a shard, and what their alias files hold: keys, and whatever else lies there."""
    folder = layout.sources / shard
    with contextlib.suppress(OSError), open_folder(folder) as opened:
        for name in keys_in(folder):
            with contextlib.suppress(OSError):
                yield name, _content(name, opened).decode("ascii", "replace").split()


def sweep_alias(layout: Layout, path: Path, is_there: Callable[[str], bool], *, dry_run: bool = False) -> int:
    """Remove the keys without an entry from an alias; delete the alias if it has no others.

    A publisher writes the alias, stores the entry, and writes the alias again if it is gone, or goes while it writes.
    This function removes the alias and then looks for its keys once more. One sweep at a time does so, because a second
    one would remove the alias that was written again. However they interleave, no entry is left without an alias.

    Args:
        layout: the cache.
        path: the alias.
        is_there: whether a key has an entry.
        dry_run: whether to only report what would be freed.

    Returns:
        The disk space freed, in bytes.
    """
    with contextlib.suppress(OSError), _opened_alone(path) as descriptor:
        if descriptor is None:
            return 0
        keys = decode_alias(os.pread(descriptor, MAX_BYTES, 0))
        kept = tuple(key for key in keys if is_there(key))
        if kept and len(kept) == len(keys):
            return 0
        space = space_of(path)
        if dry_run:
            return 0 if kept else space
        _replace(layout, path, kept)
        # Including keys that were appended meanwhile.
        for key in decode_alias(os.pread(descriptor, MAX_BYTES, 0)):
            if key not in kept and layout.entry(key).exists():
                add_to_alias(path, key)
        return space - space_of(path)
    return 0


def lock_names(layout: Layout) -> dict[str, str | None]:
    """The names of the lock files of keys and of revocation lists, held or not, each with the name of its note.

    This includes lock files of which only the note is left.
    """
    names: dict[str, str | None] = {}
    with contextlib.suppress(OSError):
        for name in os.listdir(layout.locks):
            stem, _, kind = name.rpartition(".")
            if is_key(stem.partition(".")[0]) or name == layout.revocations_lock.name:
                lock = f"{stem}.lock"
                names[lock] = name if kind == "holder" else names.get(lock)
    return names


def sweep_locks(layout: Layout, names: Iterable[tuple[str, str | None]]) -> int:
    """Remove those of some lock files that nobody holds, with their notes; return how many."""
    swept = 0
    with contextlib.suppress(OSError), open_folder(layout.locks) as folder:
        for lock, note in names:
            with contextlib.suppress(OSError):
                swept += remove_unlocked(lock, note, folder)
    return swept


def sweep_lock(layout: Layout, key: str) -> int:
    """Remove the locks of a key that nobody holds, with their notes; return how many."""
    pairs = [(layout.lock(key, second=each), layout.holder(key, second=each)) for each in (False, True)]
    return sweep_locks(layout, [(lock.name, note.name) for lock, note in pairs if lock.exists() or note.exists()])


def remove_if_empty(folder: Path) -> int:
    """Remove a folder if it is empty, and return the bytes freed.

    Whoever needs it next creates it again.
    """
    space = space_of(folder)
    try:
        folder.rmdir()
    except OSError:
        return 0
    return space


def _content(name: str, folder: int) -> bytes:
    descriptor = os.open(name, _FLAGS, dir_fd=folder)
    try:
        return os.read(descriptor, MAX_BYTES)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _opened_alone(path: Path) -> Iterator[int | None]:
    """Open an alias that no other sweep may remove or replace meanwhile; None if one keeps it locked."""
    for _ in range(_TRIES):
        descriptor = os.open(path, _FLAGS | os.O_RDWR)  # NFS locks only files that are open for writing
        try:
            with locked_open(descriptor) as alone:
                if alone and is_at(descriptor, path):
                    yield descriptor
                    return
        finally:
            os.close(descriptor)
        time.sleep(_PAUSE_SECONDS)
    yield None


def _replace(layout: Layout, path: Path, keys: tuple[str, ...]) -> None:
    if not keys:
        path.unlink()
        return
    with private_folder(layout.private) as folder:
        write_file(folder / path.name, encode_alias(keys))
        (folder / path.name).rename(path)
