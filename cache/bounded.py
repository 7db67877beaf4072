"""Runs what has no bound of its own, with a bound."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

_Result = TypeVar("_Result")


class Deadline:
    """A moment at which an operation must have ended.

    Args:
        seconds: from now on.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    def rest(self) -> float:
        """How many seconds are left.

        Raises:
            TimeoutError: none are.
        """
        rest = self._end - time.monotonic()
        if rest <= 0:
            raise too_late(self.seconds)
        return rest


def too_late(seconds: float) -> TimeoutError:
    """What to raise if there is no answer within the time."""
    return TimeoutError(f"no answer within {seconds:g} s")


def bounded(operation: Callable[[], _Result], seconds: float) -> _Result:
    """What an operation returns or raises, if it does within the time.

    It runs in a daemon thread. One that takes longer is left behind there: nothing in Python can end it, so it
    should look at a `Deadline` itself wherever it can.

    Raises:
        TimeoutError: it takes longer.
        RuntimeError: it raised what ends threads and processes, such as SystemExit.
    """
    results: list[_Result] = []
    errors: list[Exception] = []
    is_awaited = True

    def run() -> None:
        try:
            results.append(operation())
        except Exception as error:
            if is_awaited:  # else it would stay, by way of this frame, and so would its connections
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
