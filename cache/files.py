"""The few operations on files and folders that the cache is made of."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from jitnorm.cache.errors import CorruptEntryError

FOLDER_MODE = 0o700
_FILE_MODE = 0o600
# What opening a file that should be there can give if it is not one; EIO is a bad disk, no better later.
_NOT_A_READABLE_FILE = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENXIO, errno.EIO}
# Some network file systems cannot sync a folder; they have nothing to lose by it.
_CANNOT_SYNC = {errno.EINVAL, errno.ENOTSUP}


def make_folder(path: Path) -> None:
    """Create ``path`` and its missing parents, all for the owner alone. Whatever exists stays as it is."""
    with contextlib.suppress(FileExistsError):
        try:
            path.mkdir(mode=FOLDER_MODE)
        except FileNotFoundError:
            make_folder(path.parent)
            path.mkdir(mode=FOLDER_MODE)


def write_file(path: Path, data: bytes) -> None:
    """Write a new file for the owner alone, and wait until it is on the disk."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _FILE_MODE)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(path: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    with open_folder(path) as descriptor:
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno not in _CANNOT_SYNC:
                raise


@contextlib.contextmanager
def open_folder(path: Path) -> Iterator[int]:
    """Hold a folder open by descriptor: what is read through it is of that one, even if it is moved."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def read_file(name: str, folder: int) -> bytes:
    """Read the regular file ``name`` of an open folder.

    Raises:
        CorruptEntryError: there is no such file, or it is a link, a folder, a pipe or on a broken disk.
        OSError: the file cannot be read for a reason that lies outside it.
    """
    # O_NONBLOCK: opening a pipe must not wait for a writer.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        with open(name, "rb", buffering=0, opener=lambda path, _: os.open(path, flags, dir_fd=folder)) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise CorruptEntryError(f"{name} is not a regular file")
            return file.readall()
    except OSError as error:
        if error.errno in _NOT_A_READABLE_FILE:
            raise CorruptEntryError(f"{name} cannot be read: {error.strerror}") from error
        raise


def remove_tree(path: Path) -> None:
    """Remove a folder or file as far as possible; what cannot be removed stays."""
    import shutil

    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()
