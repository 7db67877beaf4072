"""Takes single things out of a cache, each in one step as others see it."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from pathlib import Path

from jitnorm.cache.aliases import SOURCE_KEY
from jitnorm.cache.errors import CorruptEntryError
from jitnorm.cache.files import open_folder, read_file
from jitnorm.cache.key import is_key
from jitnorm.cache.layout import MANIFEST, Layout
from jitnorm.cache.private import discard
from jitnorm.cache.warn import warn_once

EVICT_LAST = "evict_last"  # a manifest that holds it as true is of an entry that others depend on


@dataclass(frozen=True)
class Ties:
    """What of an entry's manifest matters when it goes; not verified, as nothing is loaded.

    Attributes:
        goes_last: whether others depend on it.
        source_key: of the alias that may name it; None if there is none.
    """

    goes_last: bool = False
    source_key: str | None = None

    @classmethod
    def read(cls, layout: Layout, key: str) -> Ties:
        """The ties of an entry; none if its manifest cannot be read."""
        with contextlib.suppress(OSError, CorruptEntryError, ValueError, KeyError, TypeError, RecursionError):
            with open_folder(layout.entry(key)) as folder:
                manifest = json.loads(read_file(MANIFEST, folder))["manifest"]
            source_key = manifest.get(SOURCE_KEY)
            named = isinstance(source_key, str) and is_key(source_key)
            return cls(manifest.get(EVICT_LAST) is True, source_key if named else None)
        return cls()


def remove(layout: Layout, place: Path) -> bool:
    """Remove a file or folder; return whether that was possible. If not, that is logged once.

    Raises:
        FileNotFoundError: there is none.
    """
    try:
        discard(place, layout.private)
    except FileNotFoundError:
        raise
    except OSError as error:
        warn_once("discard", layout.root, "cannot remove %s: %s", place, error)
        return False
    return True
