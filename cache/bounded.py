"""Runs what has no bound of its own, with a bound."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

_Result = TypeVar("_Result")


def bounded(operation: Callable[[], _Result], seconds: float) -> _Result:
    """What an operation returns or raises, if it does within the time.

    It runs in a daemon thread. One that takes longer is left behind there: nothing in Python can end it.

    Raises:
        TimeoutError: it takes longer.
    """
    results: list[_Result] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(operation())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True, name="jitnorm-remote")
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not results:
        raise TimeoutError(f"no answer within {seconds:g} s")
    return results[0]
