"""The files of one entry: read within their bounds, and verified before they are used."""

from __future__ import annotations

import errno
from collections.abc import Callable

from jitnorm.cache.artifact import Artifact, decode_manifest, verify_payload
from jitnorm.cache.errors import CorruptEntryError
from jitnorm.cache.layout import LIMITS, MANIFEST, PAYLOAD, SIGNATURE
from jitnorm.cache.trust import OpenFolder

# Refuses, with an UntrustedEntryError, a manifest file whose signature (None: there is none) it does not accept.
SignatureCheck = Callable[[bytes, "bytes | None"], None]

# What a file of an entry gives that is none; EIO is a bad disk, no better later.
_DAMAGE = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENXIO, errno.EFBIG, errno.EIO}


def read_entry(key: str, folder: OpenFolder, check: SignatureCheck | None = None) -> Artifact:
    """Read and verify every byte of an entry.

    Args:
        key: what it is stored under.
        folder: its folder.
        check: what its signature must pass; None asks for none.

    Raises:
        CorruptEntryError: it is not what was published, or its signature is not accepted.
        CacheTrustError: others could have written one of its files.
        OSError: it cannot be read for a reason that lies outside it.
    """
    manifest = _read(folder, MANIFEST, LIMITS[MANIFEST])
    if check is not None:
        check(manifest, read_signature(folder))
    expected = decode_manifest(key, manifest)
    return verify_payload(expected, _read(folder, PAYLOAD, min(expected.payload_size, LIMITS[PAYLOAD])))


def read_signature(folder: OpenFolder) -> bytes | None:
    """The signature file of an entry, or None if it has none; for the errors see `read_entry`."""
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
