from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Any

import pytest
from jitnorm.cache.events import emit, subscribe


def test_a_callback_hears_of_the_kind_and_the_fields_until_it_unsubscribes() -> None:
    heard: list[tuple[str, Mapping[str, Any]]] = []
    unsubscribe = subscribe(lambda kind, fields: heard.append((kind, fields)))
    emit("miss", key="4de0")
    unsubscribe()
    unsubscribe()
    emit("miss", key="37c9")
    assert heard == [("miss", {"key": "4de0"})]


def test_a_callback_that_fails_is_logged_and_stops_neither_the_event_nor_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(kind: str, fields: Mapping[str, Any]) -> None:
        raise ZeroDivisionError("in a callback")

    heard: list[str] = []
    unsubscribe = [subscribe(fail), subscribe(lambda kind, fields: heard.append(kind))]
    emit("hit", key="4de0", tier="user", seconds=0.001, bytes=3)
    for end in unsubscribe:
        end()
    assert heard == ["hit"]
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError


def test_what_cannot_be_called_is_refused() -> None:
    with pytest.raises(TypeError, match="callback is a str; it must be a function"):
        subscribe("print")  # type: ignore[arg-type]


def test_an_unknown_kind_is_an_error() -> None:
    with pytest.raises(KeyError, match="surprise"):
        emit("surprise")


def test_log_records_carry_the_fields_for_structured_logs(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "jitnorm.cache")
    emit("build", key="4de0", backend="nvrtc", seconds=0.5, bytes=9)
    (record,) = caplog.records
    assert record.name == "jitnorm.cache"
    assert record.getMessage() == "build key=4de0 backend=nvrtc seconds=0.5 bytes=9"
    assert {name: value for name, value in vars(record).items() if name.startswith("jitnorm_")} == {
        "jitnorm_event": "build",
        "jitnorm_key": "4de0",
        "jitnorm_backend": "nvrtc",
        "jitnorm_seconds": 0.5,
        "jitnorm_bytes": 9,
    }


def test_threads_may_subscribe_and_emit_at_once() -> None:
    threads, rounds = 8, 200
    heard: list[int] = []
    start = threading.Barrier(threads)

    def use(number: int) -> None:
        start.wait(timeout=10)
        for _ in range(rounds):
            end = subscribe(lambda kind, fields: heard.append(number) if fields["key"] == number else None)
            emit("miss", key=number)
            end()

    workers = [threading.Thread(target=use, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=30)
    assert sorted(heard) == sorted(number for number in range(threads) for _ in range(rounds))
