"""The remote tier: any location that fsspec supports, in the layout of a cache folder.

An entry exists once its manifest does, which is written last. Network errors never reach a lookup: a failing tier is
skipped for a while.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar
from urllib.parse import urlsplit, urlunsplit

from jitnorm.cache.aliases import MAX_BYTES as MAX_ALIAS_BYTES
from jitnorm.cache.aliases import decode_alias, encode_alias, source_key_of
from jitnorm.cache.artifact import Artifact, decode_artifact, decode_manifest, encode_manifest
from jitnorm.cache.bounded import Deadline, bounded
from jitnorm.cache.errors import CacheError, CorruptEntryError, RemoteError
from jitnorm.cache.failures import tier_failed
from jitnorm.cache.key import check_key, is_key
from jitnorm.cache.layout import MANIFEST, PAYLOAD, REVOCATIONS, SIGNATURE
from jitnorm.cache.printable import printable
from jitnorm.cache.publisher import publish_later
from jitnorm.cache.remote_files import WEB_PROTOCOLS, RemoteFiles, RemotePlace
from jitnorm.cache.revocation import MAX_BYTES as MAX_REVOCATIONS_BYTES
from jitnorm.cache.revocation import RevocationList
from jitnorm.cache.signature import MAX_BYTES as MAX_SIGNATURE_BYTES
from jitnorm.cache.store import Entry, SignatureCheck
from jitnorm.cache.warn import logger

# How long a failed tier is skipped.
PAUSE_SECONDS = 60.0
MAX_MANIFEST_BYTES = 1 << 20
MAX_PAYLOAD_BYTES = 1 << 30
# Characters of an error's text, which may quote a server.
_MAX_REASON = 500
_MALFORMED = "(malformed)"
_REVOCATIONS = f"v1/{REVOCATIONS}"

_Result = TypeVar("_Result")


class RemoteTier:
    """A `Tier` behind a URL. The constructor does not contact it.

    Args:
        url: the folder as an fsspec URL: ``s3://bucket/kernels``, ``https://...``, ``file:///...``
        timeout: seconds that each operation may take as a whole.
        writable: whether to publish new builds.
        check: verifies the signature of every entry; None to require none.
        revocations: the revocation list that this tier must renew; None to require none.

    Attributes:
        name: ``remote`` and the URL, without credentials.
        timeout: as given.
        writable: as given.

    Raises:
        CacheError: it is not a URL, its protocol is read-only, or fsspec is not installed. Unknown protocols and
            missing packages are only detected on first use.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout: float = 10.0,
        writable: bool = False,
        check: SignatureCheck | None = None,
        revocations: RevocationList | None = None,
    ) -> None:
        shown = without_credentials(url)
        if "://" not in url or shown == _MALFORMED:
            raise CacheError(
                f"the remote cache is {shown!r}, which is not a URL; expected one such as s3://bucket/kernels or "
                "file:///folder"
            )
        self.name = f"remote {shown}"
        self.timeout, self.writable, self._check = timeout, writable, check
        self._revocations = revocations
        self._place = RemotePlace(url, self.name)
        self._paused_until = 0.0
        if writable and url.startswith(tuple(f"{protocol}:" for protocol in WEB_PROTOCOLS)):
            raise CacheError(f"{self.name} can only be read; set JITNORM_REMOTE_MODE to read, or name another URL")
        from importlib.util import find_spec

        if find_spec("fsspec") is None:
            raise CacheError(
                f"{self.name} needs the package fsspec, which is not installed: pip install 'jitnorm[remote]'"
            )

    def load(self, key: str) -> Artifact | None:
        """Load and verify the artifact stored under ``key``, or return None; see `Tier`."""
        return self.fetch(key)[0]

    def fetch(self, key: str) -> tuple[Artifact | None, bytes | None]:
        """Load the artifact stored under ``key`` with its signature file; None if it is absent or not trusted."""
        check_key(key)
        try:
            return self._ask(partial(self._read_entry, key)) or (None, None)
        except CorruptEntryError as error:
            logger.warning("ignoring the cache entry %s of %s: %s", key, self.name, error)
            return None, None

    def keys_of(self, source_key: str) -> tuple[str, ...]:
        """See `Tier`."""
        check_key(source_key)
        return self._ask(partial(_read_alias, source_key)) or ()

    def publish_soon(self, key: str, artifact: Artifact, signature: bytes | None) -> None:
        """Publish in the background if this tier is writable; an exiting process waits for it, up to the timeout."""
        if self.writable and not self._is_paused():
            publish_later(partial(self._ask, partial(_publish, key, artifact, signature)), self.timeout)

    def write(self, key: str, artifact: Artifact, signature: bytes | None = None) -> None:
        """Store an artifact now, replacing an existing one, without an alias.

        Raises:
            RemoteError: storing failed.
        """
        self._demand(partial(_write_entry, key, artifact, signature))

    def add_aliases(self, source_key: str, keys: Sequence[str]) -> None:
        """Add keys to the alias of a source.

        Raises:
            RemoteError: writing failed.
        """
        self._demand(partial(_add_aliases, source_key, keys))

    def has(self, key: str) -> bool:
        """Whether an entry exists, without verifying it.

        Raises:
            RemoteError: the tier does not answer.
        """
        check_key(key)
        return self._demand(lambda files: files.exists(_entry(key, MANIFEST)))

    def demand(self, key: str) -> tuple[Artifact, bytes | None]:
        """Load the artifact stored under ``key`` with its signature file.

        Raises:
            RemoteError: the tier does not answer.
            CorruptEntryError: the entry is absent, damaged or not trusted.
        """
        check_key(key)
        found = self._demand(partial(self._read_entry, key, keeps_signature=True))
        if found is None:
            raise CorruptEntryError("there is no such entry")
        return found

    def revocations(self) -> bytes | None:
        """The file of the revocation list, not verified; None if there is none.

        Raises:
            RemoteError: the tier does not answer.
        """
        return self._demand(_read_revocations)

    def write_revocations(self, raw: bytes) -> None:
        """Store the file of a revocation list, replacing the present one.

        Raises:
            RemoteError: storing failed.
        """
        self._demand(lambda files: files.write(_REVOCATIONS, raw))

    def describe(self, key: str) -> Entry | None:
        """Describe an entry for listings, or return None; the payload is not read.

        Raises:
            RemoteError: the tier does not answer.
        """
        check_key(key)
        return self._demand(partial(_read_description, key))

    def keys(self) -> list[str]:
        """The sorted keys of all entries, without verifying them.

        Raises:
            RemoteError: the tier does not answer, or cannot be listed.
        """
        return self._demand(_keys_in)

    def _ask(self, operation: Callable[[RemoteFiles], _Result]) -> _Result | None:
        """Run an operation and return its result; None if the tier fails, or failed recently."""
        if self._is_paused():
            return None
        try:
            return self._demand(operation)
        except RemoteError as error:
            self._paused_until = time.monotonic() + PAUSE_SECONDS
            tier_failed(self.name, str(error))
            return None

    def _is_paused(self) -> bool:
        return time.monotonic() < self._paused_until

    def _demand(self, operation: Callable[[RemoteFiles], _Result]) -> _Result:
        deadline = Deadline(self.timeout)
        try:
            return bounded(lambda: operation(self._place.files(deadline)), self.timeout)
        except CacheError:
            raise
        # Every file system has its own errors.
        except Exception as error:
            self._place.forget()
            reason = printable("".join(traceback.format_exception_only(error)).strip()[:_MAX_REASON])
            raise RemoteError(f"{self.name} failed: {reason}") from error

    def _read_entry(
        self, key: str, files: RemoteFiles, *, keeps_signature: bool = False
    ) -> tuple[Artifact, bytes | None] | None:
        if self._revocations is not None:
            self._revocations.refresh(partial(_read_revocations, files), self.name)
        manifest = files.read(_entry(key, MANIFEST), MAX_MANIFEST_BYTES)
        if manifest is None:
            return None
        signature = None
        if keeps_signature or self._check is not None:
            signature = files.read(_entry(key, SIGNATURE), MAX_SIGNATURE_BYTES)
        if self._check is not None:
            self._check(manifest, signature)
        size = decode_manifest(key, manifest).payload_size
        if not 0 <= size <= MAX_PAYLOAD_BYTES:
            raise CorruptEntryError(f"its payload has {size} bytes; allowed are {MAX_PAYLOAD_BYTES}")
        payload = files.read(_entry(key, PAYLOAD), size)
        if payload is None:
            raise CorruptEntryError("it has no payload")
        return decode_artifact(key, manifest, payload), signature


