"""A content-addressed, crash-safe cache of build artifacts in several tiers, independent of kernels."""

from __future__ import annotations

from jitnorm.cache.artifact import Artifact
from jitnorm.cache.errors import ArchiveError, CacheError, CacheTrustError, CacheUnusableError, RemoteError
from jitnorm.cache.failures import failed_tiers
from jitnorm.cache.key import make_key
from jitnorm.cache.opening import open_cache, open_store
from jitnorm.cache.root import Root, default_root, open_root, root_is_explicit
from jitnorm.cache.store import Entry, Store
from jitnorm.cache.tiers import Cache, Tier, load_or_build

__all__ = [
    "ArchiveError",
    "Artifact",
    "Cache",
    "CacheError",
    "CacheTrustError",
    "CacheUnusableError",
    "Entry",
    "RemoteError",
    "Root",
    "Store",
    "Tier",
    "default_root",
    "failed_tiers",
    "load_or_build",
    "make_key",
    "open_cache",
    "open_root",
    "open_store",
    "root_is_explicit",
]
