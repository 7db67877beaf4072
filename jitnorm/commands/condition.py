"""Whether an entry can be used, without touching it."""

from __future__ import annotations

import os

from jitnorm.cache import Entry, Store
from jitnorm.cache.artifact import decode_manifest
from jitnorm.cache.entry import read_entry
from jitnorm.cache.errors import CacheTrustError, CorruptEntryError
from jitnorm.cache.files import open_folder, read_file
from jitnorm.cache.layout import MANIFEST
from jitnorm.cache.store import SignatureCheck


def describe(store: Store, key: str) -> Entry | None:
    """An entry, as a listing shows it; None if there is none or its manifest cannot be read."""
    try:
        with open_folder(store.layout.entry(key)) as folder:
            stored = decode_manifest(key, read_file(MANIFEST, folder))
            published = os.stat(MANIFEST, dir_fd=folder, follow_symlinks=False).st_mtime
    except (CorruptEntryError, OSError):
        return None
    return Entry(key, stored.payload_size, published, stored.manifest)


def problem_of(store: Store, key: str) -> str | None:
    """Why an entry cannot be used; empty if it can be, None if there is none."""
    try:
        with store.open_entry(key) as folder:
            read_entry(key, folder, store.check)
    except FileNotFoundError:
        return None
    except (CorruptEntryError, CacheTrustError, OSError) as error:
        return str(error)
    return ""


def distrust_of(store: Store, key: str, check: SignatureCheck) -> str:
    """Why an entry's signature is not accepted; empty if it is, or there is no such entry."""
    try:
        with open_folder(store.layout.entry(key)) as folder:
            check(read_file(MANIFEST, folder), store.signature(key))
    except FileNotFoundError:
        return ""
    except (CorruptEntryError, OSError) as error:
        return str(error)
    return ""


def signature_of(store: Store, key: str, check: SignatureCheck | None) -> str:
    """What an entry's signature is worth, in words; empty if it has none.

    Args:
        store: where it lies.
        key: of the entry.
        check: what knows the trusted keys; None if there are none.
    """
    if store.signature(key) is None:
        return ""
    if check is None:
        return "not checked: JITNORM_TRUSTED_KEYS is not set"
    return distrust_of(store, key, check) or "valid"
