"""One lock per key, so that concurrent misses build once.

The lock only saves duplicate work: publishing is atomic, so whoever cannot get it builds privately. The kernel releases
it when its holder dies, however that happens; forked children do not share it. A stopped holder outlasts every wait, so
its waiters then compete for a second lock, and one of them builds for the others.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import math
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from jitnorm.cache.errors import CacheError
from jitnorm.cache.events import emit, log_fields
from jitnorm.cache.files import make_folder, read_file
from jitnorm.cache.flock import FileLock
from jitnorm.cache.layout import Layout
from jitnorm.cache.process import host_name
from jitnorm.cache.warn import warn_once

_LOG = logging.getLogger(__name__)
TIMEOUT_VARIABLE = "JITNORM_LOCK_TIMEOUT"
_DEFAULT_TIMEOUT_SECONDS = 120.0
_MAX_TIMEOUT_SECONDS = 86400.0
_HOLDER_BYTES = 256
# Longer waits are noticeable, and logged.
_LONG_WAIT_SECONDS = 2.0
_NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS}


def wait_bound(timeout: float | None) -> float:
    """The seconds to wait for a lock.

    Args:
        timeout: the caller's choice, 0 to 86400; None for ``JITNORM_LOCK_TIMEOUT``, by default 120.

    Raises:
        ValueError: ``timeout`` is out of range.
        CacheError: ``JITNORM_LOCK_TIMEOUT`` is not a number in that range.
    """
    if timeout is not None:
        if not _is_allowed(timeout):
            raise ValueError(f"timeout is {timeout!r}; allowed are 0 to {_MAX_TIMEOUT_SECONDS:g} seconds")
        return timeout
    text = os.environ.get(TIMEOUT_VARIABLE) or str(_DEFAULT_TIMEOUT_SECONDS)
    with contextlib.suppress(ValueError):
        if _is_allowed(seconds := float(text)):
            return seconds
    raise CacheError(
        f"{TIMEOUT_VARIABLE} is {text!r}; allowed are 0 to {_MAX_TIMEOUT_SECONDS:g} seconds: unset it for "
        f"{_DEFAULT_TIMEOUT_SECONDS:g}"
    )


@contextlib.contextmanager
def key_lock(layout: Layout, key: str, seconds: float, is_there: Callable[[], bool] = lambda: False) -> Iterator[bool]:
    """Hold the lock of a key among all processes and threads; yield whether it was obtained.

    It is not obtained if another builder's artifact appears, if the holders of both locks outlast the waits, which is
    logged, or if the file system has no locks.

    Args:
        layout: the cache to lock in.
        key: the key to lock.
        seconds: how long to wait at most for each lock; see ``wait_bound``. With 0 the second is not tried.
        is_there: whether the artifact has appeared; called several times a second.
    """
    with contextlib.ExitStack() as held:
        yield _acquire(held, layout, key, seconds, is_there)


def _acquire(
    held: contextlib.ExitStack, layout: Layout, key: str, seconds: float, is_there: Callable[[], bool]
) -> bool:
    try:
        make_folder(layout.locks)
        for second in (False, True):
            lock, note = FileLock(layout.lock(key, second=second)), layout.holder(key, second=second)
            if lock.acquire() or _wait(lock, note, key, seconds, is_there):
                # Last in, first out: the note is removed before the lock is released.
                held.callback(lock.release)
                held.enter_context(_holder_note(note))
                return True
            if is_there() or not seconds:
                break
    except OSError as error:
        if error.errno in _NO_LOCKS:
            text = "the file system of %s has no locks (%s): concurrent misses each build"
            warn_once("lock", layout.root, text, layout.root, error)
        else:
            _LOG.info("building %s without a lock: %s", key, error)
    return False


def _wait(lock: FileLock, note: Path, key: str, seconds: float, is_there: Callable[[], bool]) -> bool:
    """Wait for a lock that somebody holds; log the holder once the wait is long, and at its end."""
    holder = _describe_holder(note)
    began = time.monotonic()
    locked = lock.acquire(min(seconds, _LONG_WAIT_SECONDS), is_there)
    if not locked and seconds > _LONG_WAIT_SECONDS and not is_there():
        holder = _describe_holder(note)
        waited = time.monotonic() - began
        _LOG.warning("waiting for the build of %s by %s: for %.0f s, at most %g s", key, holder, waited, seconds)
        locked = lock.acquire(max(0.0, seconds - waited), is_there)
    fields = {"key": key, "seconds": time.monotonic() - began, "holder": holder, "obtained": locked}
    if not locked and not is_there():
        text = "waited %g s for the build of %s by %s; going on without it"
        _LOG.warning(text, seconds, key, _describe_holder(note), extra=log_fields("lock_wait", **fields))
    emit("lock_wait", **fields)
    return locked


@contextlib.contextmanager
def _holder_note(path: Path) -> Iterator[None]:
    """Leave a note about this process at ``path`` while the lock is held."""
    note = {"host": host_name(), "pid": os.getpid(), "started": time.time()}
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # One write of a fixed length over the last holder's note, so that nobody ever sees half a note.
            os.write(descriptor, json.dumps(note).encode().ljust(_HOLDER_BYTES))
        finally:
            os.close(descriptor)
    try:
        yield
    finally:
        if os.getpid() == note["pid"]:  # a forked child that ends first must not remove it
            with contextlib.suppress(OSError):
                path.unlink()


def _describe_holder(path: Path) -> str:
    try:
        note = json.loads(read_file(path, None, _HOLDER_BYTES))
        age = max(0.0, time.time() - float(note["started"]))
        return f"process {int(note['pid'])} on {str(note['host'])!r}, which began {age:.0f} s ago"
    except (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return "an unknown process"


def _is_allowed(seconds: float) -> bool:
    return math.isfinite(seconds) and 0 <= seconds <= _MAX_TIMEOUT_SECONDS
