"""Builds in the background: a few threads that get kernels ready while others serve."""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.target import Target
from jitnorm.manager import build_kernel

_WORKERS = 2
_MOST_WAITING = 64
# A compiler that runs is left this long to end when the interpreter exits; most take a fraction of it.
_EXIT_SECONDS = 2.0

_Key = tuple[KernelConfig, Target]
WhenReady = Callable[[Any], None]


class BuildQueue:
    """Builds kernels one after another in up to two daemon threads, each kernel once.

    A build that fails is logged and not tried again by this process.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._begin()

    def _begin(self) -> None:
        self._waiting: deque[_Key] = deque()
        self._when_ready: dict[_Key, list[WhenReady]] = {}  # of all that wait or are being built
        self._failed: set[_Key] = set()
        self._workers = 0
        self._is_closed = False

    def restart_after_fork(self) -> None:
        """Forget everything: the child has none of the threads."""
        self._changed = threading.Condition()
        self._begin()

    def submit(self, config: KernelConfig, target: Target, when_ready: WhenReady) -> bool:
        """Have a kernel built.

        Args:
            config: its configuration.
            target: what it is built for.
            when_ready: called with the kernel, in another thread, once it is loaded; never if the build fails.

        Returns:
            False if too many wait already, or no thread can be started; nothing was done then.
        """
        key = (config, target)
        with self._changed:
            if key in self._failed:
                return True
            if key in self._when_ready:
                self._when_ready[key].append(when_ready)
                return True
            if self._is_closed or len(self._waiting) == _MOST_WAITING or not self._has_worker():
                return False
            self._when_ready[key] = [when_ready]
            self._waiting.append(key)
        return True

    def _has_worker(self) -> bool:
        """Whether a thread will look for builds; under the lock, so that it does so after what follows."""
        if self._workers < _WORKERS:
            try:
                threading.Thread(target=self._work, name="jitnorm-build", daemon=True).start()
            except RuntimeError:  # too many threads, or the interpreter is about to exit
                return self._workers > 0
            self._workers += 1
        return True

    def wait(self, timeout: float) -> bool:
        """Wait until nothing is left to do, for at most `timeout` seconds; whether that is so."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._when_ready, timeout)

    def close(self) -> None:
        """Drop what waits, and take no more; leave what runs a moment to end."""
        with self._changed:
            self._is_closed = True
            while self._waiting:
                del self._when_ready[self._waiting.pop()]
        self.wait(_EXIT_SECONDS)

    def _work(self) -> None:
        while True:
            with self._changed:
                if not self._waiting:
                    self._workers -= 1
                    return
                key = self._waiting.popleft()
            try:
                self._build(key)
            except Exception as error:
                self._give_up(key, error)

    def _build(self, key: _Key) -> None:
        begin = time.perf_counter()
        kernel = build_kernel(*key)
        while when_ready := self._take(key):
            for call in when_ready:
                call(kernel)
        _log().info("built the kernel of %s for %s in %.3f s", *key, time.perf_counter() - begin)

    def _take(self, key: _Key) -> list[WhenReady]:
        """Those that have asked for the kernel and do not have it; if there are none, it is done with."""
        with self._changed:
            when_ready, self._when_ready[key] = self._when_ready[key], []
            if not when_ready:
                del self._when_ready[key]
                self._changed.notify_all()
            return when_ready

    def _give_up(self, key: _Key, error: Exception) -> None:
        _log().warning(
            "the kernel of %s for %s cannot be built in the background, and will not be tried again by this process; "
            "calls go on without it: %s",
            *key,
            error,
        )
        with self._changed:
            self._failed.add(key)
            del self._when_ready[key]
            self._changed.notify_all()


def _log() -> Any:
    import logging

    return logging.getLogger("jitnorm.background")


builds = BuildQueue()
atexit.register(builds.close)
os.register_at_fork(after_in_child=builds.restart_after_fork)


def wait_for_builds(timeout: float = 60.0) -> bool:
    """Wait until no kernel is being built in the background.

    With ``JITNORM_TIERED=1``, calls of a new hidden size are served by a generic kernel until their own is built; this
    waits for the latter, such as before a benchmark.

    Args:
        timeout: the most seconds to wait; 0 asks without waiting.

    Returns:
        Whether all builds are done, or have failed; those are logged.

    Raises:
        ValueError: the timeout is negative, infinite or NaN.

    Example:
        >>> wait_for_builds(timeout=10)
        True
    """
    if not 0 <= timeout < threading.TIMEOUT_MAX:
        raise ValueError(f"timeout: is {timeout!r}; expected a finite number of seconds, 0 or more")
    return builds.wait(timeout)
