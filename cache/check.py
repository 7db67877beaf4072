"""Whether what is stored is what was published, to the byte."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from jitnorm.cache.artifact import decode_artifact
from jitnorm.cache.errors import CorruptEntryError
from jitnorm.cache.files import open_folder, read_file
from jitnorm.cache.layout import MANIFEST, PAYLOAD
from jitnorm.cache.store import Store


@dataclass(frozen=True)
class Verified:
    """What was found of one entry.

    Attributes:
        key: its key.
        problem: what is wrong with it; None if it is intact.
        payload_size: bytes of its payload; 0 if something is wrong.
        quarantined: whether it has been moved to the quarantine.
    """

    key: str
    problem: str | None
    payload_size: int = 0
    quarantined: bool = False

    @property
    def intact(self) -> bool:
        """Whether nothing is wrong with it."""
        return self.problem is None


def verify(store: Store, keys: Iterable[str] | None = None, *, repair: bool = False) -> Iterator[Verified]:
    """Read every byte of entries and compare it with what was published. Does not count as a use of them.

    Args:
        store: the cache.
        keys: which entries; by default all, in the order of the keys.
        repair: move damaged entries to the quarantine, so that they are built again.

    Yields:
        One result for each key. An entry that cannot be read for a reason that lies outside it is not moved.

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
    for key in [key for key, _ in store.layout.entries()] if keys is None else keys:
        yield _verify_one(store, key, repair)


def _verify_one(store: Store, key: str, repair: bool) -> Verified:
    place = store.layout.entry(key)
    seen = None
    try:
        with open_folder(place) as folder:
            seen = os.fstat(folder)
            artifact = decode_artifact(key, read_file(MANIFEST, folder), read_file(PAYLOAD, folder))
    except FileNotFoundError:
        return Verified(key, "there is no such entry")
    except (CorruptEntryError, NotADirectoryError) as error:
        return Verified(key, str(error), quarantined=repair and store.quarantine(key, str(error), seen))
    except OSError as error:
        return Verified(key, f"cannot be read: {error}")
    return Verified(key, None, len(artifact.payload))
