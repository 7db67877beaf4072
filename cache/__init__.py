"""A content-addressed, crash-safe store of build artifacts. Knows nothing of kernels."""

from __future__ import annotations

from jitnorm.cache.artifact import Artifact
from jitnorm.cache.build import load_or_build
from jitnorm.cache.errors import CacheError, CacheTrustError, CacheUnusableError
from jitnorm.cache.key import make_key
from jitnorm.cache.root import Root, default_root, open_root, root_is_explicit
from jitnorm.cache.store import Entry, Store

__all__ = [
    "Artifact",
    "CacheError",
    "CacheTrustError",
    "CacheUnusableError",
    "Entry",
    "Root",
    "Store",
    "default_root",
    "load_or_build",
    "make_key",
    "open_root",
    "open_store",
]


def open_store() -> Store:
    """Open the cache of this environment; see ``default_root`` for where it lies.

    Raises:
        CacheTrustError: others could have written to it.
        CacheUnusableError: ``JITNORM_CACHE_DIR`` names a folder that cannot be created or written.
        CacheError: ``JITNORM_CACHE_TRUST`` has an unknown value.
    """
    root = open_root(default_root(), explicit=root_is_explicit())
    return Store(root.path, writable=root.writable)