def _read_revocations(files: RemoteFiles) -> bytes | None:
    return files.read(_REVOCATIONS, MAX_REVOCATIONS_BYTES)


def _read_description(key: str, files: RemoteFiles) -> Entry | None:
    try:
        raw = files.read(_entry(key, MANIFEST), MAX_MANIFEST_BYTES)
        stored = None if raw is None else decode_manifest(key, raw)
    except CorruptEntryError:
        return None
    if stored is None:
        return None
    return Entry(key, stored.payload_size, files.modified(_entry(key, MANIFEST)), stored.manifest)


def _keys_in(files: RemoteFiles) -> list[str]:
    found = ((path, path.rpartition("/")[0].rpartition("/")[2]) for path in files.manifests())
    return sorted({key for path, key in found if is_key(key) and path.endswith(f"/{_entry(key, MANIFEST)}")})


def _write_entry(key: str, artifact: Artifact, signature: bytes | None, files: RemoteFiles) -> None:
    files.write(_entry(key, PAYLOAD), artifact.payload)
    if signature is not None:
        files.write(_entry(key, SIGNATURE), signature)
    files.write(_entry(key, MANIFEST), encode_manifest(key, artifact))


def _publish(key: str, artifact: Artifact, signature: bytes | None, files: RemoteFiles) -> None:
    _write_entry(key, artifact, signature, files)
    if source_key := source_key_of(artifact):
        _add_aliases(source_key, [key], files)


def _read_alias(source_key: str, files: RemoteFiles) -> tuple[str, ...]:
    try:
        return decode_alias(files.read(_alias(source_key), MAX_ALIAS_BYTES) or b"")
    except CorruptEntryError:
        return ()


def _add_aliases(source_key: str, new: Sequence[str], files: RemoteFiles) -> None:
    known = _read_alias(source_key, files)
    if missing := tuple(key for key in new if key not in known):
        files.write(_alias(source_key), encode_alias((*known, *missing)))


def _entry(key: str, file: str) -> str:
    return f"v1/{key[:2]}/{key}/{file}"


def _alias(source_key: str) -> str:
    return f"v1/sources/{source_key[:2]}/{source_key}"


def without_credentials(url: str) -> str:
    """A URL for display, without user, password and query; malformed URLs are hidden entirely."""
    try:
        parts = urlsplit(url)
    except ValueError:  # any part of it may be secret
        return _MALFORMED
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
