"""Emits OpenTelemetry spans for loads, builds and waits of the cache if ``JITNORM_OTEL`` is 1."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from jitnorm.cache.events import subscribe

TRACING_VARIABLE = "JITNORM_OTEL"
# Events with a duration, and the names of their spans.
_SPANS = {
    "hit": "jitnorm.cache.load",
    "miss": "jitnorm.cache.load",
    "build": "jitnorm.build",
    "lock_wait": "jitnorm.cache.wait",
}


def tracing_is_wanted() -> bool:
    """Whether ``JITNORM_OTEL`` requests spans.

    Raises:
        ValueError: the value is not empty, 0 or 1.
    """
    value = os.environ.get(TRACING_VARIABLE, "")
    if value not in ("", "0", "1"):
        raise ValueError(f"{TRACING_VARIABLE} is {value!r}; allowed are 1, for OpenTelemetry spans, and 0: unset it")
    return value == "1"


def start_tracing() -> Callable[[], None]:
    """Emit a span for each load, build and wait to the application's tracer provider.

    A span is a child of the span that is current in the calling thread. Its attributes are ``jitnorm.event`` and the
    event's fields, as ``jitnorm.<field>``.

    Returns:
        A function without arguments that stops tracing.

    Raises:
        ImportError: OpenTelemetry is not installed.
    """
    try:
        from opentelemetry import trace
    except ImportError as error:
        raise ImportError(
            f"{TRACING_VARIABLE} is 1, but the package opentelemetry-api is not installed: "
            f"pip install 'jitnorm[otel]', or unset {TRACING_VARIABLE}"
        ) from error
    tracer = trace.get_tracer("jitnorm")

    def record(kind: str, fields: Mapping[str, Any]) -> None:
        # An event is emitted at the end of an operation, and has its duration.
        if kind in _SPANS:
            end = time.time_ns()
            attributes = {"jitnorm.event": kind, **{f"jitnorm.{name}": value for name, value in fields.items()}}
            start = end - round(fields["seconds"] * 1e9)
            tracer.start_span(_SPANS[kind], start_time=start, attributes=attributes).end(end)

    return subscribe(record)
