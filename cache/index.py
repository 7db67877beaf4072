"""The index: a line for each entry, so that a listing of many need not open the manifest of each.

Publishers append to it, in one write for each entry; nothing is loaded by what it says. A line counts only while the
entry is the folder that it was written for, so lines of what is gone or was replaced do no harm, and entries without
a line are read.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from jitnorm.cache.files import make_folder, write_file
from jitnorm.cache.key import is_key
from jitnorm.cache.layout import Layout
from jitnorm.cache.private import private_folder

# Of manifests, what is true, and the short texts that are no digests: what people look for.
_MOST_LETTERS = 200
_MOST_BYTES = 1 << 28  # of half a million entries
_APPENDING = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_READING = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# A line is a JSON array that begins with the key.
_KEY = slice(2, 66)


class Line(NamedTuple):
    """The line of an entry.

    Attributes:
        key: its key.
        inode: of its folder.
        payload_size: bytes of its payload.
        modified: when it was published, in seconds since the epoch.
        manifest: some fields of its manifest.
    """

    key: str
    inode: int
    payload_size: int
    modified: float
    manifest: dict[str, Any]


def add_to_index(layout: Layout, lines: Iterable[Line]) -> None:
    """Append lines to the index, as far as possible."""
    data = "".join(f"{json.dumps(line, separators=(',', ':'))}\n" for line in lines).encode("ascii")
    with contextlib.suppress(OSError):
        make_folder(layout.version)
        descriptor = os.open(layout.index, _APPENDING, 0o600)
        try:
            os.write(descriptor, data)
        finally:
            os.close(descriptor)


def indexed(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a manifest that the index holds."""
    return {
        name: value
        for name, value in manifest.items()
        if value is True or (isinstance(value, str) and len(value) <= _MOST_LETTERS and not is_key(value))
    }


def read_index(layout: Layout, fields: Collection[str]) -> dict[str, Line]:
    """The latest line of each key, with no more than some fields of the manifests; empty if there is no index."""
    found: dict[str, Line] = {}
    for raw in _raw_lines(layout):
        try:
            key, inode, size, modified, manifest = json.loads(raw)
            found[key] = Line(key, int(inode), int(size), float(modified), shared(manifest, fields))
        except (ValueError, TypeError, AttributeError, RecursionError):
            continue
    return found


def shared(manifest: Mapping[str, Any], fields: Collection[str]) -> dict[str, Any]:
    """Some fields of a manifest, of equal texts always the same one, as many entries are listed at once."""
    texts = {name: manifest[name] for name in fields if name in manifest}
    return {name: sys.intern(value) if type(value) is str else value for name, value in texts.items()}


def compact_index(layout: Layout, keys: Collection[str]) -> None:
    """Leave in the index what is said last of some keys alone, as far as possible."""
    with contextlib.suppress(OSError):
        lines = list(_raw_lines(layout))
        kept = {line[_KEY]: line for line in lines if line[_KEY] in keys}
        if 2 * len(kept) >= len(lines):
            return
        with private_folder(layout.private) as folder:
            write_file(folder / layout.index.name, "".join(kept.values()).encode("ascii", "replace"))
            (folder / layout.index.name).rename(layout.index)


def _raw_lines(layout: Layout) -> Iterator[str]:
    with (
        contextlib.suppress(OSError),
        open(layout.index, encoding="ascii", errors="replace", opener=lambda name, _: os.open(name, _READING)) as file,
    ):
        if os.fstat(file.fileno()).st_size <= _MOST_BYTES:
            yield from file
