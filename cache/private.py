"""Private folders, in which writers prepare entries before anybody can see them, and compilers work."""

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

# A private folder lives only as long as it takes to write two files, or to compile.
_STALE_AFTER_SECONDS = 3600.0
# A private file outside the cache folder, where only such files may be removed.
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
        if os.getpid() == owner:  # a forked child that ends first must not remove it
            remove_tree(folder)


def private_name(parent: Path) -> Path:
    """A unique path in ``parent``, which `remove_stale` can attribute to its process."""
    return parent / _token()


def replace_file(path: Path, data: bytes, parent: Path) -> None:
    """Write a file atomically, through a private folder in ``parent``, on the same file system.

    Raises:
        OSError: it cannot be written; the existing file stays.
    """
    with private_folder(parent) as folder:
        write_file(folder / path.name, data)
        (folder / path.name).replace(path)


@contextlib.contextmanager
def new_file(path: Path, mode: int = FILE_MODE) -> Iterator[IO[bytes]]:
    """Yield a file that is atomically renamed to ``path`` at the end, or removed after an exception.

    The folder may be anybody's: until then the file has a hidden name, which identifies its process. Files left there
    by killed processes are removed.

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
    except BaseException as error:
        if isinstance(error, OSError) and error.filename == str(private):
            error.filename = str(path)  # the name that the caller knows
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
    """Remove the private folders of dead writers, as far as possible."""
    with contextlib.suppress(OSError):
        for found in [Path(item) for item in os.scandir(parent)]:
            with contextlib.suppress(OSError):
                if _is_stale(found.name, found):
                    # The writer may be alive after all: without its folder it fails as a whole, while a half-emptied
                    # folder under the same name could still be published.
                    discard(found, parent)


def discard(path: Path, parent: Path) -> None:
    """Remove a file or folder atomically, through the private folders in ``parent``.

    Raises:
        OSError: it could not be removed, and is unchanged.
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
    """A unique name that identifies the process that created it."""
    return f"{host_token()}.{os.getpid()}.{os.urandom(8).hex()}"


def _is_stale(token: str, path: Path) -> bool:
    host, _, rest = token.partition(".")
    pid = rest.partition(".")[0]
    if host == host_token() and pid.isdecimal() and is_dead(int(pid)):
        return True
    return time.time() - path.lstat().st_mtime > _STALE_AFTER_SECONDS
