"""The cache of this process."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from jitnorm.cache import Store, open_store


@lru_cache(maxsize=1)
def user_store() -> Store:
    """The user's cache, opened once; see `jitnorm.cache.open_store` for its place and its errors."""
    return open_store()


def memo_folder(store: Store) -> Path | None:
    """Where toolchains remember their identities; None if nothing can be written."""
    return store.layout.version / "toolchains" if store.writable else None
