"""Basic file and folder operations of the cache."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

FOLDER_MODE = 0o700
FILE_MODE = 0o600
BLOCK = 512  # the unit of st_blocks on every file system
SMALL_FILE = 1 << 20  # larger than any file here, except payloads
# Some network file systems cannot sync folders, and do not need to.
_CANNOT_SYNC = {errno.EINVAL, errno.ENOTSUP}
# Errors for what somebody else has removed: by path, or, on NFS, by descriptor.
GONE = frozenset({errno.ENOENT, errno.ESTALE})


def make_folder(path: Path) -> None:
    """Create ``path`` and its missing parents, accessible only to the owner. Existing folders are not changed."""
    with contextlib.suppress(FileExistsError):
        try:
            path.mkdir(mode=FOLDER_MODE)
        except FileNotFoundError:
            make_folder(path.parent)
            path.mkdir(mode=FOLDER_MODE)


def write_file(path: Path, data: bytes) -> None:
    """Write a new file accessible only to the owner, and wait until it is on the disk."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
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
    """Hold a folder open by descriptor, so that reads go to that folder even if it is moved."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def read_file(
    name: str | Path, folder: int | None, limit: int = SMALL_FILE, check: Callable[[os.stat_result], None] | None = None
) -> bytes:
    """Read a regular file, never beyond its size limit.

    Args:
        name: the file, which must not be a symbolic link.
        folder: descriptor of the folder that ``name`` is relative to; None for the working folder.
        limit: maximum size in bytes.
        check: raises to reject a file by its status.

    Raises:
        OSError: the file is missing, a link, a folder, a pipe, too large, or cannot be read.
    """
    # O_NONBLOCK: opening a pipe must not wait for a writer.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with open(name, "rb", opener=lambda path, _: os.open(path, flags, dir_fd=folder)) as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.ENXIO, "it is not a regular file", str(name))
        if check is not None:
            check(found)
        if found.st_size > limit:
            raise OSError(errno.EFBIG, f"it has {found.st_size} bytes; allowed are {limit}", str(name))
        return file.read(found.st_size)


def is_at(descriptor: int, path: Path) -> bool:
    """Whether a path still leads to this open file or folder."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except OSError as error:
        if error.errno not in GONE:
            raise
        return False


def space_of(path: str | os.PathLike[str]) -> int:
    """Disk space of one file, or of one folder without its contents; 0 if it does not exist."""
    try:
        return os.lstat(path).st_blocks * BLOCK
    except OSError:
        return 0


def remove_tree(path: Path) -> None:
    """Remove a folder or file as far as possible."""
    try:
        # Entries contain only files, for which this takes a third of rmtree's time.
        with open_folder(path) as folder:
            for name in os.listdir(folder):
                os.unlink(name, dir_fd=folder)
        os.rmdir(path)
    except OSError:
        _remove_other(path)


def _remove_other(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        import shutil  # importing it takes milliseconds, and it is almost never needed

        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()
