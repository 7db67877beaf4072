"""Briefly delays forks during operations that a child would inherit half done."""

from __future__ import annotations

import contextlib

# Registered before logging's hook, because hooks run in reverse order before a fork: logging's lock, which imports
# need, must be taken after the wait here, not during it.
import logging  # noqa: F401
import os
import threading
from collections.abc import Iterator

_FORK_WAITS_SECONDS = 10.0
_undivided = threading.RLock()


@contextlib.contextmanager
def no_fork() -> Iterator[None]:
    """Make forks of other threads wait for this block, which should take no longer than a second.

    Use it for imports within functions, too: a forked child would wait forever for a module that another thread was
    importing.
    """
    with _undivided:
        yield


def _before_fork() -> None:
    _undivided.acquire(timeout=_FORK_WAITS_SECONDS)


def _after_fork_in_parent() -> None:
    with contextlib.suppress(RuntimeError):  # the wait timed out
        _undivided.release()


def _after_fork_in_child() -> None:
    global _undivided
    _undivided = threading.RLock()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
