"""The store: entries that are either absent or whole, whatever happens to their writers."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

from jitnorm.cache.aliases import MAX_BYTES as MAX_ALIAS_BYTES
from jitnorm.cache.aliases import add_to_alias, decode_alias, source_key_of
from jitnorm.cache.artifact import Artifact, Entry, decode_manifest, encode_manifest
from jitnorm.cache.budget import byte_budget
from jitnorm.cache.entry import SignatureCheck, read_entry, read_signature
from jitnorm.cache.errors import CacheError, CacheTrustError, CorruptEntryError
from jitnorm.cache.events import emit, log_fields
from jitnorm.cache.failures import tier_failed
from jitnorm.cache.files import GONE, make_folder, open_folder, read_file, sync_folder, write_file
from jitnorm.cache.index import Line, add_to_index
from jitnorm.cache.layout import LIMITS, MANIFEST, PAYLOAD, SIGNATURE, Layout
from jitnorm.cache.parallel import Workers
from jitnorm.cache.private import private_folder, remove_stale, replace_file
from jitnorm.cache.trust import OpenFolder, Trust
from jitnorm.cache.uses import keys_in_use, note_use

from jitnorm.forks import no_fork

__all__ = ["Entry", "SignatureCheck", "Store"]

_LOG = logging.getLogger(__name__)
# Errors of renaming a folder to a name that an entry already has.
_TAKEN = {errno.EEXIST, errno.ENOTEMPTY}
# An entry's last use is the modification time of its folder, written at most this often.
_USE_PRECISION_SECONDS = 3600.0


class Store:
    """Artifacts by key in one folder, shared by any number of processes.

    Readers take no lock and see an entry whole or not at all. Each read checks that only this user (or, in a read-only
    tier, root) can have written the file and every folder that leads to it. If not, a writable cache raises
    `CacheTrustError`, because new entries would be exposed as well; elsewhere the entry counts as absent, with a
    warning. ``open_store`` opens the user's cache, and checks the folders that are only written to.

    Args:
        root: the cache folder; need not exist.
        writable: whether to write below it. If not, ``publish`` does nothing.
        name: its name in messages; default: the user's cache.
        check: verifies the signature of every entry; None to require none.

    Attributes:
        layout: its paths.
        writable: as given.
        max_bytes: its budget, from ``JITNORM_CACHE_MAX_BYTES``; None for no limit.

    Raises:
        CacheError: ``JITNORM_CACHE_MAX_BYTES`` is not a size.

    Example:
        >>> import tempfile
        >>> store = Store(Path(tempfile.mkdtemp()))
        >>> store.publish("0" * 64, Artifact(b"code", {"target": "cpu"}))
        >>> store.load("0" * 64)
        Artifact(manifest={'target': 'cpu'})
    """

    def __init__(
        self, root: Path, *, writable: bool = True, name: str | None = None, check: SignatureCheck | None = None
    ) -> None:
        self.layout = Layout(root.absolute())
        self.writable = writable
        self.name = name or f"user {self.layout.root}"
        self._check = check
        self._trust = Trust(self.layout.root, name or "")
        self.max_bytes = byte_budget() if writable else None

    @property
    def check(self) -> SignatureCheck | None:
        """The check of every entry's signature; None if none is required."""
        return self._check

    def load(self, key: str) -> Artifact | None:
        """Return the artifact stored under ``key``, or None.

        Every byte is verified. An entry that fails is moved to the quarantine with a logged warning, and
        counts as absent.

        Raises:
            CacheTrustError: others could have written it, and this cache is written to.
        """
        try:
            with self.open_entry(key) as folder:
                try:
                    artifact = read_entry(key, folder, self._check)
                except CorruptEntryError as error:
                    self.quarantine(key, str(error), os.fstat(folder.descriptor))
                    return None
                self._record_use(key, folder.descriptor)
                return artifact
        except FileNotFoundError:
            pass
        except NotADirectoryError as error:
            self.quarantine(key, str(error), None)
        except OSError as error:
            if not self._was_removed(key, error):
                tier_failed(self.name, str(error))
        except CacheTrustError as error:
            self._refuse(error)
        return None

    def _was_removed(self, key: str, error: OSError) -> bool:
        """Whether an error is NFS's for a file that another host removed while it was open here."""
        if error.errno != errno.ESTALE:
            return False
        return os.path.lexists(self.layout.root) and not os.path.lexists(self.layout.entry(key))

    def open_entry(self, key: str) -> AbstractContextManager[OpenFolder]:
        """Hold the folder of an entry open; see `Trust.open_folder` for the errors."""
        return self._trust.open_folder(self.layout.entry(key))

    def read(self, path: Path, limit: int) -> bytes:
        """Read a file of this cache that is not an entry's.

        Raises:
            CacheTrustError: others could have written it, and this cache is written to.
            OSError: it is missing, not a file of at most ``limit`` bytes, or cannot be read.
        """
        try:
            with self._trust.open_folder(path.parent) as folder:
                return folder.read(path.name, limit)
        except CacheTrustError as error:
            self._refuse(error)
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from error

    def replace(self, path: Path, data: bytes) -> None:
        """Atomically write a file of this cache that is not an entry's.

        Raises:
            OSError: it cannot be written.
        """
        make_folder(path.parent)
        replace_file(path, data, self.layout.private)

    def keys_of(self, source_key: str) -> tuple[str, ...]:
        """Keys of artifacts of a source that may be here: hints, neither complete nor verified."""
        try:
            return decode_alias(self.read(self.layout.alias(source_key), MAX_ALIAS_BYTES))
        except OSError:
            return ()

    def signature(self, key: str) -> bytes | None:
        """The signature file of an entry, or None if it has none."""
        try:
            with self.open_entry(key) as folder:
                return read_signature(folder)
        except (OSError, CacheError):
            return None

    def add_signature(self, key: str, signature: bytes) -> None:
        """Add a signature file to an entry, replacing an existing one.

        Raises:
            OSError: there is no such entry, or it cannot be written.
        """
        replace_file(self.layout.entry(key) / SIGNATURE, signature, self.layout.private)

    def publish(self, key: str, artifact: Artifact, signature: bytes | None = None) -> None:
        """Store ``artifact`` under ``key`` in one step; keep what is there if another process was first.

        Args:
            key: its key.
            artifact: what to store. If its manifest holds a source key, it is added to the alias of that source.
            signature: its signature file, if it has one.

        Raises:
            OSError: it could not be written, or living processes use everything that could be evicted to make room for
                it. Nothing of it is left behind.
        """
        if not self.writable:
            return
        with no_fork():
            from jitnorm.cache.room import give_back, make_room, space_needed

        place = self.layout.entry(key)
        files = {PAYLOAD: artifact.payload, MANIFEST: encode_manifest(key, artifact)}
        if signature is not None:
            files[SIGNATURE] = signature
        for name, data in files.items():
            if len(data) > LIMITS[name]:  # nobody would read it
                raise OSError(errno.EFBIG, f"the {name} of {key} has {len(data)} bytes; allowed are {LIMITS[name]}")
        source_key = source_key_of(artifact)
        alias = self.layout.alias(source_key) if source_key else None
        remove_stale(self.layout.private)
        note_use(self.layout, key)
        space = space_needed(self.layout, place, alias, map(len, files.values()))
        make_room(self, space)
        is_new = False
        try:
            is_new = self._put(key, artifact, files, alias)
        finally:
            if not is_new:
                give_back(self, space)
        if is_new:
            emit("publish", key=key, bytes=len(artifact.payload))

    def _put(self, key: str, artifact: Artifact, files: Mapping[str, bytes], alias: Path | None) -> bool:
        """Write the files of an entry and rename it into place; return whether its path was free."""
        with private_folder(self.layout.private) as folder, Workers(len(files)) as workers:
            tasks: list[Callable[[], None]] = [partial(write_file, folder / name, data) for name, data in files.items()]
            # First, so that no entry lacks its alias, whenever its writer dies; a dangling alias does no harm.
            if alias:
                tasks.append(partial(add_to_alias, alias, key))
            # Concurrently, they wait for a single commit of the file system's journal: 6 ms instead of 16.
            workers.map(lambda task: task(), tasks)
            sync_folder(folder)
            inode = folder.stat().st_ino
            if not _rename_into_place(folder, self.layout.entry(key)):
                return False
        # Again, in case it was swept as dangling.
        if alias:
            add_to_alias(alias, key)
        entry = Entry(key, len(artifact.payload), time.time(), artifact.manifest)
        add_to_index(self.layout, [Line.of(inode, entry)])
        return True

    def entries(self) -> Iterator[Entry]:
        """List the stored entries, in the order of the keys.

        Manifests are verified, payloads only by their size; entries that fail are omitted and left alone.
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

    def quarantine(self, key: str, reason: str, seen: os.stat_result | None) -> bool:
        """Move an entry to the quarantine, unless it is no longer the one that was ``seen``.

        Returns:
            Whether it was moved. If not, that is logged.
        """
        place = self.layout.entry(key)
        try:
            found = place.lstat()
            if seen is not None and not os.path.samestat(seen, found):
                return False  # another reader was faster, and the key may have a good entry by now
            if not self.writable:
                _LOG.warning("ignoring the cache entry %s: %s", place, reason)
                return False
            make_folder(self.layout.quarantine)
            refuge = self.layout.quarantine / f"{place.name}.{os.urandom(8).hex()}"
            place.rename(refuge)
            fields = {"key": key, "reason": reason, "place": str(refuge)}
            text = "moved the cache entry %s to %s: %s"
            _LOG.warning(text, place, refuge, reason, extra=log_fields("quarantine", **fields))
            emit("quarantine", **fields)
            return True
        except (FileNotFoundError, NotADirectoryError):
            pass  # there is nothing to move
        except OSError as error:
            _LOG.warning("ignoring the cache entry %s: %s; it cannot be moved away: %s", place, reason, error)
        return False

    def _refuse(self, error: CacheTrustError) -> None:
        """Raise the error if new builds would be stored where others can write; otherwise skip this tier."""
        if self.writable:
            raise error
        tier_failed(self.name, str(error))

    def _record_use(self, key: str, folder: int) -> None:
        """Record the use of an entry for pruning: by whom, and when, to the hour."""
        if not self.writable:
            return
        note_use(self.layout, key)
        # Also if the last use is in the future, from a wrong clock.
        if abs(time.time() - os.fstat(folder).st_mtime) > _USE_PRECISION_SECONDS:
            with contextlib.suppress(OSError):
                os.utime(folder)
                keys_in_use(self.layout)  # removes the files of dead processes


def _rename_into_place(folder: Path, place: Path) -> bool:
    """Rename a folder to the path of an entry; return whether that was free."""
    for is_last in (False, False, True):
        make_folder(place.parent)
        try:
            folder.rename(place)
        except OSError as error:
            # Linux reports ESTALE if another NFS client has put an entry there that was seen here in the private
            # folders.
            if error.errno in _TAKEN or (error.errno == errno.ESTALE and os.path.lexists(place)):
                return False
            if error.errno not in GONE or is_last or not folder.exists():
                raise
            continue  # the shard was empty, and removed meanwhile
        try:
            sync_folder(place.parent)
        except OSError as error:
            if error.errno not in GONE:  # it is gone again, and its shard too
                raise
        return True
    return False
