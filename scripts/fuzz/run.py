"""Makes random calls and compares each with the reference; a failing one is reduced and printed as a test.

    scripts/fuzz_calls SEED CALLS [--device cuda] [--kernels N] [--seconds S] [--workers N]

Compiling takes most of the time, so a run draws some kernels and makes many calls of each. The draw depends only on
SEED, CALLS and N. The exit status is 1 if a call failed.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

from fuzz.case import Case, draw_case, draw_config, draw_places
from fuzz.check import check
from fuzz.reduce import as_test, reduced

FRAMEWORKS = {"cpu": ("numpy", "torch", "tvm_ffi"), "cuda": ("cuda",)}
_ENOUGH = 5
# Each placement of the tensors requires its own kernel; so many are compiled for each configuration.
_PLACES = 4


class Work(NamedTuple):
    """The calls of one configuration.

    Attributes:
        seed: of all that is drawn.
        calls: how many to make.
        frameworks: whose tensors they are of.
        end: when to begin no more, by the monotonic clock, which all processes share.
        last: a file that holds a test of the call under way; none if empty.
    """

    seed: str
    calls: int
    frameworks: tuple[str, ...]
    end: float
    last: str = ""


class Outcome(NamedTuple):
    """The outcome: how many calls of which op were made, and a test that fails, or nothing."""

    op: str
    calls: int
    failure: str


def main() -> int:
    """Make the calls that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seed", type=int)
    parser.add_argument("calls", type=int)
    parser.add_argument("--device", choices=FRAMEWORKS, default="cpu")
    parser.add_argument("--kernels", type=int, default=24, metavar="N", help="configurations to draw; default: 24")
    parser.add_argument("--seconds", type=float, default=1e9, metavar="S", help="begin no call after so long")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="processes to make calls in; default: 1")
    parser.add_argument("--last", default="", metavar="FILE", help="keep the call under way in a file, as a test")
    chosen = parser.parse_args()
    failures = fuzz(
        chosen.seed,
        chosen.calls,
        chosen.kernels,
        FRAMEWORKS[chosen.device],
        seconds=chosen.seconds,
        workers=chosen.workers,
        last=chosen.last,
    )
    for test in failures:
        print(f"\n{test}")
    return bool(failures)


def fuzz(
    seed: int,
    calls: int,
    kernels: int,
    frameworks: tuple[str, ...],
    seconds: float = 1e9,
    workers: int = 1,
    last: str = "",
    echo: bool = True,
) -> list[str]:
    """Make calls; return a test for each configuration that gave wrong bytes."""
    began = time.monotonic()
    end = began + seconds
    counts = [calls * (number + 1) // kernels - calls * number // kernels for number in range(kernels)]
    work = [Work(f"{seed} {number}", count, frameworks, end, last) for number, count in enumerate(counts)]
    made: Counter[str] = Counter()
    failures: list[str] = []
    configurations = 0
    with contextlib.closing(_outcomes(work, workers)) as outcomes:
        for outcome in outcomes:
            made[outcome.op] += outcome.calls
            configurations += outcome.calls > 0
            failures += filter(None, [outcome.failure])
            if len(failures) >= _ENOUGH:
                break
    if echo:
        print(f"{made.total()} calls of {configurations} configurations in {time.monotonic() - began:.0f} s: ", end="")
        print(f"{len(failures)} failures; {', '.join(f'{op} {count}' for op, count in sorted(made.items()))}")
    return failures


def _outcomes(work: list[Work], workers: int) -> Iterator[Outcome]:
    """The outcomes, in the order of the work."""
    if workers == 1:
        yield from map(_call, work)
        return
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # of the workers, which are many enough
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"))
    try:
        yield from pool.map(_call, work)
    finally:
        pool.shutdown(cancel_futures=True)


def _call(work: Work) -> Outcome:
    """Make the calls of a configuration until one fails."""
    chance = random.Random(work.seed)
    config = draw_config(chance)
    places = [draw_places(config, chance) for _ in range(_PLACES)]
    for made in range(work.calls):
        if time.monotonic() > work.end:
            return Outcome(config.op, made, "")
        case = draw_case(config, chance.choice(places), work.frameworks, chance)
        if work.last:
            Path(work.last).write_text(as_test(case, "ended the process"))
        if problem := _problem_of(case):
            return Outcome(config.op, made + 1, as_test(reduced(case, lambda each: bool(_problem_of(each))), problem))
    return Outcome(config.op, work.calls, "")


def _problem_of(case: Case) -> str:
    try:
        check(case)
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return ""


if __name__ == "__main__":
    sys.exit(main())
