"""Private folders: where one writer prepares an entry before anybody can see it, and compilers work."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from jitnorm.cache.files import FILE_MODE, FOLDER_MODE, make_folder, remove_tree, write_file
from jitnorm.cache.process import host_token, is_dead

# A private folder lives for the time it takes to write two files, or to compile.
_STALE_AFTER_SECONDS = 3600.0
# A file in a folder that is not the cache's, where nothing but these may be removed.
_PRIVATE_FILE = re.compile(r"\..+\.([A-Za-z0-9-]+\.[0-9]+\.[0-9a-f]{16})\.tmp")


@contextlib.contextmanager
def private_folder(parent: Path) -> Iterator[Path]:
    """Yield a new folder that only this writer knows; remove it if it is still in ``parent`` at the end."""
    make_folder(parent)
    owner, folder = os.getpid(), private_name(parent)
    try:
        folder.mkdir(mode=FOLDER_MODE)
        yield folder
    finally:
        if os.getpid() == owner:  # a forked child that ends first leaves it alone
            remove_tree(folder)


def private_name(parent: Path) -> Path:
    """A path in ``parent`` that nobody else takes, and that `remove_stale` knows by the process that made it."""
    return parent / _token()


def replace_file(path: Path, data: bytes, parent: Path) -> None:
    """Write a file in one step as others see it, by way of a private folder in ``parent``, on the same file system.

    Raises:
        OSError: it cannot be written; what was there before stays.
    """
    with private_folder(parent) as folder:
        write_file(folder / path.name, data)
        (folder / path.name).replace(path)


@contextlib.contextmanager
def new_file(path: Path, mode: int = FILE_MODE) -> Iterator[IO[bytes]]:
    """Yield a file that takes the name ``path`` at the end, in one step, if nothing was raised; else it is removed.

    The folder may be anybody's: the file lies in it under a hidden name, which tells whose it was. Those that killed
    processes have left there are removed.

    Raises:
        OSError: it cannot be written.
    """
    _remove_stale_files(path.parent)
    private = path.with_name(f".{path.name}.{_token()}.tmp")
    try:
        with open(private, "xb", opener=lambda name, flags: os.open(name, flags, FILE_MODE)) as file:
            yield file
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        private.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            private.unlink()
        raise


def _remove_stale_files(folder: Path) -> None:
    with contextlib.suppress(OSError):
        for found in [Path(item) for item in os.scandir(folder)]:
            name = _PRIVATE_FILE.fullmatch(found.name)
            with contextlib.suppress(OSError):
                if name and _is_stale(name[1], found):
                    found.unlink()


def remove_stale(parent: Path) -> None:
    """Remove the private folders whose writers died, as far as possible."""
    with contextlib.suppress(OSError):
        for found in [Path(item) for item in os.scandir(parent)]:
            with contextlib.suppress(OSError):
                if _is_stale(found.name, found):
                    # Its writer may live after all: if its folder is gone it fails as a whole, while a folder
                    # half emptied under its name could still be published.
                    discard(found, parent)


def discard(path: Path, parent: Path) -> None:
    """Remove a file or folder in one step as others see it, by way of the private folders in ``parent``.

    Raises:
        OSError: it could not be taken away, and is there as it was.
    """
    doomed = private_name(parent)
    try:
        path.rename(doomed)
    except FileNotFoundError:
        if parent.exists():
            raise
        make_folder(parent)
        path.rename(doomed)
    remove_tree(doomed)


def _token() -> str:
    """A name that nobody else takes, and that tells which process made it."""
    return f"{host_token()}.{os.getpid()}.{os.urandom(8).hex()}"


def _is_stale(token: str, path: Path) -> bool:
    host, _, rest = token.partition(".")
    pid = rest.partition(".")[0]
    if host == host_token() and pid.isdecimal() and is_dead(int(pid)):
        return True
    return time.time() - path.lstat().st_mtime > _STALE_AFTER_SECONDS
