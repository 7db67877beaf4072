"""How long calls take, in microseconds: by CUDA graphs on GPUs, by the clock on the CPU.

Device time is read from replays of CUDA graphs over buffers that together exceed the L2 cache four times, so that
neither Python nor a warm cache is measured: the median of nine replays. There are at most 24 buffers; tensors so small
that these fit into the cache stay there. Host time is that of a call with the work queued. On the CPU the two are one,
the median of nine loops over the buffers.
"""

from __future__ import annotations

import math
import time

import torch

from jitnorm.bench.cases import Call
from jitnorm.bench.tensors import Tensors

L2_BYTES = 60e6
_LOOP_SECONDS = 2e-3


def buffer_count(op_bytes: float) -> int:
    """Over how many buffers an op is measured that moves so many bytes."""
    return max(1, min(24, math.ceil(4 * L2_BYTES / op_bytes)))


def copy_calls(op_bytes: int, new: Tensors) -> list[Call]:
    """A kernel that reads and writes `op_bytes` in all; copy_ could run on a copy engine."""
    count = max(1, op_bytes // 4)

    def make() -> Call:
        x = new.bfloat16(count)
        y = torch.empty_like(x)
        return lambda: torch.neg(x, out=y)

    return [make() for _ in range(buffer_count(op_bytes))]


def device_time(calls: list[Call], device: str) -> float:
    """Microseconds a call takes on the device; the calls are one op over distinct buffers."""
    return graph_time(calls) if device == "cuda" else loop_time(calls)


def graph_time(calls: list[Call]) -> float:
    """The same on a GPU."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for call in calls:
            call()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    rounds = max(1, math.ceil(20 / len(calls)))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(rounds):
            for call in calls:
                call()
    times = []
    for _ in range(11):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1e3 / (rounds * len(calls)))
    return float(sorted(times[2:])[4])


def host_time(call: Call, count: int = 500) -> float:
    """Microseconds until a call to a GPU returns."""
    for _ in range(50):
        call()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(count):
        call()
    elapsed = time.perf_counter() - start
    torch.cuda.synchronize()
    return elapsed / count * 1e6


def loop_time(calls: list[Call]) -> float:
    """The same on the CPU, on as many threads as jitnorm and torch start."""
    _seconds(calls, 1)
    rounds = max(1, math.ceil(_LOOP_SECONDS / _seconds(calls, 1)))
    times = sorted(_seconds(calls, rounds) for _ in range(9))
    return times[4] / (rounds * len(calls)) * 1e6


def _seconds(calls: list[Call], rounds: int) -> float:
    start = time.perf_counter()
    for _ in range(rounds):
        for call in calls:
            call()
    return time.perf_counter() - start
