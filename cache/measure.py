"""How many bytes things in the cache take, and when they were used last."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from jitnorm.cache.layout import Layout


@dataclass(frozen=True)
class Item:
    """Something that can be removed as a whole.

    Attributes:
        path: a folder, or a stray file.
        size: bytes of all files in it.
        used: when it was used last, in seconds since the epoch.
    """

    path: Path
    size: int
    used: float


def entry_items(layout: Layout) -> Iterator[Item]:
    """Every entry of a cache, as they are found."""
    for _, place in layout.entries():
        with contextlib.suppress(OSError):  # it may have been removed meanwhile
            yield _measure(place)


def items_in(folder: Path) -> list[Item]:
    """What lies in a folder, which may be missing."""
    items = []
    with contextlib.suppress(FileNotFoundError):
        for found in os.scandir(folder):
            with contextlib.suppress(OSError):
                items.append(_measure(Path(found)))
    return items


def _measure(path: Path) -> Item:
    found = path.lstat()
    size = 0 if path.is_dir() and not path.is_symlink() else found.st_size
    for folder, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(OSError):
                size += os.lstat(os.path.join(folder, name)).st_size
    # A use in the future is one by a clock that was wrong.
    return Item(path, size, min(found.st_mtime, time.time()))
