"""What is measured: each buffer with outputs of its own, whoever allocates them."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch

from jitnorm.bench.cases import ops_named
from jitnorm.bench.measure import measure
from jitnorm.bench.results import JITNORM


def test_calls_that_allocate_have_outputs_of_their_own_while_others_run() -> None:
    """Otherwise, the L2 cache would hold the shared outputs of all calls."""
    made: list[int] = []
    last: dict[int, weakref.ref[torch.Tensor]] = {}
    others_alive: list[int] = []

    def make(new: Any, m: int, h: int) -> Callable[[], Any]:
        number = len(made)
        made.append(number)

        def call() -> torch.Tensor:
            others_alive.append(sum(ref() is not None for other, ref in last.items() if other != number))
            out = torch.empty(m, h)
            last[number] = weakref.ref(out)
            return out

        return call

    (op, *_) = ops_named(["rmsnorm"])
    (row,) = measure(op, [(64, 4096)], {JITNORM: make}, "cpu")
    assert row.time > 0
    assert len(made) > 1
    assert len(others_alive) >= 3 * len(made)
    assert set(others_alive[len(made) :]) == {len(made) - 1}
