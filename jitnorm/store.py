"""Access to this process's cache."""

from __future__ import annotations

import errno
import os
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from jitnorm.cache import Cache, Store, default_root, open_cache, open_store
from jitnorm.cache.private import private_folder
from jitnorm.cache.wheels import WheelFolder
from jitnorm.misses import JIT_VARIABLE

if TYPE_CHECKING:
    from jitnorm.toolchains.workplace import Workplace

# Within the package: the launcher that jitnorm's own wheels contain.
PREBUILT = "prebuilt/cache"


@lru_cache(maxsize=1)
def user_store() -> Store:
    """The user's cache, opened once; see `jitnorm.cache.open_store` for its location and errors."""
    return open_store()


@lru_cache(maxsize=1)
def user_cache() -> Cache:
    """All tiers of the cache, opened once; see `jitnorm.cache.open_cache` for its errors."""
    return open_cache(user_store(), wheels=own_wheels())


def own_wheels() -> list[WheelFolder]:
    """The cache folder in jitnorm's own wheel; none if the wheel is for any machine."""
    from jitnorm import __version__

    own = WheelFolder("jitnorm", Path(__file__).parent / PREBUILT, __version__)
    return [own] if own.path.is_dir() else []


def as_cache(place: Cache | Store) -> Cache:
    """Return a cache unchanged, and a store as a cache with only this tier."""
    return place if isinstance(place, Cache) else Cache(place)


def read_file(path: Path, limit: int) -> bytes:
    """Read a file; one in the user's cache only if nobody else can have written it.

    Raises:
        CacheTrustError: it is in the user's cache, and others could have written it.
        OSError: it is missing, has more than ``limit`` bytes, or cannot be read.
    """
    place = Path(os.path.realpath(path.parent), path.name)
    if place.is_relative_to(os.path.realpath(default_root())):
        return user_store().read(place, limit)
    with path.open("rb") as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise OSError(errno.EFBIG, f"it has more than {limit} bytes", str(path))
    return content


class MemoFolder:
    """The folder in the user's cache where toolchains remember their identities.

    Args:
        store: the user's cache.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def read(self, name: str, limit: int) -> bytes:
        """Read a memo; for errors see `Store.read`."""
        return self._store.read(self._store.layout.toolchains / name, limit)

    def write(self, name: str, content: bytes) -> None:
        """Write a memo; for errors see `Store.replace`."""
        self._store.replace(self._store.layout.toolchains / name, content)


def memo_folder(store: Store) -> MemoFolder | None:
    """The folder where toolchains remember their identities; None if it is not writable.

    Where compiling is forbidden, it is used only if a warming process has left memos there.
    """
    is_denied = os.environ.get(JIT_VARIABLE) == "deny"  # other values are validated elsewhere
    if not store.writable or (is_denied and not store.layout.toolchains.exists()):
        return None
    return MemoFolder(store)


def workplaces(store: Store) -> tuple[Workplace, ...]:
    """Where compilers work: in the cache, which cleans up after killed builders; else in the temporary folder."""
    from jitnorm.toolchains.workplace import DEFAULT_WORKPLACES

    own = (partial(private_folder, store.layout.private),) if store.writable else ()
    return (*own, *DEFAULT_WORKPLACES)
