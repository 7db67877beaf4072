"""Compiles ahead of the measurement, in several processes: what they leave in caches on disk is only loaded then."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TypeVar

from llama.arms import Arm
from llama.measure import Bench, Case
from llama.model import Shape

Job = tuple[Shape, Case, Arm]
_Any = TypeVar("_Any")


def run_workers(arguments: Sequence[str], workers: int, deadline: float) -> None:
    """Run the command once more in so many processes, each of which compiles a part.

    Those that fail or take too long do no harm: what they have not compiled is compiled as it is measured.
    """
    threads = max(1, (os.cpu_count() or 1) // workers)
    environment = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": str(threads)}
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "llama", *arguments, "--part", f"{number}/{workers}"],
            env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        for number in range(workers)
    ]  # fmt: skip
    for worker in started:
        try:
            worker.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()


def part_of(things: Sequence[_Any], part: str) -> Sequence[_Any]:
    """A part of things, by its number and how many there are.

    Example:
        >>> part_of("abcde", "1/2")
        'bd'
    """
    number, _, parts = part.partition("/")
    return things[int(number) :: int(parts)]


def compile_all(jobs: Iterable[Job], device: str, backend: str) -> None:
    """Compile each job by running one layer."""
    benches: dict[Shape, Bench] = {}
    for shape, case, arm in jobs:
        if shape not in benches:
            benches[shape] = Bench(shape, 1, device, backend)
        with suppress(Exception):  # it is raised again, and reported, where the arm is measured
            benches[shape].run_once(case, arm)
