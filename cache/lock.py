"""One lock per key, so that processes which miss together build once.

The lock only saves duplicated work: publishing is atomic, so whoever cannot get it builds privately.
The kernel frees it when its holder dies, whatever way. A child forked without exec from a holder keeps
the lock alive until it exits too; the bounded wait covers that.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from jitnorm.cache.errors import CacheError
from jitnorm.cache.files import make_folder
from jitnorm.cache.layout import Layout
from jitnorm.cache.process import host_name

if TYPE_CHECKING:
    import filelock

_LOG = logging.getLogger(__name__)
TIMEOUT_VARIABLE = "JITNORM_LOCK_TIMEOUT"
_DEFAULT_TIMEOUT_SECONDS = 120.0
_MAX_TIMEOUT_SECONDS = 86400.0
_HOLDER_BYTES = 256


def wait_bound(timeout: float | None) -> float:
    """Return how many seconds to wait for a lock.

    Args:
        timeout: the caller's choice, 0 to 86400. None means ``JITNORM_LOCK_TIMEOUT``, else 120.

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
def key_lock(layout: Layout, key: str, seconds: float) -> Iterator[bool]:
    """Hold the lock of one key, among all processes and threads; yield whether it was obtained.

    It is not when another holder outlasts the wait, which is logged, or when the file system has no locks.

    Args:
        layout: the cache to lock in.
        key: the key to lock.
        seconds: how long to wait at most; see ``wait_bound``.
    """
    with contextlib.ExitStack() as held:
        locked = _acquire(held, layout, key, seconds)
        if locked:
            # Last in, first out: the note goes before the lock does.
            held.enter_context(_holder_note(layout.holder(key)))
        yield locked


def _acquire(held: contextlib.ExitStack, layout: Layout, key: str, seconds: float) -> bool:
    import filelock

    try:
        make_folder(layout.locks)
        lock = filelock.FileLock(layout.lock(key), timeout=seconds, mode=0o600)
        lock.acquire()
    except filelock.Timeout:
        holder = _describe_holder(layout.holder(key))
        _LOG.warning("waited %g s for the build of %s by %s; building it here too", seconds, key, holder)
        return False
    except (OSError, NotImplementedError) as error:
        _LOG.info("building %s without a lock: %s", key, error)
        return False
    held.callback(_release, lock)
    return True


def _release(lock: filelock.BaseFileLock) -> None:
    # The build is done: a file system that fails to unlock must not take it from the caller.
    with contextlib.suppress(OSError):
        lock.release()


@contextlib.contextmanager
def _holder_note(path: Path) -> Iterator[None]:
    """Leave a note on this process at ``path`` for as long as the lock is held."""
    note = {"host": host_name(), "pid": os.getpid(), "started": time.time()}
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # One write of a fixed length over the last holder's note: at no time is half a note to be seen.
            os.write(descriptor, json.dumps(note).encode().ljust(_HOLDER_BYTES))
        finally:
            os.close(descriptor)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink()


def _describe_holder(path: Path) -> str:
    try:
        note = json.loads(path.read_bytes()[:_HOLDER_BYTES])
        age = max(0.0, time.time() - float(note["started"]))
        return f"process {int(note['pid'])} on {str(note['host'])!r}, which began {age:.0f} s ago"
    except (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return "an unknown process"


def _is_allowed(seconds: float) -> bool:
    return math.isfinite(seconds) and 0 <= seconds <= _MAX_TIMEOUT_SECONDS
