"""A remote tier: any place that fsspec knows, in the layout of a cache folder.

An entry is there once its manifest is, which is written last. Nothing here raises into a lookup because of the
network: a tier that fails is left alone for a while.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

from jitnorm.cache.aliases import MAX_BYTES as MAX_ALIAS_BYTES
from jitnorm.cache.aliases import decode_alias, encode_alias, source_key_of
from jitnorm.cache.artifact import Artifact, decode_artifact, decode_manifest, encode_manifest
from jitnorm.cache.bounded import bounded
from jitnorm.cache.errors import CacheError, CorruptEntryError, RemoteError
from jitnorm.cache.failures import tier_failed
from jitnorm.cache.key import check_key, is_key
from jitnorm.cache.layout import MANIFEST, PAYLOAD, SIGNATURE
from jitnorm.cache.publisher import publish_later
from jitnorm.cache.signature import MAX_BYTES as MAX_SIGNATURE_BYTES
from jitnorm.cache.store import Entry, SignatureCheck
from jitnorm.cache.warn import logger

# How long a tier that has failed is not asked again.
PAUSE_SECONDS = 60.0
MAX_MANIFEST_BYTES = 1 << 20
MAX_PAYLOAD_BYTES = 1 << 30
_READ_ONLY_PROTOCOLS = ("http", "https")

_Result = TypeVar("_Result")


class RemoteTier:
    """A `Tier` behind a URL. Making one asks nothing of it.

    Args:
        url: of the folder, as fsspec has it: ``s3://bucket/kernels``, ``https://...``, ``file:///...``
        timeout: seconds that each operation may take as a whole.
        writable: whether to publish what is built.
        check: what every entry's signature must pass; None asks for none.

    Attributes:
        name: ``remote`` and the URL, without credentials.
        timeout: as given.
        writable: as given.

    Raises:
        CacheError: it is no URL, cannot be written to by its nature, or fsspec is not installed.
    """

    def __init__(
        self, url: str, *, timeout: float = 10.0, writable: bool = False, check: SignatureCheck | None = None
    ) -> None:
        self.name = f"remote {without_credentials(url)}"
        self.timeout, self.writable, self._check, self._url = timeout, writable, check, url
        self._paused_until = 0.0
        self._opened: tuple[int, Any, str] | None = None
        if "://" not in url:
            raise CacheError(
                f"the remote cache is {url!r}, which is no URL; needed is one such as s3://bucket/kernels or "
                "file:///folder"
            )
        if writable and url.startswith(tuple(f"{protocol}:" for protocol in _READ_ONLY_PROTOCOLS)):
            raise CacheError(f"{self.name} can only be read; set JITNORM_REMOTE_MODE to read, or name another URL")
        from importlib.util import find_spec

        if find_spec("fsspec") is None:
            raise CacheError(
                f"{self.name} needs the package fsspec, which is not installed: pip install 'jitnorm[remote]'"
            )

    def load(self, key: str) -> Artifact | None:
        """The artifact stored under ``key``, verified, or None; see `Tier`."""
        return self.fetch(key)[0]

    def fetch(self, key: str) -> tuple[Artifact | None, bytes | None]:
        """The artifact stored under ``key`` and its signature file; None for what is not there or not trusted."""
        check_key(key)
        try:
            return self._ask(partial(self._read_entry, key)) or (None, None)
        except CorruptEntryError as error:
            logger.warning("ignoring the cache entry %s of %s: %s", key, self.name, error)
            return None, None

    def keys_of(self, source_key: str) -> tuple[str, ...]:
        """See `Tier`."""
        check_key(source_key)
        return self._ask(partial(self._read_alias, source_key)) or ()

    def publish_soon(self, key: str, artifact: Artifact, signature: bytes | None) -> None:
        """Publish in the background, if this tier is writable; a process that ends waits for it, within the timeout."""
        if self.writable and not self._is_paused():
            publish_later(partial(self._ask, partial(self._publish, key, artifact, signature)), self.timeout)

    def write(self, key: str, artifact: Artifact, signature: bytes | None = None) -> None:
        """Store an artifact now, in place of what is there, without an alias.

        Raises:
            RemoteError: it could not be stored.
        """
        self._demand(partial(self._write_entry, key, artifact, signature))

    def add_aliases(self, source_key: str, keys: Sequence[str]) -> None:
        """Have the alias of a source name some keys.

        Raises:
            RemoteError: it could not be written.
        """
        self._demand(partial(self._add_aliases, source_key, keys))

    def has(self, key: str) -> bool:
        """Whether an entry is there; it is not verified.

        Raises:
            RemoteError: the tier does not answer.
        """
        check_key(key)
        return self._demand(partial(self._exists, _entry(key, MANIFEST)))

    def demand(self, key: str) -> tuple[Artifact, bytes | None]:
        """The artifact stored under ``key`` and its signature file.

        Raises:
            RemoteError: the tier does not answer.
            CorruptEntryError: the entry is absent, damaged or not trusted.
        """
        check_key(key)
        found = self._demand(partial(self._read_entry, key, keeps_signature=True))
        if found is None:
            raise CorruptEntryError("there is no such entry")
        return found

    def describe(self, key: str) -> Entry | None:
        """What lies under a key, as a listing shows it, or None; the payload is not read.

        Raises:
            RemoteError: the tier does not answer.
        """
        check_key(key)
        return self._demand(partial(self._read_description, key))

    def keys(self) -> list[str]:
        """The keys of all entries there are, sorted; none is verified.

        Raises:
            RemoteError: the tier does not answer, or cannot be listed.
        """
        return self._demand(lambda: sorted(self._list()))

    def _ask(self, operation: Callable[[], _Result]) -> _Result | None:
        """The result of an operation; None if the tier fails, or has failed a short time ago."""
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

    def _demand(self, operation: Callable[[], _Result]) -> _Result:
        self._open()
        try:
            return bounded(operation, self.timeout)
        except CacheError:
            raise
        # Each file system raises errors of its own.
        except Exception as error:
            raise RemoteError(f"{self.name} failed: {type(error).__name__}: {error}") from error

    def _open(self) -> tuple[Any, str]:
        """The file system and the path within it; a child of a fork opens its own."""
        pid = os.getpid()
        if self._opened is None or self._opened[0] != pid:
            from fsspec.core import url_to_fs

            try:
                files, root = url_to_fs(self._url, skip_instance_cache=True, use_listings_cache=False)
            except (ImportError, ValueError, TypeError) as error:
                raise CacheError(f"{self.name} cannot be opened: {error}") from error
            self._opened = pid, files, root.rstrip("/")
        return self._opened[1:]

    def _read_entry(self, key: str, *, keeps_signature: bool = False) -> tuple[Artifact, bytes | None] | None:
        manifest = self._read_if_there(_entry(key, MANIFEST), MAX_MANIFEST_BYTES)
        if manifest is None:
            return None
        signature = None
        if keeps_signature or self._check is not None:
            signature = self._read_if_there(_entry(key, SIGNATURE), MAX_SIGNATURE_BYTES)
        if self._check is not None:
            self._check(manifest, signature)
        size = decode_manifest(key, manifest).payload_size
        if not 0 <= size <= MAX_PAYLOAD_BYTES:
            raise CorruptEntryError(f"its payload has {size} bytes; allowed are {MAX_PAYLOAD_BYTES}")
        payload = self._read_if_there(_entry(key, PAYLOAD), size)
        if payload is None:
            raise CorruptEntryError("it has no payload")
        return decode_artifact(key, manifest, payload), signature

    def _read_description(self, key: str) -> Entry | None:
        try:
            raw = self._read_if_there(_entry(key, MANIFEST), MAX_MANIFEST_BYTES)
            stored = None if raw is None else decode_manifest(key, raw)
        except CorruptEntryError:
            return None
        return None if stored is None else Entry(key, stored.payload_size, self._modified(key), stored.manifest)

    def _modified(self, key: str) -> float:
        """When an entry was published; 0 where the file system does not say."""
        files, root = self._open()
        try:
            return float(files.modified(f"{root}/{_entry(key, MANIFEST)}").timestamp())
        except (NotImplementedError, AttributeError):
            return 0.0

    def _read_if_there(self, path: str, limit: int) -> bytes | None:
        files, root = self._open()
        try:
            # One byte more than allowed is enough to see that there is too much.
            raw: bytes = files.cat_file(f"{root}/{path}", start=0, end=limit + 1)
        except FileNotFoundError:
            return None
        if len(raw) > limit:
            raise CorruptEntryError(f"{path} has more than {limit} bytes")
        return raw

    def _exists(self, path: str) -> bool:
        files, root = self._open()
        try:
            files.info(f"{root}/{path}")
        except FileNotFoundError:
            return False
        return True

    def _list(self) -> Iterator[str]:
        files, root = self._open()
        is_web = self._url.startswith(_READ_ONLY_PROTOCOLS)
        # These would leave out what they cannot list, and so show a server that is down as an empty cache.
        strictly = {"on_error": "raise"} if is_web or "file" in (files.protocol, *files.protocol) else {}
        try:
            paths = files.find(f"{root}/v1", **strictly)
        except FileNotFoundError:
            if is_web:  # most web servers list nothing
                raise
            return
        for path in paths:
            key = path.rpartition("/")[0].rpartition("/")[2]
            if is_key(key) and path.endswith(f"/{_entry(key, MANIFEST)}"):
                yield key

    def _write_entry(self, key: str, artifact: Artifact, signature: bytes | None) -> None:
        self._write(_entry(key, PAYLOAD), artifact.payload)
        if signature is not None:
            self._write(_entry(key, SIGNATURE), signature)
        self._write(_entry(key, MANIFEST), encode_manifest(key, artifact))

    def _publish(self, key: str, artifact: Artifact, signature: bytes | None) -> None:
        self._write_entry(key, artifact, signature)
        if source_key := source_key_of(artifact):
            self._add_aliases(source_key, [key])

    def _read_alias(self, source_key: str) -> tuple[str, ...]:
        try:
            return decode_alias(self._read_if_there(_alias(source_key), MAX_ALIAS_BYTES) or b"")
        except CorruptEntryError:
            return ()

    def _add_aliases(self, source_key: str, new: Sequence[str]) -> None:
        known = self._read_alias(source_key)
        if missing := tuple(key for key in new if key not in known):
            self._write(_alias(source_key), encode_alias((*known, *missing)))

    def _write(self, path: str, data: bytes) -> None:
        files, root = self._open()
        place = f"{root}/{path}"
        # Object stores show an object once it is whole; in a folder it takes a rename.
        if "file" not in (files.protocol, *files.protocol):
            files.pipe_file(place, data)
            return
        private = f"{place}.{os.getpid()}.{os.urandom(8).hex()}.tmp"
        files.makedirs(place.rpartition("/")[0], exist_ok=True)
        files.pipe_file(private, data)
        files.mv(private, place)


def _entry(key: str, file: str) -> str:
    return f"v1/{key[:2]}/{key}/{file}"


def _alias(source_key: str) -> str:
    return f"v1/sources/{source_key[:2]}/{source_key}"


def without_credentials(url: str) -> str:
    """A URL as it may be shown: without user, password and query."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
