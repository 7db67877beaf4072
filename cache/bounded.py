"""Runs unbounded operations with a time limit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

_Result = TypeVar("_Result")


class Deadline:
    """The time by which an operation must end.

    Args:
        seconds: time from now on.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    def rest(self) -> float:
        """The seconds remaining.

        Raises:
            TimeoutError: no time remains.
        """
        rest = self._end - time.monotonic()
        if rest <= 0:
            raise too_late(self.seconds)
        return rest


def too_late(seconds: float) -> TimeoutError:
    """The error for an operation without an answer in time."""
    return TimeoutError(f"no answer within {seconds:g} s")


def bounded(operation: Callable[[], _Result], seconds: float) -> _Result:
    """Run an operation with a time limit, and return or raise its result.

    The operation runs in a daemon thread, which is abandoned if it takes longer. Nothing in Python can stop it, so it
    should check a `Deadline` itself wherever it can.

    Raises:
        TimeoutError: it takes longer.
        RuntimeError: it raised an exception that ends threads or processes, such as SystemExit.
    """
    results: list[_Result] = []
    errors: list[Exception] = []
    is_awaited = True

    def run() -> None:
        try:
            results.append(operation())
        except Exception as error:
            if is_awaited:  # otherwise this frame would keep it alive, with its connections
                errors.append(error)
        except BaseException as error:
            errors.append(RuntimeError(f"{type(error).__name__}: {error}"))

    thread = threading.Thread(target=run, daemon=True, name="jitnorm-remote")
    thread.start()
    thread.join(seconds)
    is_awaited = False
    if errors:
        raise errors.pop()
    if not results:
        raise too_late(seconds)
    return results[0]
