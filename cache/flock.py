"""File locks, which the kernel releases when their holder dies, however that happens."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from jitnorm.cache.files import is_at

from jitnorm.forks import no_fork

_HELD_BY_ANOTHER = {errno.EACCES, errno.EAGAIN}
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

_POLL_SECONDS = 0.05

# Locks with open files, which a forked child must not keep locked. Guarded by `no_fork`.
_open: set[FileLock] = set()


class FileLock:
    """The lock of a file among processes and threads; forked children do not share it.

    Replaces `filelock`, whose pre-fork hook waits for its own import and may end a child.

    Args:
        path: the file, which is created.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._descriptor = path, -1

    def acquire(self, seconds: float = 0.0, gives_up: Callable[[], bool] = lambda: False) -> bool:
        """Acquire the lock; return whether it was obtained.

        Args:
            seconds: how long to wait for it.
            gives_up: called several times a second; whether to stop waiting.

        Raises:
            OSError: the file cannot be opened, or its file system has no locks.
        """
        end = time.monotonic() + seconds
        while not self._try():
            left = end - time.monotonic()
            if left <= 0 or gives_up():
                return False
            time.sleep(min(left, _POLL_SECONDS))
        return True

    def release(self) -> None:
        """Release the lock if it is held here, as far as the file system allows."""
        with no_fork():
            if self in _open:  # not held in a child that was forked meanwhile
                _open.remove(self)
                with contextlib.suppress(OSError):
                    fcntl.flock(self._descriptor, fcntl.LOCK_UN)  # also for a child that has not closed it yet
                self.close()

    def close(self) -> None:
        """Close the file, which another process may keep locked."""
        with contextlib.suppress(OSError):
            os.close(self._descriptor)

    def _try(self) -> bool:
        with no_fork():
            self._descriptor = os.open(self._path, _FLAGS, 0o600)
            _open.add(self)
        locked = False
        try:
            locked = _lock(self._descriptor) and is_at(self._descriptor, self._path)
        finally:
            if not locked:
                self.release()
        return locked


@contextlib.contextmanager
def locked_alone(path: Path, seconds: float = 0.0) -> Iterator[bool]:
    """Hold the lock of a file; yield whether nobody else does.

    Where files cannot be locked, nobody is known to.

    Args:
        path: the file, which is created.
        seconds: how long to wait for it.
    """
    lock, alone = FileLock(path), True
    with contextlib.suppress(OSError):
        alone = lock.acquire(seconds)
    try:
        yield alone
    finally:
        lock.release()


@contextlib.contextmanager
def locked_open(descriptor: int) -> Iterator[bool]:
    """Like `locked_alone`, for an open file and without waiting."""
    locked = try_lock(descriptor)
    try:
        yield locked is not False
    finally:
        if locked:
            with contextlib.suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_UN)  # also for a child that was forked meanwhile


def try_lock(descriptor: int) -> bool | None:
    """Lock a file: True if it was free, False if another holds it, None if it cannot be locked."""
    try:
        return _lock(descriptor)
    except OSError:
        return None


def remove_unlocked(path: str | Path, note: str | Path | None, folder: int | None = None) -> bool:
    """Remove a lock file that nobody holds, and the note on its holder; return whether that was done.

    It is removed while it is locked here. Whoever has it open then locks a file without a name, and must check for
    that.

    Args:
        path: the lock file.
        note: the note; None if there was none.
        folder: the open folder that both are relative to; by default they are not.
    """
    descriptor = os.open(path, _FLAGS, 0o600, dir_fd=folder)
    try:
        # Only a locked file stays in its place: before, another sweeper may remove it, and a builder lock a new one.
        if not (try_lock(descriptor) and os.path.samestat(os.fstat(descriptor), os.lstat(path, dir_fd=folder))):
            return False
        if note is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(note, dir_fd=folder)
        os.unlink(path, dir_fd=folder)
        return True
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    """Lock a file unless another holds it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _HELD_BY_ANOTHER:
            return False
        raise
    return True


def _close_all() -> None:
    for lock in _open:
        lock.close()
    _open.clear()


os.register_at_fork(after_in_child=_close_all)
