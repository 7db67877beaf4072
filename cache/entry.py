"""Reads the files of an entry within their size limits, and verifies them before use."""

from __future__ import annotations

import errno
from collections.abc import Callable

from jitnorm.cache.artifact import Artifact, decode_manifest, verify_payload
from jitnorm.cache.errors import CorruptEntryError
from jitnorm.cache.layout import LIMITS, MANIFEST, PAYLOAD, SIGNATURE
from jitnorm.cache.trust import OpenFolder

# Raises UntrustedEntryError for a manifest file whose signature (None if absent) it does not accept.
SignatureCheck = Callable[[bytes, "bytes | None"], None]

# Errors that mean damage when reading a file of an entry; EIO is a bad disk, which will not improve.
_DAMAGE = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENXIO, errno.EFBIG, errno.EIO}


def read_entry(key: str, folder: OpenFolder, check: SignatureCheck | None = None) -> Artifact:
    """Read and verify every byte of an entry.

    Args:
        key: the key of the entry.
        folder: the folder of the entry.
        check: verifies its signature; None to require none.

    Raises:
        CorruptEntryError: it differs from what was published, or its signature is not accepted.
        CacheTrustError: others could have written one of its files.
        OSError: it cannot be read for an unrelated reason.
    """
    manifest = _read(folder, MANIFEST, LIMITS[MANIFEST])
    if check is not None:
        check(manifest, read_signature(folder))
    expected = decode_manifest(key, manifest)
    return verify_payload(expected, _read(folder, PAYLOAD, min(expected.payload_size, LIMITS[PAYLOAD])))


def read_signature(folder: OpenFolder) -> bytes | None:
    """Read the signature file of an entry; None if it has none. For errors see `read_entry`."""
    try:
        return folder.read(SIGNATURE, LIMITS[SIGNATURE])
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _damaged_or_unreadable(SIGNATURE, error) from error


def _read(folder: OpenFolder, name: str, limit: int) -> bytes:
    try:
        return folder.read(name, limit)
    except OSError as error:
        raise _damaged_or_unreadable(name, error) from error


def _damaged_or_unreadable(name: str, error: OSError) -> Exception:
    return CorruptEntryError(f"{name} cannot be read: {error.strerror}") if error.errno in _DAMAGE else error
