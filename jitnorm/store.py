"""The cache of this process."""

from __future__ import annotations

import os
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from jitnorm.cache import Cache, Store, open_cache, open_store
from jitnorm.cache.private import private_folder
from jitnorm.cache.wheels import WheelFolder
from jitnorm.misses import JIT_VARIABLE

if TYPE_CHECKING:
    from jitnorm.toolchains.workplace import Workplace

# Below the package: what jitnorm's own wheels bring, the launcher.
PREBUILT = "prebuilt/cache"


@lru_cache(maxsize=1)
def user_store() -> Store:
    """The user's cache, opened once; see `jitnorm.cache.open_store` for its place and its errors."""
    return open_store()


@lru_cache(maxsize=1)
def user_cache() -> Cache:
    """All tiers of the cache, opened once; see `jitnorm.cache.open_cache` for its errors."""
    return open_cache(user_store(), wheels=own_wheels())


def own_wheels() -> list[WheelFolder]:
    """What jitnorm's own wheel brings; nothing if it is one for any machine."""
    from jitnorm import __version__

    own = WheelFolder("jitnorm", Path(__file__).parent / PREBUILT, __version__)
    return [own] if own.path.is_dir() else []


def as_cache(place: Cache | Store) -> Cache:
    """A cache as it is; a store as a cache of this tier alone."""
    return place if isinstance(place, Cache) else Cache(place)


def memo_folder(store: Store) -> Path | None:
    """Where toolchains remember their identities; None if nothing can be written.

    Nor is anything where compiling is forbidden, unless a warming process has left its memos.
    """
    folder = store.layout.version / "toolchains"
    is_denied = os.environ.get(JIT_VARIABLE) == "deny"  # whether it has an allowed value is not for here
    return folder if store.writable and (not is_denied or folder.exists()) else None


def workplaces(store: Store) -> tuple[Workplace, ...]:
    """Where compilers work: within the cache, which removes what killed builders leave; else with temporary files."""
    from jitnorm.toolchains.workplace import DEFAULT_WORKPLACES

    own = (partial(private_folder, store.layout.private),) if store.writable else ()
    return (*own, *DEFAULT_WORKPLACES)
