"""The cache of this process."""

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


def read_file(path: Path, limit: int) -> bytes:
    """Read a file that may lie in the user's cache; then only if nobody else can have written it.

    Raises:
        CacheTrustError: it lies there, and others could have written it.
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
    """Where toolchains remember their identities: files of the user's cache.

    Args:
        store: the cache.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def read(self, name: str, limit: int) -> bytes:
        """The content of a memo; for the errors see `Store.read`."""
        return self._store.read(self._store.layout.toolchains / name, limit)

    def write(self, name: str, content: bytes) -> None:
        """Write a memo; for the errors see `Store.replace`."""
        self._store.replace(self._store.layout.toolchains / name, content)


def memo_folder(store: Store) -> MemoFolder | None:
    """Where toolchains remember their identities; None if nothing can be written.

    Nor is anything where compiling is forbidden, unless a warming process has left its memos.
    """
    is_denied = os.environ.get(JIT_VARIABLE) == "deny"  # whether it has an allowed value is not for here
    if not store.writable or (is_denied and not store.layout.toolchains.exists()):
        return None
    return MemoFolder(store)


def workplaces(store: Store) -> tuple[Workplace, ...]:
    """Where compilers work: within the cache, which removes what killed builders leave; else with temporary files."""
    from jitnorm.toolchains.workplace import DEFAULT_WORKPLACES

    own = (partial(private_folder, store.layout.private),) if store.writable else ()
    return (*own, *DEFAULT_WORKPLACES)
