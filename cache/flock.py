"""Locks on files, which the kernel frees with their holder, however that dies."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import threading
from collections.abc import Iterator
from pathlib import Path

_HELD_BY_ANOTHER = {errno.EACCES, errno.EAGAIN}
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

# Descriptors of `locked_alone`, which a forked child must not keep locked. None is opened during a fork.
_guard = threading.Lock()
_held: set[int] = set()


def try_lock(descriptor: int) -> bool | None:
    """Lock a file: True if it was free, False if another holds it, None if it cannot be locked."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return False if error.errno in _HELD_BY_ANOTHER else None
    return True


@contextlib.contextmanager
def locked_alone(path: Path) -> Iterator[bool]:
    """Hold the lock of a file without waiting for it; yield whether nobody else does.

    Where files cannot be locked, nobody is known to.
    """
    descriptor = _open(path)
    try:
        yield descriptor is None or try_lock(descriptor) is not False
    finally:
        _close(descriptor)


def remove_unlocked(path: str | Path, note: str | Path | None, folder: int | None = None) -> bool:
    """Remove a lock file that nobody holds, and the note on its holder; return whether that was done.

    It goes while it is locked here. Whoever has it open locks a file without a name then, and must look again.

    Args:
        path: the lock file.
        note: the note; None if there was none.
        folder: the open folder that both are relative to; by default they are not.
    """
    descriptor = os.open(path, _FLAGS, 0o600, dir_fd=folder)
    try:
        found = os.lstat(path, dir_fd=folder)
        if not (try_lock(descriptor) and os.path.samestat(os.fstat(descriptor), found)):
            return False
        if note is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(note, dir_fd=folder)
        os.unlink(path, dir_fd=folder)
        return True
    finally:
        os.close(descriptor)


def _open(path: Path) -> int | None:
    with _guard:
        try:
            descriptor = os.open(path, _FLAGS, 0o600)
        except OSError:
            return None
        _held.add(descriptor)
        return descriptor


def _close(descriptor: int | None) -> None:
    with _guard:
        if descriptor is not None and descriptor in _held:  # not so in a child that was forked meanwhile
            _held.remove(descriptor)
            with contextlib.suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_UN)  # also for a child that has not come to close it
            os.close(descriptor)


def _forget() -> None:
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()
    _guard.release()


os.register_at_fork(before=_guard.acquire, after_in_parent=_guard.release, after_in_child=_forget)
