"""Stress across ranks finds what is wrong, and the benchmark says what its times mean."""

from __future__ import annotations

import itertools
import os
import random
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from comm import stress
from comm.bench import Figure, reads_memory, shapes_of, table
from comm.cases import differences, draw_config

from jitnorm.comm.threads import on_threads
from jitnorm.tune.processes import Exchange, run_ranks

OPTIONS = stress.Options("cpu", "", ranks=2, seconds=60, seed=10, cases=4, kernels=1, iterations=100)


@pytest.mark.parametrize("trial", ["bits", "skew", "killed"])
def test_calls_across_ranks_withstand(trial: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JITNORM_CPU_THREADS", "1")
    done, wrong = stress.run(trial, OPTIONS)
    assert done
    assert wrong == []


@pytest.mark.parametrize("form", ["one_shot_scatter", "reduce_scatter", "all_gather"])
def test_random_calls_of_halves_of_a_sum_withstand(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JITNORM_CPU_THREADS", "1")
    seed = next(seed for seed in itertools.count() if draw_config(random.Random(seed)).method == form)
    done, wrong = stress.run("bits", replace(OPTIONS, seed=seed))
    assert done
    assert wrong == []


def end_somehow(exchange: Exchange, marker: int) -> Any:
    heard = exchange(bytes([exchange.rank]))
    if exchange.rank == 1:
        raise ValueError("of its own")
    if exchange.rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return heard, marker


def hang(exchange: Exchange) -> None:
    time.sleep(60)


def test_ranks_that_fail_die_or_hang_are_told_apart() -> None:
    good, raised, died = run_ranks(3, end_somehow, 5, seconds=60)
    assert good.value == ([b"\0", b"\1", b"\2"], 5)
    assert "ValueError: of its own" in raised.error
    assert died.error == "died"
    (hung,) = run_ranks(1, hang, seconds=0.5)
    assert hung.error == "took longer than 0.5 s"


def test_a_rank_that_does_not_come_is_named(tmp_path: Path) -> None:
    with pytest.raises(TimeoutError, match="rank 1 did not come to exchange 1"):
        Exchange(tmp_path, 0, 2, seconds=0.05)(b"")


def test_differences_are_found_and_nans_are_alike() -> None:
    a = np.float32([1, np.nan, -0.0])
    assert differences({"out": a}, {"out": a.copy()}) == []
    b = np.float32([1, np.nan, 0.0])
    assert differences({"out": a}, {"out": b}) == ["out differs in 1 of 3 elements, first at (2,)"]
    assert differences({"out": a}, {}) == ["out is new"]
    assert "expected (2,)" in differences({"out": a}, {"out": a[:2]})[0]


class Read:
    """A call that copies the memory of the next rank; or that of its first call again, as if it were cached."""

    def __init__(self, rank: int, memory: list[int], is_cached: bool) -> None:
        self.rank, self.memory, self.is_cached = rank, memory, is_cached
        self.out: int | None = None

    def __call__(self) -> None:
        if self.out is None or not self.is_cached:
            self.out = self.memory[1 - self.rank]

    def refill(self, seed: int) -> None:
        self.memory[self.rank] = 10 * (seed + 1) + self.rank

    def has_read(self, seed: int) -> bool:
        return self.out == 10 * (seed + 1) + 1 - self.rank


@pytest.mark.parametrize("is_cached", [False, True])
def test_a_kernel_that_does_not_read_its_peers_memory_in_every_replay_is_found(is_cached: bool) -> None:
    memory = [1, 2]

    def work(rank: int, exchange: Any) -> bool:
        call = Read(rank, memory, is_cached)
        call()
        exchange(b"")

        def replay() -> float:
            call()
            return 1.0

        return reads_memory([call], exchange, lambda: None, replay)

    assert on_threads(2, work) == [not is_cached] * 2


def test_the_table_compares_the_fastest_fused_call() -> None:
    times = {"peer read": 3.0, "not fused": 12.0, "one-shot": 9.0, "FlashInfer": None, "fused auto": 4.0}
    lines = table([Figure(1, 7168, "fp8", times, {"FlashInfer": "no\nformat"})]).splitlines()
    assert lines[0].count("|") == lines[1].count("|") == lines[2].count("|")
    assert lines[2] == "| 1 | 7168 | fp8 | 3.0 | 12.0 | 9.0 |  | 4.0 | +1.0 | 3.00 | 2.25 |"
    assert lines[3] == "<!-- FlashInfer: no -->"


def test_shapes_follow_from_the_seed() -> None:
    assert shapes_of([1, 16], 0, 0) == ((1, 7168), (16, 7168))
    assert shapes_of([], 3, 5) == shapes_of([], 3, 5) != shapes_of([], 3, 6)
