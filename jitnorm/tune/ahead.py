"""Builds the kernels of the next cases while others are measured: compilers and the GPU work at the same time."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Generator, Hashable, Iterable, Sequence
from itertools import islice
from typing import TypeVar

Item = TypeVar("Item")
Job = TypeVar("Job", bound=Hashable)


def built_ahead(
    items: Iterable[Item],
    jobs_of: Callable[[Item], Iterable[Job]],
    build: Callable[[Sequence[Job]], Generator[Job, None, None]],
    at_once: int,
) -> Generator[Item, None, None]:
    """Yield items in their order, each once its kernels are built, on a thread that goes on with the next.

    Closing the generator ends the work.

    Args:
        items: may be endless.
        jobs_of: the kernels of an item.
        build: builds kernels; yields those that are done, in any order, also if they failed. Closing it ends the work.
        at_once: how many items are built together, each kernel once.
    """
    ready: queue.Queue[Item | BaseException | None] = queue.Queue()
    is_over = threading.Event()

    def build_together(some: Sequence[Item]) -> None:
        waiting = [(item, set(jobs_of(item))) for item in some]
        jobs, built = dict.fromkeys(job for item in some for job in jobs_of(item)), set()
        with contextlib.closing(build(list(jobs))) as done:
            for job in done:
                built.add(job)
                while waiting and waiting[0][1] <= built:
                    ready.put(waiting.pop(0)[0])
                if is_over.is_set():
                    return

    def work() -> None:
        try:
            source = iter(items)
            while not is_over.is_set() and (some := list(islice(source, at_once))):
                build_together(some)
            ready.put(None)
        except BaseException as error:
            ready.put(error)

    thread = threading.Thread(target=work, name="jitnorm-ahead", daemon=True)
    thread.start()
    try:
        while (item := ready.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        is_over.set()
        thread.join()
