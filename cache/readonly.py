"""Read-only folders of artifacts, provided by others."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from jitnorm.cache.layout import Layout
from jitnorm.cache.store import SignatureCheck, Store
from jitnorm.cache.trust import Trust

READONLY_VARIABLE = "JITNORM_READONLY_CACHE"


def readonly_folders() -> list[Path]:
    """The folders that ``JITNORM_READONLY_CACHE`` lists, in its order."""
    named = os.environ.get(READONLY_VARIABLE, "").split(os.pathsep)
    return [Path(os.path.expanduser(folder)) for folder in named if folder]


def open_read_only(path: Path, name: str, check: SignatureCheck | None = None) -> Store:
    """Open a folder of artifacts to read from it.

    Args:
        path: the folder. Symbolic links are resolved.
        name: the name of the tier.
        check: verifies the signature of every entry; None to require none.

    Raises:
        OSError: it is missing, or cannot be entered.
        CacheTrustError: somebody other than root and this user could have written code into it; accepted if
            ``JITNORM_CACHE_TRUST`` is ``any``.
        CacheError: ``JITNORM_CACHE_TRUST`` has an unknown value.
    """
    path = Path(os.path.realpath(path, strict=True))
    os.scandir(path).close()
    # Checked here rather than at the first load, so that whoever named the folder learns about it.
    with contextlib.suppress(FileNotFoundError), Trust(path, name).open_folder(Layout(path).version):
        pass
    return Store(path, writable=False, name=name, check=check)
