"""Upkeep in the background: a thread that measures the cache, sweeps it and keeps it within its budget."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from jitnorm.forks import no_fork

if TYPE_CHECKING:
    from jitnorm.cache.store import Store

_LOG = logging.getLogger(__name__)
_MOST_SECONDS = 60.0
_PAUSE_SECONDS = 60.0
# Measuring competes for the interpreter with the publish that requests it, and with those that follow immediately.
_DELAY_SECONDS = 1.0
# When the interpreter exits, upkeep may continue this long, and then must stop at its next step.
_EXIT_SECONDS = 2.0
_STOP_SECONDS = 0.5


class Upkeep:
    """Keeps caches within their budgets, each at most once a minute, in one daemon thread that ends when it is done."""

    def __init__(self) -> None:
        self.restart_after_fork()

    def restart_after_fork(self) -> None:
        """Forget everything: the child has no such thread."""
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._last: dict[Path, float] = {}
        self._is_stopped = False
        self._is_awaited = threading.Event()

    def start(self, store: Store) -> None:
        """Start the upkeep of a cache in a second, unless it is under way or was done recently."""
        root, now = store.layout.root, time.monotonic()
        with self._lock:
            is_busy = self._thread is not None and self._thread.is_alive()
            if is_busy or self._is_stopped or now - self._last.get(root, -_PAUSE_SECONDS) < _PAUSE_SECONDS:
                return
            self._last[root] = now
            self._is_awaited.clear()
            thread = threading.Thread(target=self._keep, args=(store,), name="jitnorm-upkeep", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # too many threads, or the interpreter is about to exit
                return
            self._thread = thread

    def wait(self, seconds: float) -> bool:
        """Start postponed upkeep, and wait for at most ``seconds``; return whether nothing is under way then."""
        thread = self._thread
        self._is_awaited.set()
        if thread is not None:
            thread.join(seconds)
        return thread is None or not thread.is_alive()

    def close(self) -> None:
        """Give upkeep under way a moment to finish, then stop it; start nothing more."""
        self.wait(_EXIT_SECONDS)
        self._is_stopped = True
        self.wait(_STOP_SECONDS)

    def _keep(self, store: Store) -> None:
        self._is_awaited.wait(_DELAY_SECONDS)
        with no_fork():
            from jitnorm.cache.space import keep_within_budget

        try:
            keep_within_budget(store, _MOST_SECONDS, lambda: self._is_stopped)
        except OSError as error:
            _LOG.warning("cannot keep the cache folder %s: %s", store.layout.root, error)
        except Exception:
            _LOG.exception("the upkeep of %s failed", store.layout.root)


upkeep = Upkeep()
atexit.register(upkeep.close)
os.register_at_fork(after_in_child=upkeep.restart_after_fork)
