"""Measures the fused call across ranks, alternatives that compute the same, and bounds set by the links.

    scripts/comm_bench [--seconds S] [--formats NAME ...] [--rows N ...] [--random N] [--out FILE]

Ranks are processes, each with a GPU; CUDA graphs hold the calls. A time is the median of several replays on the slowest
rank, in microseconds per call. Ranks begin a replay together: their streams sleep until it is queued, and meet. Calls
that read a peer's matrix are checked to do so: the matrix changes before a last replay, and the result must be that of
the new one. Every wait is bounded, and the processes are killed when their time is over.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from comm.cases import SPECS
from comm.devices import Device
from jitnorm.tune.processes import Exchange, run_ranks

if TYPE_CHECKING:
    from comm.contenders import Call, Setting  # these import torch, which only ranks need

ROWS, HIDDEN_SIZE = (1, 16, 64, 512, 4096, 16384), 7168
_HIDDEN_SIZES = (2048, 2880, 4096, 5120, 6144, 7168, 8192)
_REPEATS = 15
_GRAPH_MICROSECONDS = 2000.0
_L2_BYTES, _MOST_SETS = 60e6, 8
_DEADLINE = 60.0
_ONE_SHOT_ROWS = 1024
"""Above, one-shot is not measured."""
_START_SECONDS = 120.0


@dataclass(frozen=True)
class Options:
    """Options of the command line."""

    device: str
    memory: str
    ranks: int
    seconds: float
    formats: tuple[str, ...]
    shapes: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Figure:
    """Microseconds of each contender by name, None for those that did not run, with the reason."""

    rows: int
    hidden_size: int
    format: str
    times: dict[str, float | None]
    refusals: dict[str, str]


def measure(exchange: Exchange, options: Options) -> tuple[dict[str, str], list[Figure]]:
    """Measure all contenders at all shapes that the time allows, on each rank; rank 0 prints the figures."""
    from comm.contenders import Setting, contenders

    end = time.monotonic() + options.seconds
    backend = "nccl" if options.device == "cuda" else "gloo"
    device = Device(options.device, exchange, options.memory, backend)
    most_rows, widest = (max(each) for each in zip(*options.shapes, strict=True))
    workspaces = (
        device.workspace(most_rows, widest, "bfloat16", _DEADLINE),
        device.workspace(_ONE_SHOT_ROWS, widest, "bfloat16", _DEADLINE, _ONE_SHOT_ROWS),
    )
    figures: list[Figure] = []
    for (rows, hidden_size), name in product(options.shapes, options.formats):
        setting = Setting(device, options.ranks, rows, hidden_size, name, _sets(2.0 * rows * hidden_size), *workspaces)
        figure = Figure(rows, hidden_size, name, {}, {})
        for contender, calls_of in contenders(device.kind).items():
            if device.agree(time.monotonic() > end):
                figure.times[contender], figure.refusals[contender] = None, "no time was left"
                continue
            time_taken, problem = _time(device, exchange, setting, calls_of)
            figure.times[contender] = time_taken
            if problem:
                figure.refusals[contender] = problem
                for workspace in workspaces:
                    workspace.reset()
        figures.append(figure)
        if exchange.rank == 0:
            print(table([figure], header=len(figures) == 1), end="", flush=True)
    return device.facts(), figures


def _sets(size: float) -> int:
    """How many sets of three matrices calls need, so that they do not find them in the L2 cache."""
    return max(1, min(_MOST_SETS, math.ceil(4 * _L2_BYTES / (3 * size))))


def _time(
    device: Device, exchange: Exchange, setting: Setting, calls_of: Callable[[Setting], Iterable[Call]]
) -> tuple[float | None, str]:
    """Microseconds per call on the slowest rank; or why there are none."""
    estimate = 5 + setting.rows * setting.hidden_size / 100e3
    rounds = max(1, math.ceil(_GRAPH_MICROSECONDS / estimate / setting.sets)) if device.is_gpu else 1
    problem = ""
    try:
        calls = list(calls_of(setting))
        for call in calls:
            call()  # compiles
        device.synchronize()
        replay = device.captured(calls, rounds)
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
    if device.agree(bool(problem)):
        return None, problem or "another rank could not"
    own = []
    for _ in range(_REPEATS):
        exchange(b"")
        own.append(replay())
    if device.agree(not reads_memory(calls, exchange, device.synchronize, replay)):
        return None, "a replay gave what a peer's memory held before: it does not read that"
    by_rank = [json.loads(times) for times in exchange(json.dumps(own).encode())]
    slowest = [max(times) for times in zip(*by_rank, strict=True)]
    return statistics.median(slowest[1:]) / (rounds * len(calls)), ""


def reads_memory(
    calls: list[Any], exchange: Exchange, synchronize: Callable[[], None], replay: Callable[[], float]
) -> bool:
    """Whether calls that claim to read peers' memory see what the peers have written since the last replay."""
    reads = [call for call in calls if hasattr(call, "refill")]
    for seed, call in enumerate(reads):
        call.refill(seed)
    synchronize()
    exchange(b"")
    replay()
    synchronize()
    exchange(b"")  # no rank writes other values before all have read
    return all(call.has_read(seed) for seed, call in enumerate(reads))


