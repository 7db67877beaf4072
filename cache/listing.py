"""Lists large caches quickly: what is said of entries, without verifying what nobody loads."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Collection, Iterator
from typing import Any

from jitnorm.cache.files import open_folder
from jitnorm.cache.index import Line, add_to_index, indexed, read_index, shared
from jitnorm.cache.layout import MANIFEST, PAYLOAD, keys_in
from jitnorm.cache.store import Entry, Store

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MOST_BYTES = 1 << 20  # of a manifest file; they have some 2 kB
# What reading a manifest that is none can raise.
_MALFORMED = (ValueError, KeyError, TypeError, AttributeError, RecursionError)


def list_entries(store: Store, fields: Collection[str]) -> Iterator[tuple[Entry, float]]:
    """Every entry, and when it was used last; less those whose manifests cannot be read.

    Args:
        store: the cache. Entries that its index lacks are added to that.
        fields: what to keep of the manifests; the index has only short texts.
    """
    index = read_index(store.layout, fields)
    missing: list[Line] = []
    for shard in store.layout.shards():
        with contextlib.suppress(OSError), open_folder(store.layout.version / shard) as folder:
            for key in keys_in(store.layout.version / shard):
                line = index.pop(key, None)
                try:
                    found = os.stat(key, dir_fd=folder, follow_symlinks=False)
                    if line is None or line.inode != found.st_ino:
                        missing.append(_read(key, found.st_ino, folder))
                        line = missing[-1]._replace(manifest=shared(missing[-1].manifest, fields))
                except (OSError, *_MALFORMED):
                    continue
                yield Entry(key, line.payload_size, line.modified, line.manifest), found.st_mtime
        if store.writable and missing:
            add_to_index(store.layout, missing)
        missing.clear()


def count_entries(store: Store) -> tuple[int, int]:
    """How many entries there are, and the bytes of their payloads."""
    count = size = 0
    for shard in store.layout.shards():
        with contextlib.suppress(OSError), open_folder(store.layout.version / shard) as folder:
            for key in keys_in(store.layout.version / shard):
                with contextlib.suppress(OSError):
                    size += os.stat(f"{key}/{PAYLOAD}", dir_fd=folder, follow_symlinks=False).st_size
                    count += 1
    return count, size


def read_entry(store: Store, key: str) -> Entry | None:
    """An entry with all of its manifest; None if that cannot be read."""
    with contextlib.suppress(OSError, *_MALFORMED), open_folder(store.layout.entry(key)) as folder:
        body, modified = _manifest(MANIFEST, folder)
        return Entry(key, int(body["payload"]["size"]), modified, dict(body["manifest"]))
    return None


def _read(key: str, inode: int, shard: int) -> Line:
    """The index line of an entry."""
    body, modified = _manifest(f"{key}/{MANIFEST}", shard)
    return Line(key, inode, int(body["payload"]["size"]), modified, indexed(body["manifest"]))


def _manifest(name: str, folder: int) -> tuple[Any, float]:
    """The content of a manifest file, and when it was written."""
    descriptor = os.open(name, _FLAGS, dir_fd=folder)
    try:
        return json.loads(os.read(descriptor, _MOST_BYTES)), os.fstat(descriptor).st_mtime
    finally:
        os.close(descriptor)
