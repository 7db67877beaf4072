"""What can be wrong with the cache itself. A failing build raises its own exception, never one of these."""

from __future__ import annotations


class CacheError(RuntimeError):
    """Base of the cache's errors; raised as such when a setting of the cache has no valid value."""


class CacheTrustError(CacheError):
    """The cache folder is one that somebody else could have written compiled code into."""


class CacheUnusableError(CacheError):
    """The cache folder that the user asked for cannot be created or written."""


class CorruptEntryError(CacheError):
    """A stored entry is not what was published. Never leaves the store, where it becomes a miss."""


class UntrustedEntryError(CorruptEntryError):
    """An entry carries no valid signature where one is required. Counts as absent, like a corrupt one."""


class RemoteError(CacheError):
    """A remote tier does not answer, or refuses. Lookups go on without it; explicit transfers raise it."""


class ArchiveError(CacheError):
    """An archive is not one that `export_archive` writes, or an entry in it is damaged or not trusted."""
