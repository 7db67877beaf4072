"""Measures how long calls take, in microseconds: by CUDA graphs on GPUs, by the clock on the CPU.

Device time is read from replays of CUDA graphs over buffers that together exceed the L2 cache four times, so that
neither Python nor a warm cache is measured: the median of nine replays. There are at most 24 buffers; tensors so small
that these fit into the cache stay there. Host time is the time until a call returns with its work queued. On the CPU
both are the same: the median of nine loops over the buffers.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import cache
from statistics import median

import torch

from jitnorm.bench.calls import Call
from jitnorm.bench.tensors import Tensors

L2_BYTES = 60e6
_LOOP_SECONDS = 2e-3
_FEWEST_CALLS = 20  # calls in a graph, unless they take longer than
_LONG_GRAPH = 2500.0  # microseconds
_HOST_BATCHES = 10
_REPLAYS = 9


def buffer_count(op_bytes: float) -> int:
    """How many buffers to use for an op that moves so many bytes."""
    return max(1, min(24, math.ceil(4 * L2_BYTES / op_bytes)))


def memory(device: str) -> float:
    """The GPU's memory in bytes; unlimited for the CPU."""
    return float(torch.cuda.mem_get_info()[1]) if device == "cuda" else math.inf


def copy_calls(op_bytes: int, new: Tensors) -> list[Call]:
    """A kernel that reads and writes `op_bytes` in all; copy_ could run on a copy engine."""
    count = max(1, op_bytes // 4)

    def make() -> Call:
        x = new.bfloat16(count)
        y = torch.empty_like(x)
        return lambda: torch.neg(x, out=y)

    return [make() for _ in range(buffer_count(op_bytes))]


def device_time(calls: list[Call], device: str, replays: int = _REPLAYS) -> float:
    """Measure microseconds per call on the device, the median of replays, of an op over distinct buffers."""
    return graph_time(calls, replays) if device == "cuda" else loop_time(calls, replays)


def graph_time(calls: list[Call], replays: int = _REPLAYS) -> float:
    """Measure the same on a GPU. Everything is compiled before the graph is captured."""
    stream = _stream_of(torch.cuda.current_device())
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        _run(calls)
        rounds = rounds_of(_elapsed(lambda: _run(calls)) / len(calls), len(calls))
        graph = _captured(calls, rounds)
        times = [_elapsed(graph.replay) for _ in range(2 + replays)]
    torch.cuda.synchronize()
    return median(times[2:]) / (rounds * len(calls))


@cache
def _stream_of(device: int) -> torch.cuda.Stream:
    """The stream that all graphs of a device are captured and replayed on.

    In a program that has used more than about eight streams, a kernel begins 0.1 to 0.2 us later, and other schedules
    are the fastest for few rows.
    """
    return torch.cuda.Stream(device)


def rounds_of(estimate: float, buffers: int) -> int:
    """How often a graph visits each buffer, by about how many microseconds a call takes.

    Example:
        >>> rounds_of(2.0, 24), rounds_of(100.0, 2), rounds_of(5000.0, 1)
        (1, 10, 1)
    """
    return max(1, math.ceil(min(_FEWEST_CALLS, _LONG_GRAPH / estimate) / buffers))


def _run(calls: list[Call], rounds: int = 1) -> None:
    for _ in range(rounds):
        for call in calls:
            call()


def _captured(calls: list[Call], rounds: int) -> torch.cuda.CUDAGraph:
    """A graph of the calls, captured on the current stream.

    Unlike `torch.cuda.graph`, which returns all unused memory to the driver each time, this does so only when there is
    much: calls that allocate use that memory.
    """
    torch.cuda.synchronize()
    if torch.cuda.memory_reserved() > memory("cuda") / 2:
        torch.cuda.empty_cache()
    graph = torch.cuda.CUDAGraph()
    graph.capture_begin()
    try:
        _run(calls, rounds)
    finally:
        graph.capture_end()
    return graph


def _elapsed(run: Callable[[], object]) -> float:
    """Microseconds on the current stream."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    run()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1e3


def host_time(call: Call, device_time: float) -> float:
    """Microseconds until a call to a GPU returns: the best of ten batches, of 50 calls or as many as take 1 ms there.

    Args:
        call: the call, which has run before.
        device_time: microseconds that it takes on the device.
    """
    count = max(1, min(50, int(1000 / device_time)))
    times = []
    for _ in range(1 + _HOST_BATCHES):
        torch.cuda.synchronize()
        times.append(_seconds([call], count) / count * 1e6)
    torch.cuda.synchronize()
    return min(times[1:])


def loop_time(calls: list[Call], replays: int = _REPLAYS) -> float:
    """Measure the same on the CPU, on as many threads as jitnorm and torch start."""
    _seconds(calls, 1)
    rounds = max(1, math.ceil(_LOOP_SECONDS / _seconds(calls, 1)))
    return median(_seconds(calls, rounds) for _ in range(replays)) / (rounds * len(calls)) * 1e6


def _seconds(calls: list[Call], rounds: int) -> float:
    start = time.perf_counter()
    _run(calls, rounds)
    return time.perf_counter() - start
