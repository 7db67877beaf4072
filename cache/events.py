"""Delivers events of the cache to the counters, the log and subscribed callbacks.

A callback runs in the thread of the event, possibly in several at once, and should be fast.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

Callback = Callable[[str, Mapping[str, Any]], None]

logger = logging.getLogger("jitnorm.cache")

# All kinds of events, and their log levels.
KINDS: Mapping[str, int] = {
    "hit": logging.DEBUG,
    "miss": logging.DEBUG,
    "build": logging.INFO,
    "publish": logging.DEBUG,
    "copy_up": logging.DEBUG,
    "tier_failed": logging.DEBUG,
    "quarantine": logging.DEBUG,
    "lock_wait": logging.DEBUG,
    "evict": logging.INFO,
}

# Single operations on a dictionary are atomic among threads, and unlike a lock they cannot be held during a fork.
_callbacks: dict[object, Callback] = {}


def emit(kind: str, **fields: Any) -> None:
    """Emit an event. Only raises for an unknown kind.

    Args:
        kind: one of ``KINDS``.
        **fields: details of the event: ``key``, ``tier``, ``seconds``, ``bytes``, ``reason``, ...

    Raises:
        KeyError: ``kind`` is not one of ``KINDS``.
    """
    level = KINDS[kind]
    for callback in tuple(_callbacks.values()):
        try:
            callback(kind, fields)
        except Exception:
            logger.exception("the callback %r failed on the event %s", callback, kind)
    if logger.isEnabledFor(level):
        text = " ".join(f"{name}={value}" for name, value in fields.items())
        logger.log(level, "%s %s", kind, text, extra=log_fields(kind, **fields))


def subscribe(callback: Callback) -> Callable[[], None]:
    """Call ``callback(kind, fields)`` on every event of this process.

    Exceptions in the callback are logged and not propagated. A callback subscribed twice is called twice.

    Args:
        callback: takes the kind, one of ``KINDS``, and the fields of the event, which it must not modify.

    Returns:
        A function without arguments that unsubscribes the callback; calling it again does nothing.

    Raises:
        TypeError: ``callback`` is not callable.

    Example:
        >>> seen = []
        >>> unsubscribe = subscribe(lambda kind, fields: seen.append((kind, fields["key"])))
        >>> emit("miss", key="4de0")
        >>> unsubscribe()
        >>> emit("miss", key="37c9")
        >>> seen
        [('miss', '4de0')]
    """
    if not callable(callback):
        raise TypeError(f"callback is a {type(callback).__name__}; it must be a function of a kind and its fields")
    subscription = object()
    _callbacks[subscription] = callback

    def unsubscribe() -> None:
        _callbacks.pop(subscription, None)

    return unsubscribe


def log_fields(kind: str, **fields: Any) -> dict[str, Any]:
    """The ``extra`` of an event's log record: ``jitnorm_event``, and each field as ``jitnorm_<field>``."""
    return {"jitnorm_event": kind, **{f"jitnorm_{name}": value for name, value in fields.items()}}
