"""Does many small file operations at once, which one by one would mostly wait for the disk's journal."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from functools import partial
from queue import SimpleQueue
from types import TracebackType
from typing import Any, TypeVar

T = TypeVar("T")
R = TypeVar("R")
_Task = Callable[[], None]


class Workers:
    """A few daemon threads that help the caller's thread and, unlike an executor's, do not delay the exit.

    Args:
        threads: how many; with 0, the caller's thread does all of the work sequentially.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self._count = 0

    def __enter__(self) -> Workers:
        for _ in range(self._threads):
            try:
                threading.Thread(target=self._work, name="jitnorm-files", daemon=True).start()
            except RuntimeError:  # too many threads; fewer will do
                break
            self._count += 1
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for _ in range(self._count):
            self._tasks.put(None)

    def map(self, function: Callable[[T], R], values: Iterable[T]) -> list[R]:
        """Apply a function to each value, and return the results in order.

        An error in a thread ends that thread's share of the values, and is raised here once all have ended.
        """
        given = list(values)
        threads = self._count + 1
        results: list[Any] = [None] * len(given)
        ended: SimpleQueue[BaseException | None] = SimpleQueue()

        def work_on(first: int) -> None:
            error = None
            try:
                for number in range(first, len(given), threads):
                    results[number] = function(given[number])
            except BaseException as raised:
                error = raised
            ended.put(error)

        for first in range(1, threads):
            self._tasks.put(partial(work_on, first))
        work_on(0)
        errors = [ended.get() for _ in range(threads)]
        for error in errors:
            if error is not None:
                raise error
        return results

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()
