"""The store: entries that are either absent or whole, whatever happens to their writers."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jitnorm.cache.artifact import Artifact, decode_artifact, decode_manifest, encode_manifest
from jitnorm.cache.errors import CorruptEntryError
from jitnorm.cache.files import make_folder, open_folder, read_file, sync_folder, write_file
from jitnorm.cache.layout import MANIFEST, PAYLOAD, Layout
from jitnorm.cache.private import private_folder, remove_stale
from jitnorm.cache.warn import warn_once

_LOG = logging.getLogger(__name__)
# What renaming a folder to a name that a whole entry has taken gives.
_TAKEN = {errno.EEXIST, errno.ENOTEMPTY}


@dataclass(frozen=True)
class Entry:
    """One stored artifact, as a listing shows it.

    Attributes:
        key: its key.
        payload_size: bytes of its payload.
        modified: when it was published, in seconds since the epoch.
        manifest: what its builder said of it.
    """

    key: str
    payload_size: int
    modified: float
    manifest: Mapping[str, Any]


class Store:
    """Artifacts by key in one folder, shared by any number of processes.

    Readers take no lock and see an entry whole or not at all. Use ``open_store`` or ``open_root`` to get a
    folder that is safe to load compiled code from: the store itself trusts its root.

    Args:
        root: the cache folder; need not exist.
        writable: whether to write below it. If not, ``publish`` does nothing.

    Example:
        >>> import tempfile
        >>> store = Store(Path(tempfile.mkdtemp()))
        >>> store.publish("0" * 64, Artifact(b"code", {"target": "cpu"}))
        >>> store.load("0" * 64)
        Artifact(manifest={'target': 'cpu'})
    """

    def __init__(self, root: Path, *, writable: bool = True) -> None:
        self.layout = Layout(root.absolute())
        self.writable = writable

    def load(self, key: str) -> Artifact | None:
        """Return the artifact stored under ``key``, or None.

        Every byte is verified. An entry that fails is moved to the quarantine with a logged warning, and
        counts as absent.
        """
        place = self.layout.entry(key)
        try:
            with open_folder(place) as folder:
                try:
                    return decode_artifact(key, read_file(MANIFEST, folder), read_file(PAYLOAD, folder))
                except CorruptEntryError as error:
                    self._quarantine(place, os.fstat(folder), str(error))
        except FileNotFoundError:
            pass
        except NotADirectoryError as error:
            self._quarantine(place, None, str(error))
        except OSError as error:
            warn_once("load", self.layout.root, "cannot read the cache, building instead: %s", error)
        return None

    def publish(self, key: str, artifact: Artifact) -> None:
        """Store ``artifact`` under ``key`` in one step; keep what is there if another process was first.

        Raises:
            OSError: it could not be written. Nothing of it is left behind.
        """
        if not self.writable:
            return
        place = self.layout.entry(key)
        remove_stale(self.layout.private)
        with private_folder(self.layout.private) as folder:
            write_file(folder / PAYLOAD, artifact.payload)
            write_file(folder / MANIFEST, encode_manifest(key, artifact))
            sync_folder(folder)
            make_folder(place.parent)
            try:
                folder.rename(place)
            except OSError as error:
                if error.errno not in _TAKEN:
                    raise
            else:
                sync_folder(place.parent)

    def entries(self) -> Iterator[Entry]:
        """List what is stored, in the order of the keys.

        Manifests are verified, payloads only by their size; what fails is left out and left alone.
        """
        for key, place in self.layout.entries():
            try:
                with open_folder(place) as folder:
                    stored = decode_manifest(key, read_file(MANIFEST, folder))
                    payload = os.stat(PAYLOAD, dir_fd=folder, follow_symlinks=False)
            except (OSError, CorruptEntryError):
                continue
            if payload.st_size == stored.payload_size:
                yield Entry(key, payload.st_size, payload.st_mtime, stored.manifest)

    def _quarantine(self, place: Path, seen: os.stat_result | None, reason: str) -> None:
        """Move what lies at ``place`` away, unless it is no longer what was ``seen`` there."""
        try:
            found = place.lstat()
            if seen is not None and not os.path.samestat(seen, found):
                return  # another reader was faster, and the key may hold a good entry by now
            if not self.writable:
                _LOG.warning("ignoring the cache entry %s: %s", place, reason)
                return
            make_folder(self.layout.quarantine)
            refuge = self.layout.quarantine / f"{place.name}.{os.urandom(8).hex()}"
            place.rename(refuge)
            _LOG.warning("moved the cache entry %s to %s: %s", place, refuge, reason)
        except (FileNotFoundError, NotADirectoryError):
            pass  # nothing lies there
        except OSError as error:
            _LOG.warning("ignoring the cache entry %s: %s; it cannot be moved away: %s", place, reason, error)
