"""One lock per key, so that processes which miss together build once.

The lock only saves duplicated work: publishing is atomic, so whoever cannot get it builds privately.
The kernel frees it when its holder dies, whatever way. A child forked without exec from a holder keeps
the lock alive until it exits too; the bounded wait covers that.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import math
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from jitnorm.cache.errors import CacheError
from jitnorm.cache.events import emit, log_fields
from jitnorm.cache.files import make_folder
from jitnorm.cache.layout import Layout
from jitnorm.cache.process import host_name
from jitnorm.cache.warn import warn_once

if TYPE_CHECKING:
    import filelock

_LOG = logging.getLogger(__name__)
TIMEOUT_VARIABLE = "JITNORM_LOCK_TIMEOUT"
_DEFAULT_TIMEOUT_SECONDS = 120.0
_MAX_TIMEOUT_SECONDS = 86400.0
_HOLDER_BYTES = 256
# From here on a wait is one that people notice.
_LONG_WAIT_SECONDS = 2.0
_NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS}


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
        # A soft lock, which filelock would fall back to, outlives a killed holder.
        lock = filelock.FileLock(layout.lock(key), mode=0o600, fallback_to_soft=False)
        locked = _try(lock, 0) or _wait(lock, layout, key, seconds)
    except (OSError, NotImplementedError) as error:
        if isinstance(error, NotImplementedError) or error.errno in _NO_LOCKS:
            text = "the file system of %s has no locks (%s): processes that miss together each build for themselves"
            warn_once("lock", layout.root, text, layout.root, error)
        else:
            _LOG.info("building %s without a lock: %s", key, error)
        return False
    if locked:
        held.callback(_release, lock)
    return locked


def _wait(lock: filelock.BaseFileLock, layout: Layout, key: str, seconds: float) -> bool:
    """Wait for a lock that somebody holds; tell who, once the wait is long and at its end."""
    holder = _describe_holder(layout.holder(key))
    began = time.monotonic()
    locked = _try(lock, min(seconds, _LONG_WAIT_SECONDS))
    if not locked and seconds > _LONG_WAIT_SECONDS:
        holder = _describe_holder(layout.holder(key))
        waited = time.monotonic() - began
        _LOG.warning("waiting for the build of %s by %s: for %.0f s, at most %g s", key, holder, waited, seconds)
        locked = _try(lock, max(0.0, seconds - waited))
    fields = {"key": key, "seconds": time.monotonic() - began, "holder": holder, "obtained": locked}
    if not locked:
        holder = _describe_holder(layout.holder(key))
        text = "waited %g s for the build of %s by %s; building it here too"
        _LOG.warning(text, seconds, key, holder, extra=log_fields("lock_wait", **fields))
    emit("lock_wait", **fields)
    return locked


def _try(lock: filelock.BaseFileLock, seconds: float) -> bool:
    import filelock

    try:
        lock.acquire(timeout=seconds)
    except filelock.Timeout:
        return False
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
        if os.getpid() == note["pid"]:  # a forked child that ends first leaves it alone
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
