"""Publishes to a remote tier in the background, so that a call that built its kernel need not wait for the network.

Jobs run one by one in a daemon thread. A process that exits waits for them, but at most as long as one operation may
take; what is not published by then will be published by whoever builds it next.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
from collections.abc import Callable
from queue import Queue

from jitnorm.cache.warn import logger

Job = Callable[[], object]


class _Publisher:
    def __init__(self) -> None:
        self.pid = os.getpid()
        self.bound = 0.0
        self._jobs: Queue[Job] = Queue()
        threading.Thread(target=self._work, daemon=True, name="jitnorm-publish").start()

    def add(self, job: Job, bound: float) -> None:
        self.bound = max(self.bound, bound)
        self._jobs.put(job)

    def flush(self, seconds: float) -> bool:
        end = time.monotonic() + seconds
        with self._jobs.all_tasks_done:
            while self._jobs.unfinished_tasks:
                rest = end - time.monotonic()
                if rest <= 0:
                    return False
                self._jobs.all_tasks_done.wait(rest)
        return True

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            try:
                job()
            except Exception:
                logger.exception("cannot publish to the remote cache")
            finally:
                self._jobs.task_done()


_publisher: _Publisher | None = None
_guard = threading.Lock()


def publish_later(job: Job, bound: float) -> None:
    """Run a job in the background.

    Args:
        job: the job, which limits its own time.
        bound: seconds that the exiting process may wait for it.
    """
    global _publisher
    with _guard, contextlib.suppress(RuntimeError):  # an exiting process cannot start threads
        if _publisher is None or _publisher.pid != os.getpid():
            if _publisher is None:
                _at_exit(flush)
            _publisher = _Publisher()
        _publisher.add(job, bound)


def flush(seconds: float | None = None) -> bool:
    """Wait until everything is published.

    Args:
        seconds: how long to wait at most; default: as long as one operation may take.

    Returns:
        Whether everything is published.
    """
    publisher = _publisher
    if publisher is None or publisher.pid != os.getpid():
        return True
    return publisher.flush(publisher.bound if seconds is None else seconds)


def _at_exit(function: Callable[[], object]) -> None:
    """Run a function at exit while threads can still be started, as S3's client requires."""
    register = getattr(threading, "_register_atexit", atexit.register)
    register(function)


def _after_fork() -> None:
    global _guard
    _guard = threading.Lock()  # a thread that was not forked may hold the inherited one


os.register_at_fork(after_in_child=_after_fork)
