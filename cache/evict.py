"""Removes single entries and files from a cache, each atomically."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import NamedTuple

from jitnorm.cache.aliases import SOURCE_KEY
from jitnorm.cache.errors import CorruptEntryError
from jitnorm.cache.files import open_folder, read_file
from jitnorm.cache.key import is_key
from jitnorm.cache.layout import MANIFEST, Layout
from jitnorm.cache.private import discard
from jitnorm.cache.warn import warn_once

EVICT_LAST = "evict_last"  # true in the manifest of an entry that others depend on


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
