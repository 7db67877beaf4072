"""Verifies that stored entries are what was published, to the byte."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from jitnorm.cache.entry import read_entry
from jitnorm.cache.errors import CacheTrustError, CorruptEntryError
from jitnorm.cache.store import Store

# How often to read an entry that is replaced while being read.
_ATTEMPTS = 3


@dataclass(frozen=True)
class Verified:
    """The result for one entry.

    Attributes:
        key: the key of the entry.
        problem: what is wrong; None if the entry is intact.
        payload_size: bytes of its payload; 0 if something is wrong.
        quarantined: whether it was moved to the quarantine.
        is_there: whether the entry exists; others may remove it at any time.
    """

    key: str
    problem: str | None
    payload_size: int = 0
    quarantined: bool = False
    is_there: bool = True

    @property
    def intact(self) -> bool:
        """Whether the entry is intact."""
        return self.problem is None


def verify(store: Store, keys: Iterable[str] | None = None, *, repair: bool = False) -> Iterator[Verified]:
    """Read every byte of entries and compare it with what was published. Does not count as use.

    Args:
        store: the cache.
        keys: the entries to verify; default: all, in the order of the keys.
        repair: move damaged entries to the quarantine, so that they are rebuilt.

    Yields:
        One result per key; by default, none for an entry that is removed meanwhile. An entry that cannot be read for an
        unrelated reason is not moved.

    Raises:
        ValueError: one of the keys is not a key.

    Example:
        >>> import pathlib, tempfile
        >>> from jitnorm.cache.artifact import Artifact
        >>> store = Store(pathlib.Path(tempfile.mkdtemp()))
        >>> store.publish("0" * 64, Artifact(b"code", {}))
        >>> [entry.intact for entry in verify(store)]
        [True]
    """
    listed = keys is None
    for key in [key for key, _ in store.layout.entries()] if keys is None else keys:
        result = _verify_one(store, key, repair)
        if result.is_there or not listed:
            yield result


def _verify_one(store: Store, key: str, repair: bool) -> Verified:
    for _ in range(_ATTEMPTS):
        seen = None
        try:
            with store.open_entry(key) as folder:
                seen = os.fstat(folder.descriptor)
                artifact = read_entry(key, folder, store.check)
            return Verified(key, None, len(artifact.payload))
        except FileNotFoundError:
            break
        except (CorruptEntryError, NotADirectoryError) as error:
            if seen is None or _lies_at(store.layout.entry(key), seen):
                return Verified(key, str(error), quarantined=repair and store.quarantine(key, str(error), seen))
            # The entry was removed while being read, which says nothing about its replacement, if any.
        except (CacheTrustError, OSError) as error:
            if seen is None or _lies_at(store.layout.entry(key), seen):
                return Verified(key, f"cannot be read: {error}")
    return Verified(key, "there is no such entry", is_there=False)


def _lies_at(place: Path, seen: os.stat_result) -> bool:
    """Whether an opened folder is still in its place."""
    try:
        return os.path.samestat(seen, place.lstat())
    except OSError:
        return False
