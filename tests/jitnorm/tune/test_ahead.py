"""Kernels of the next items are built while others are measured."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Generator, Iterator, Sequence
from itertools import count

import pytest

from jitnorm.tune.ahead import built_ahead

_SECONDS = 30.0


def jobs_of(number: int) -> list[str]:
    """Two kernels; items share one with the next."""
    return [f"kernel {number}", f"kernel {number + 1}"]


class Builder:
    """Builds in reverse, and tells what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.is_closed = threading.Event()

    def __call__(self, jobs: Sequence[str]) -> Generator[str, None, None]:
        self.asked.append(list(jobs))
        try:
            yield from reversed(jobs)
        finally:
            self.is_closed.set()


def test_items_come_in_order_and_each_kernel_is_built_once_among_those_built_together() -> None:
    build = Builder()
    assert list(built_ahead(range(1, 6), jobs_of, build, at_once=3)) == [1, 2, 3, 4, 5]
    assert build.asked == [
        ["kernel 1", "kernel 2", "kernel 3", "kernel 4"],
        ["kernel 4", "kernel 5", "kernel 6"],
    ]


def test_an_item_comes_as_soon_as_its_kernels_are_built() -> None:
    may_go_on = threading.Event()

    def build(jobs: Sequence[str]) -> Generator[str, None, None]:
        for each in jobs:
            assert each != "kernel 3" or may_go_on.wait(_SECONDS)
            yield each

    with contextlib.closing(built_ahead([1, 2], jobs_of, build, at_once=2)) as found:
        assert next(found) == 1
        may_go_on.set()
        assert next(found) == 2


def test_the_next_are_built_meanwhile_and_closing_ends_that() -> None:
    begun = threading.Semaphore(0)
    build = Builder()

    def counted() -> Iterator[int]:
        for number in count(1):
            begun.release()
            yield number

    found = built_ahead(counted(), jobs_of, build, at_once=1)
    assert next(found) == 1
    for _ in range(4):
        assert begun.acquire(timeout=_SECONDS)
    found.close()
    assert not [each for each in threading.enumerate() if each.name == "jitnorm-ahead"]
    assert build.is_closed.is_set()


def test_what_goes_wrong_while_building_is_raised() -> None:
    def build(jobs: Sequence[str]) -> Generator[str, None, None]:
        yield jobs[0]
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        list(built_ahead([1], jobs_of, build, at_once=1))
