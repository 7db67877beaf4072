"""Does many small operations on files at once: one after the other they would mostly wait for the disk's journal."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from queue import SimpleQueue
from types import TracebackType
from typing import Any, TypeVar

T = TypeVar("T")
R = TypeVar("R")
_Task = Callable[[], None]


class Workers:
    """A few daemon threads, which unlike those of an executor do not hold up the interpreter's exit.

    Args:
        threads: how many; with 0 the caller's does the work, one thing after the other.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self._count = 0

    def __enter__(self) -> Workers:
        for _ in range(self._threads):
            try:
                threading.Thread(target=self._work, name="jitnorm-files", daemon=True).start()
            except RuntimeError:  # too many threads; fewer do as well, and if need be this one
                break
            self._count += 1
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for _ in range(self._count):
            self._tasks.put(None)

    def map(self, function: Callable[[T], R], values: Iterable[T]) -> list[R]:
        """What a function returns for each value, in their order; raises what it raises."""
        if not self._count:
            return [function(value) for value in values]
        answers: SimpleQueue[tuple[int, Any, BaseException | None]] = SimpleQueue()

        def task(number: int, value: T) -> _Task:
            def run() -> None:
                try:
                    answers.put((number, function(value), None))
                except BaseException as error:
                    answers.put((number, None, error))

            return run

        numbered = [task(number, value) for number, value in enumerate(values)]
        for each in numbered:
            self._tasks.put(each)
        results: dict[int, R] = {}
        for _ in numbered:
            number, result, error = answers.get()
            if error is not None:
                raise error
            results[number] = result
        return [results[number] for number in range(len(numbered))]

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()
