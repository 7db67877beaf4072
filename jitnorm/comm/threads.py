"""Ranks that are threads of one process, whose memory they use to exchange bytes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from jitnorm.comm.memory import Exchange

T = TypeVar("T")


def on_threads(ranks: int, work: Callable[[int, Exchange], T], patience: float = 60.0) -> list[T]:
    """Run a function on each of some ranks, on a thread each.

    Args:
        ranks: how many.
        work: called with the number of a rank and its exchange, as `Workspace.from_exchange` takes it.
        patience: how long an exchange waits for the others, in seconds.

    Returns:
        what `work` returned on each rank.

    Raises:
        threading.BrokenBarrierError: a rank did not join an exchange. An error that a rank itself raised takes
            precedence.

    Example:
        >>> on_threads(2, lambda rank, exchange: exchange(b"ab"[rank : rank + 1]))
        [[b'a', b'b'], [b'a', b'b']]
    """
    barrier = threading.Barrier(ranks, timeout=patience)
    said = [b""] * ranks

    def exchange_of(rank: int) -> Exchange:
        def exchange(own: bytes) -> list[bytes]:
            said[rank] = own
            barrier.wait()
            heard = list(said)
            barrier.wait()
            return heard

        return exchange

    def run(rank: int) -> T:
        try:
            return work(rank, exchange_of(rank))
        except BaseException:
            barrier.abort()
            raise

    with ThreadPoolExecutor(ranks) as pool:
        calls = [pool.submit(run, rank) for rank in range(ranks)]
    errors = [error for call in calls if (error := call.exception())]
    for error in sorted(errors, key=lambda each: isinstance(each, threading.BrokenBarrierError)):
        raise error
    return [call.result() for call in calls]
