"""Private folders: where one writer prepares an entry before anybody can see it, and compilers work."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from jitnorm.cache.files import FOLDER_MODE, make_folder, remove_tree
from jitnorm.cache.process import host_token, is_dead

# A private folder lives for the time it takes to write two files, or to compile.
_STALE_AFTER_SECONDS = 3600.0


@contextlib.contextmanager
def private_folder(parent: Path) -> Iterator[Path]:
    """Yield a new folder that only this writer knows; remove it if it is still in ``parent`` at the end."""
    make_folder(parent)
    owner, folder = os.getpid(), _new_name(parent)
    try:
        folder.mkdir(mode=FOLDER_MODE)
        yield folder
    finally:
        if os.getpid() == owner:  # a forked child that ends first leaves it alone
            remove_tree(folder)


def remove_stale(parent: Path) -> None:
    """Remove the private folders whose writers died, as far as possible."""
    with contextlib.suppress(OSError):
        for found in [Path(item) for item in os.scandir(parent)]:
            with contextlib.suppress(OSError):
                if _is_stale(found):
                    # Its writer may live after all: if its folder is gone it fails as a whole, while a folder
                    # half emptied under its name could still be published.
                    discard(found, parent)


def discard(path: Path, parent: Path) -> None:
    """Remove a file or folder in one step as others see it, by way of the private folders in ``parent``.

    Raises:
        OSError: it could not be taken away, and is there as it was.
    """
    make_folder(parent)
    doomed = _new_name(parent)
    path.rename(doomed)
    remove_tree(doomed)


def _new_name(parent: Path) -> Path:
    return parent / f"{host_token()}.{os.getpid()}.{os.urandom(8).hex()}"


def _is_stale(folder: Path) -> bool:
    host, _, rest = folder.name.partition(".")
    pid = rest.partition(".")[0]
    if host == host_token() and pid.isdecimal() and is_dead(int(pid)):
        return True
    return time.time() - folder.lstat().st_mtime > _STALE_AFTER_SECONDS
