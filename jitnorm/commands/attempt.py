"""Asking for what may not be there."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def attempt(ask: Callable[[], T]) -> tuple[T | None, str]:
    """The answer and no problem, or no answer and the problem."""
    try:
        return ask(), ""
    except (RuntimeError, ValueError, OSError) as error:
        return None, str(error)
