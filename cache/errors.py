"""Errors of the cache itself. A failing build raises its own exception, never one of these."""

from __future__ import annotations


class CacheError(RuntimeError):
    """Base of the cache's errors; raised directly for an invalid setting of the cache."""


class CacheTrustError(CacheError):
    """Somebody else could have written compiled code into the cache folder."""


class CacheUnusableError(CacheError):
    """The cache folder that the user named cannot be created or written."""


class CorruptEntryError(CacheError):
    """A stored entry differs from what was published. Never leaves the store, which treats it as a miss."""


class UntrustedEntryError(CorruptEntryError):
    """An entry has no valid signature where one is required. Counts as absent, like a corrupt one."""


class RemoteError(CacheError):
    """A remote tier does not answer, or refuses. Lookups skip it; explicit transfers raise it."""


class ArchiveError(CacheError):
    """An archive was not written by `export_archive`, or an entry in it is damaged or not trusted."""