def table(figures: list[Figure], header: bool = True) -> str:
    """The figures as lines of Markdown, with a verdict on the fused call."""
    names = [*figures[0].times]
    titles = ["rows", "hidden", "format", *names, "over peer read", "not fused / fused", "best other / fused"]
    lines = [_line(titles), "|" + " --- |" * len(titles)] if header else []
    for figure in figures:
        times = ("" if time is None else f"{time:.1f}" for time in figure.times.values())
        lines.append(_line([str(figure.rows), str(figure.hidden_size), figure.format, *times, *verdict(figure)]))
        lines += [f"<!-- {name}: {why.splitlines()[0]} -->" for name, why in figure.refusals.items()]
    return "".join(f"{line}\n" for line in lines)


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def verdict(figure: Figure) -> tuple[str, str, str]:
    """Judge the fastest fused call: microseconds above reading a peer's matrix; how many times as long others take."""
    times = {name: time for name, time in figure.times.items() if time is not None}
    best = min((time for name, time in times.items() if name.startswith("fused")), default=math.nan)
    others = [time for name, time in times.items() if name in ("one-shot", "two-shot", "FlashInfer")]
    return (
        f"{best - times['peer read']:+.1f}" if "peer read" in times else "",
        f"{times['not fused'] / best:.2f}" if "not fused" in times else "",
        f"{min(others) / best:.2f}" if others else "",
    )


def shapes_of(rows: list[int], count: int, seed: int) -> tuple[tuple[int, int], ...]:
    """The shapes to measure: rows of the usual width, and the requested number of random shapes."""
    chance = random.Random(seed)
    drawn = [(int(2 ** chance.uniform(0, 13)), chance.choice(_HIDDEN_SIZES)) for _ in range(count)]
    return (*((each, HIDDEN_SIZE) for each in rows), *drawn)


def main() -> int:
    """Measure what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--memory", choices=("torch", "ipc"), default="torch", help="how GPUs share memory")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--formats", nargs="*", choices=SPECS, default=["none", "fp8", "fp8_tensor", "nvfp4"])
    parser.add_argument("--rows", type=int, nargs="*", default=ROWS)
    parser.add_argument("--random", type=int, default=0, help="how many shapes to draw besides")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="where to write the figures as JSON")
    given = parser.parse_args()
    shapes = shapes_of(given.rows, given.random, given.seed)
    options = Options(given.device, given.memory, given.ranks, given.seconds, tuple(given.formats), shapes)
    outcomes = run_ranks(given.ranks, measure, options, seconds=given.seconds + _START_SECONDS)
    for rank, outcome in enumerate(outcomes):
        if outcome.error:
            print(f"rank {rank}: {outcome.error}", file=sys.stderr)
    if outcomes[0].error:
        return 1
    facts, figures = outcomes[0].value
    print("\n" + "\n".join(f"{name}: {value}" for name, value in facts.items()))
    if given.out:
        given.out.write_text(json.dumps({"facts": facts, "figures": [asdict(figure) for figure in figures]}, indent=1))
    return int(any(outcome.error for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
