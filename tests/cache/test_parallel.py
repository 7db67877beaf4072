"""Small concurrent tasks, run by threads or by the caller."""

from __future__ import annotations

import threading

import pytest
from jitnorm.cache.parallel import Workers


@pytest.mark.parametrize("threads", [0, 1, 3, 20])
@pytest.mark.parametrize("count", [0, 1, 10])
def test_answers_come_in_the_order_of_the_values(threads: int, count: int) -> None:
    with Workers(threads) as workers:
        for _ in range(2):
            assert workers.map(lambda value: value * value, range(count)) == [value * value for value in range(count)]


def test_an_error_is_raised_once_nothing_is_under_way() -> None:
    """The caller can then remove what the other tasks were writing."""
    has_failed, ended = threading.Event(), []

    def work(value: int) -> None:
        if value == 0:
            has_failed.set()
            raise OSError("the disk is full")
        assert has_failed.wait(10)
        ended.append(value)

    with Workers(3) as workers:
        with pytest.raises(OSError, match="the disk is full"):
            workers.map(work, range(3))
        assert sorted(ended) == [1, 2]
        assert workers.map(str, range(3)) == ["0", "1", "2"], "they work on"
