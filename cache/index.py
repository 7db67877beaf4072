"""The index: one line per entry, so that listings need not open every manifest.

Publishers append to it, in one write per entry; loading never relies on it. A line counts only for the very folder that
it was written for, so lines of removed or replaced entries do no harm, and the manifests of entries without a line are
read.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from jitnorm.cache.artifact import Entry
from jitnorm.cache.files import make_folder, write_file
from jitnorm.cache.key import is_key
from jitnorm.cache.layout import Layout
from jitnorm.cache.private import private_folder

# The parts of manifests that people look for: what is true, and short texts that are not digests.
_MOST_LETTERS = 200
_MOST_BYTES = 1 << 28  # enough for half a million entries
_APPENDING = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_READING = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# A line is a JSON array of a key, an inode, the payload's size, the time of publication and the manifest.
_TYPES = [str, int, int, float, dict]
_KEY, _SHARD = slice(2, 66), slice(2, 4)


class Line(NamedTuple):
    """The line of an entry.

    Attributes:
        inode: the inode of its folder.
        entry: the entry, with some fields of its manifest.
    """

    inode: int
    entry: Entry

    @classmethod
    def of(cls, inode: int, entry: Entry) -> Line:
        """Make the line of an entry from its full manifest."""
        return cls(inode, entry._replace(manifest=dict(filter(_is_indexed, entry.manifest.items()))))


def add_to_index(layout: Layout, lines: Iterable[Line]) -> None:
    """Append lines to the index, as far as possible."""
    data = "".join(map(_encode, lines)).encode("ascii")
    with contextlib.suppress(OSError):
        make_folder(layout.version)
        descriptor = os.open(layout.index, _APPENDING, 0o600)
        try:
            os.write(descriptor, data)
        finally:
            os.close(descriptor)


def read_index(layout: Layout) -> dict[str, list[str]]:
    """Read the lines of each shard, in the order they were written; empty if there is no index."""
    shards: dict[str, list[str]] = defaultdict(list)
    for line in _lines(layout):
        shards[line[_SHARD]].append(line)
    return shards


def parse_lines(lines: Sequence[str]) -> dict[str, Line]:
    """Parse the last line of each key, skipping damaged ones."""
    try:
        parsed = json.loads(f"[{','.join(lines)}]")  # takes half the time of parsing line by line
    except (ValueError, RecursionError):
        parsed = map(_parse, lines)
    found = {}
    for each in parsed:
        if type(each) is list and [*map(type, each)] == _TYPES:
            key, inode, size, modified, manifest = each
            found[key] = Line(inode, Entry(key, size, modified, manifest))
    return found


def compact_index(layout: Layout, keys: Collection[str]) -> None:
    """Reduce the index to the last lines of some keys, as far as possible."""
    with contextlib.suppress(OSError):
        lines = list(_lines(layout))
        kept = {line[_KEY]: line for line in lines if line[_KEY] in keys}
        if 2 * len(kept) >= len(lines):
            return
        with private_folder(layout.private) as folder:
            write_file(folder / layout.index.name, "".join(kept.values()).encode("ascii", "replace"))
            (folder / layout.index.name).rename(layout.index)


def _is_indexed(field: tuple[str, Any]) -> bool:
    value = field[1]
    return value is True or (isinstance(value, str) and len(value) <= _MOST_LETTERS and not is_key(value))


def _encode(line: Line) -> str:
    key, *rest = line.entry
    return json.dumps([key, line.inode, *rest], separators=(",", ":")) + "\n"


def _lines(layout: Layout) -> Iterator[str]:
    with (
        contextlib.suppress(OSError),
        open(layout.index, encoding="ascii", errors="replace", opener=lambda name, _: os.open(name, _READING)) as file,
    ):
        if os.fstat(file.fileno()).st_size <= _MOST_BYTES:
            yield from file


def _parse(line: str) -> Any:
    with contextlib.suppress(ValueError, RecursionError):
        return json.loads(line)
    return None
