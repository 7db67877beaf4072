"""Lists large caches quickly, by descriptions of entries that are not verified."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator

from jitnorm.cache.artifact import Entry
from jitnorm.cache.files import open_folder
from jitnorm.cache.index import Line, add_to_index, parse_lines, read_index
from jitnorm.cache.layout import MANIFEST, PAYLOAD, keys_in
from jitnorm.cache.store import Store

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MOST_BYTES = 1 << 20  # enough for a manifest file of about 2 kB
# What reading an invalid manifest can raise.
_MALFORMED = (ValueError, KeyError, TypeError, RecursionError)


def list_entries(store: Store) -> Iterator[tuple[Entry, float]]:
    """List every entry and when it was last used, except those whose manifests cannot be read.

    Manifests contain only what the index holds. Entries that are missing from it are added.
    """
    index = read_index(store.layout)
    missing: list[Line] = []
    for shard in store.layout.shards():
        with contextlib.suppress(OSError), open_folder(store.layout.version / shard) as folder:
            known = parse_lines(index.pop(shard, []))
            for key in keys_in(store.layout.version / shard):
                line = known.get(key)
                try:
                    found = os.stat(key, dir_fd=folder, follow_symlinks=False)
                    if line is None or line.inode != found.st_ino:
                        line = Line.of(found.st_ino, _read(key, f"{key}/{MANIFEST}", folder))
                        missing.append(line)
                except (OSError, *_MALFORMED):
                    continue
                yield line.entry, found.st_mtime
        if store.writable and missing:
            add_to_index(store.layout, missing)
        missing.clear()


def count_entries(store: Store) -> tuple[int, int]:
    """The number of entries, and the bytes of their payloads."""
    count = size = 0
    for shard in store.layout.shards():
        with contextlib.suppress(OSError), open_folder(store.layout.version / shard) as folder:
            for key in keys_in(store.layout.version / shard):
                with contextlib.suppress(OSError):
                    size += os.stat(f"{key}/{PAYLOAD}", dir_fd=folder, follow_symlinks=False).st_size
                    count += 1
    return count, size


def read_entry(store: Store, key: str) -> Entry | None:
    """Read an entry with its full manifest; None if that cannot be read."""
    with contextlib.suppress(OSError, *_MALFORMED), open_folder(store.layout.entry(key)) as folder:
        return _read(key, MANIFEST, folder)
    return None


def _read(key: str, manifest: str, folder: int) -> Entry:
    """Read an entry as its manifest file describes it."""
    descriptor = os.open(manifest, _FLAGS, dir_fd=folder)
    try:
        found = os.fstat(descriptor)
        # No more than the file holds: a buffer of the maximum size cost 16 us of system time per entry.
        body = json.loads(os.read(descriptor, min(found.st_size, _MOST_BYTES)))
        return Entry(key, int(body["payload"]["size"]), found.st_mtime, {**body["manifest"]})
    finally:
        os.close(descriptor)
