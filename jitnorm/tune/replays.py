"""Times work that ranks do together, on each rank: directly on the CPU, and on GPUs as graphs that begin at once."""

from __future__ import annotations

import time
from collections.abc import Callable

# A stream sleeps so long that everything is queued before it goes on.
_SLEEP_CYCLES = 1_000_000

Replay = Callable[[], float]
"""Does the work again; the microseconds it took."""


def host_replay(work: Callable[[], None]) -> Replay:
    """Work on the CPU, which has ended when it returns."""

    def replay() -> float:
        start = time.perf_counter()
        work()
        return (time.perf_counter() - start) * 1e6

    return replay


def graph_replay(work: Callable[[], None], meet: Callable[[], object]) -> Replay:
    """Work on torch's current GPU, captured as a graph.

    Args:
        work: launches kernels; it has run before.
        meet: launches something that ends on all ranks at about the same time.
    """
    import torch

    graph = torch.cuda.CUDAGraph()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        work()

    def replay() -> float:
        torch.cuda._sleep(_SLEEP_CYCLES)
        meet()
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e3

    return replay
