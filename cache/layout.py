"""Where everything is stored below a cache root. No other module knows."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from jitnorm.cache.key import check_key, is_key

PAYLOAD = "payload"
MANIFEST = "manifest.json"
SIGNATURE = "signature"
REVOCATIONS = "revocations"
# The maximum size of each file of an entry, in any tier.
LIMITS = {MANIFEST: 1 << 20, PAYLOAD: 1 << 30, SIGNATURE: 4096}
_SHARD = re.compile("[0-9a-f]{2}")


@dataclass(frozen=True)
class Layout:
    """The paths of one cache root. Never writes.

    Attributes:
        root: the folder that contains everything.
    """

    root: Path

    @cached_property
    def version(self) -> Path:
        """The folder of this layout; an incompatible later layout gets another name next to it."""
        return self.root / "v1"

    @cached_property
    def private(self) -> Path:
        """Entries being written, one folder per writer."""
        return self.version / "tmp"

    @cached_property
    def quarantine(self) -> Path:
        """Entries that failed verification."""
        return self.version / "quarantine"

    @cached_property
    def locks(self) -> Path:
        """Lock files, one per key and one for pruning, and the notes on their holders."""
        return self.version / "locks"

    @cached_property
    def sources(self) -> Path:
        """Alias files, one per source, with the keys of the artifacts built from it."""
        return self.version / "sources"

    @property
    def misses(self) -> Path:
        """The record of misses."""
        return self.version / "misses.jsonl"

    def tuning(self, target: str) -> Path:
        """The table of schedules measured for a target."""
        return self.version / "tuning" / f"{target}.json"

    @property
    def toolchains(self) -> Path:
        """The identities of compilers, one file each."""
        return self.version / "toolchains"

    @cached_property
    def uses(self) -> Path:
        """Files with the keys that living processes have loaded, one per process."""
        return self.version / "uses"

    @cached_property
    def index(self) -> Path:
        """The index, with one line per entry for listings."""
        return self.version / "index.jsonl"

    @cached_property
    def ledger(self) -> Path:
        """The running total of disk space."""
        return self.version / "space"

    @property
    def prune_lock(self) -> Path:
        """The lock of the process that removes entries."""
        return self.locks / "prune.lock"

    @property
    def revocations_lock(self) -> Path:
        """The lock of the process that adopts a revocation list."""
        return self.locks / "revocations.lock"

    @property
    def folders(self) -> tuple[Path, ...]:
        """The folders that every writer needs, outermost first."""
        return (self.root, self.version, self.private, self.quarantine, self.locks, self.uses)

    def entry(self, key: str) -> Path:
        """The folder of one entry."""
        check_key(key)
        return Path(f"{self.version}/{key[:2]}/{key}")

    def alias(self, source_key: str) -> Path:
        """The alias file of one source."""
        check_key(source_key)
        return Path(f"{self.sources}/{source_key[:2]}/{source_key}")

    def lock(self, key: str, *, second: bool = False) -> Path:
        """A lock file of one key. Only the holder may remove it; waiters that have it open notice."""
        check_key(key)
        return self.locks / (f"{key}.2.lock" if second else f"{key}.lock")

    def holder(self, key: str, *, second: bool = False) -> Path:
        """The note about the holder of that lock."""
        check_key(key)
        return self.locks / (f"{key}.2.holder" if second else f"{key}.holder")

    def shards(self) -> list[str]:
        """The names of the folders that contain entries, sorted."""
        return _shards(self.version)

    def source_shards(self) -> list[str]:
        """The names of the folders that contain aliases, sorted."""
        return _shards(self.sources)

    def entries(self) -> Iterator[tuple[str, Path]]:
        """Yield the key and folder of every entry, in the order of the keys."""
        for shard in self.shards():
            folder = self.version / shard
            for key in keys_in(folder):
                yield key, folder / key


def keys_in(shard: Path) -> list[str]:
    """The keys in a shard, sorted; none if it is not a folder or cannot be read."""
    prefix = shard.name
    try:
        return sorted(name for name in os.listdir(shard) if name.startswith(prefix) and is_key(name))
    except OSError:
        return []


def _shards(folder: Path) -> list[str]:
    try:
        return sorted(name for name in os.listdir(folder) if _SHARD.fullmatch(name))
    except OSError:
        return []
