"""Folders of artifacts that others provide: read, never written."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from jitnorm.cache.errors import CacheTrustError
from jitnorm.cache.layout import Layout
from jitnorm.cache.root import TRUST_VARIABLE, trust_is_limited
from jitnorm.cache.store import SignatureCheck, Store

READONLY_VARIABLE = "JITNORM_READONLY_CACHE"
_ROOT_USER = 0


def readonly_folders() -> list[Path]:
    """The folders that ``JITNORM_READONLY_CACHE`` names, in its order."""
    named = os.environ.get(READONLY_VARIABLE, "").split(os.pathsep)
    return [Path(os.path.expanduser(folder)) for folder in named if folder]


def open_read_only(path: Path, name: str, check: SignatureCheck | None = None) -> Store:
    """Open a folder of artifacts to read from it.

    Args:
        path: the folder. A symbolic link stands for its target.
        name: what to call the tier.
        check: what every entry's signature must pass; None asks for none.

    Raises:
        OSError: it is not there, or cannot be entered.
        CacheTrustError: somebody else than root and this user could have written code into it; accepted if
            ``JITNORM_CACHE_TRUST`` is ``any``.
        CacheError: ``JITNORM_CACHE_TRUST`` has an unknown value.
    """
    path = Path(os.path.realpath(path, strict=True))
    os.scandir(path).close()
    if trust_is_limited():
        for folder in (path, Layout(path).version):
            if folder.exists():
                _check_trust(folder, name)
    return Store(path, writable=False, name=name, check=check)


def _check_trust(folder: Path, name: str) -> None:
    found = folder.stat()
    remedy = f"or set {TRUST_VARIABLE}=any to run whatever code it holds"
    if found.st_uid not in (_ROOT_USER, os.geteuid()):
        raise CacheTrustError(
            f"the folder {folder} of the cache tier {name!r} belongs to user {found.st_uid}; allowed are root and "
            f"user {os.geteuid()}, who runs this process: have it given to one of them, {remedy}"
        )
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise CacheTrustError(
            f"the folder {folder} of the cache tier {name!r} has mode {stat.S_IMODE(found.st_mode):04o}: others can "
            f"write to it. If you know what it holds, run chmod go-w {folder}, {remedy}"
        )
