"""Folders of artifacts that others provide: read, never written."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from jitnorm.cache.layout import Layout
from jitnorm.cache.store import SignatureCheck, Store
from jitnorm.cache.trust import Trust

READONLY_VARIABLE = "JITNORM_READONLY_CACHE"


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
    # Here rather than at the first load, so that whoever named the folder hears of it.
    with contextlib.suppress(FileNotFoundError), Trust(path, name).open_folder(Layout(path).version):
        pass
    return Store(path, writable=False, name=name, check=check)
