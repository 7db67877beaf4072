"""Measures the arms: layers of a model, captured in CUDA graphs, in prefill and in decode."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from llama.arms import Arm, Layer, Plain
from llama.model import Cache, LayerWeights, Places, Shape, empty_cache, layer, places, random_weights
from llama.profile import Kernels, kernels_of
from llama.traffic import copies

_SAMPLES = 9
_SAMPLE_SECONDS = 10e-3


@dataclass(frozen=True)
class Case:
    """A step of inference.

    Attributes:
        phase: ``prefill`` or ``decode``.
        batch: how many sequences there are.
        length: how long each is, behind the step.
    """

    phase: str
    batch: int
    length: int

    @property
    def first(self) -> int:
        """The first position that the step computes."""
        return 0 if self.phase == "prefill" else self.length - 1

    @property
    def tokens(self) -> int:
        """How many tokens the step computes."""
        return self.batch * (self.length - self.first)


class Cell(NamedTuple):
    """An arm in a case of a model."""

    shape: Shape
    case: Case
    arm: Arm

    @property
    def key(self) -> tuple[str, str, int, str]:
        """What tells it apart in results."""
        return self.shape.name, self.case.phase, self.case.batch, self.arm.name


class Around(NamedTuple):
    """The microseconds of what no arm changes: the ends of the model, and a copy of the bytes that a layer moves."""

    ends: float
    copy: float | None


class Inputs(NamedTuple):
    """What the layers of a step work on, the same for all arms."""

    x: Tensor
    residual: Tensor
    caches: list[Cache]
    at: Places

    def through(self, layer: Layer, weights: Sequence[LayerWeights]) -> tuple[Tensor, Tensor]:
        """What comes out of the layers."""
        x, residual = self.x, self.residual
        for w, cache in zip(weights, self.caches, strict=True):
            x, residual = layer(w, x, residual, cache, self.at)
        return x, residual


@dataclass
class Row:
    """What was measured of an arm in a case; of times, microseconds, of kernels, what a layer has.

    Attributes:
        model: the model's name.
        phase: of the case.
        batch: of the case.
        tokens: of the case.
        arm: the arm's name.
        layer_us: a layer's time.
        step_us: the whole model's: all of its layers, the embedding and the logits.
        error: the norm of the difference to the residual of bf16, relative to it.
        launches: of kernels.
        gemm_us: in matrix products.
        attention_us: in attention.
        outside_us: outside of both.
        copy_us: of a copy of the bytes that have to be moved there.
        kernels: those outside by name: how often each runs, and its time.
    """

    model: str
    phase: str
    batch: int
    tokens: int
    arm: str
    layer_us: float
    step_us: float
    error: float
    launches: float | None = None
    gemm_us: float | None = None
    attention_us: float | None = None
    outside_us: float | None = None
    copy_us: float | None = None
    kernels: dict[str, tuple[float, float]] | None = None

    @property
    def key(self) -> tuple[str, str, int, str]:
        """What tells it apart, as its cell's."""
        return self.model, self.phase, self.batch, self.arm

    @property
    def parts(self) -> dict[str, float]:
        """What is known of where a layer's time goes."""
        found = {
            "GEMMs": self.gemm_us,
            "attention": self.attention_us,
            "outside": self.outside_us,
            "copy": self.copy_us,
        }
        return {name: value for name, value in found.items() if value is not None}

    @property
    def tokens_per_second(self) -> float:
        """Of the whole model."""
        return self.tokens / self.step_us * 1e6


class Bench:
    """Measures cells. Between its steps it holds compiled programs, but no memory of the GPU.

    Args:
        layers: how many layers are measured; the others take as long. 0: all.
        device: ``cuda`` or ``cpu``.
        backend: torch.compile's.

    Attributes:
        around: what is known of cases besides their arms.
    """

    def __init__(self, layers: int, device: str, backend: str) -> None:
        self.layers, self.device, self.backend = layers, device, backend
        self.around: dict[tuple[Shape, Case], Around] = {}
        self._prepared: dict[Cell, tuple[Plain, Layer, float]] = {}

    def limit(self, size: int | None) -> None:
        """Let torch's allocator have so many bytes of the GPU, so that no other process lacks them; None: all."""
        if self.device == "cuda":
            total = torch.cuda.mem_get_info()[1]
            torch.cuda.set_per_process_memory_fraction(1.0 if size is None else min(1.0, size / total))
            torch.cuda.reset_peak_memory_stats()

    @property
    def held(self) -> int:
        """The most bytes that tensors have had since the last limit."""
        return torch.cuda.max_memory_allocated() if self.device == "cuda" else 0

    def prepare(self, cell: Cell) -> None:
        """Have a cell's layers compiled and run; this need not be alone on the GPU."""
        ops, layer = cell.arm.prepared(cell.shape, self.backend)
        weights, inputs = self._weights(cell.shape), self._inputs(cell)
        expected = self._expected(cell.shape, weights, inputs)
        _, residual = inputs.through(layer, [w.encoded(ops.encoded_weight) for w in weights])
        error = float((residual - expected).float().norm() / expected.float().norm())
        self._prepared[cell] = ops, layer, error

    def measure(self, cell: Cell) -> Row:
        """Measure a cell that is prepared, which is not afterwards; this has to be alone on the GPU."""
        shape, case = cell.shape, cell.case
        ops, layer, error = self._prepared.pop(cell)
        taken, kernels = self._layers_measured(cell, ops, layer)
        freed(self.device)
        if (shape, case) not in self.around:
            self.around[shape, case] = Around(self._ends_time(shape, case), self._copy_time(shape, case))
        around, count = self.around[shape, case], self._count(shape)
        row = Row(
            shape.name, case.phase, case.batch, case.tokens, cell.arm.name, taken / count,
            around.ends + taken * shape.layers / count, error,
        )  # fmt: skip
        if kernels is not None:
            row.launches, row.gemm_us, row.attention_us, row.outside_us = (each / count for each in kernels[:4])
            row.kernels = {name: (often / count, us / count) for name, (often, us) in kernels.names.items()}
            row.copy_us = around.copy
        return row

    def _layers_measured(self, cell: Cell, ops: Plain, layer: Layer) -> tuple[float, Kernels | None]:
        """The microseconds of all layers, and their kernels; nothing of them is left in memory."""
        weights = [w.encoded(ops.encoded_weight) for w in self._weights(cell.shape)]
        run = partial(self._inputs(cell).through, layer, weights)
        return measured(run, self._captured(run))

    def _count(self, shape: Shape) -> int:
        """How many layers are measured."""
        return self.layers or shape.layers

    def _weights(self, shape: Shape) -> list[LayerWeights]:
        """Random weights, the same each time."""
        torch.manual_seed(0)
        return [random_weights(shape, self.device) for _ in range(self._count(shape))]

    def _inputs(self, cell: Cell) -> Inputs:
        """What the layers of a case work on, the same each time."""
        shape, case = cell.shape, cell.case
        torch.manual_seed(case.tokens)
        size = (case.tokens, shape.hidden)
        x, residual = (torch.randn(size, device=self.device, dtype=torch.bfloat16) for _ in range(2))
        caches = [empty_cache(shape, case.batch, case.length, self.device) for _ in range(self._count(shape))]
        for cache in caches:
            for tensor in cache:
                tensor.normal_()
        return Inputs(x, residual, caches, places(shape, case.batch, case.length, case.first, self.device))

    def _expected(self, shape: Shape, weights: Sequence[LayerWeights], inputs: Inputs) -> Tensor:
        """The residual that bf16 finds."""
        return inputs.through(partial(layer, Plain(shape)), weights)[1]

    def _captured(self, run: Callable[[], object]) -> torch.cuda.CUDAGraph | None:
        return None if self.device == "cpu" else captured(run)

    def _ends_time(self, shape: Shape, case: Case) -> float:
        """What comes before the layers and after: the same in all arms, by torch in bfloat16."""
        size = (shape.vocabulary, shape.hidden)
        embedding, head = (torch.randn(size, device=self.device, dtype=torch.bfloat16) for _ in range(2))
        norm = torch.ones(shape.hidden, device=self.device, dtype=torch.bfloat16)
        tokens = torch.randint(len(embedding), (case.tokens,), device=self.device)
        last = torch.arange(1, case.batch + 1, device=self.device) * (case.tokens // case.batch) - 1
        ops = Plain(shape)

        def run() -> Tensor:
            x = embedding[tokens][last]
            return ops.linear(ops.add_norm(x, x, norm)[0], head)

        return time_of(run, self._captured(run))

    def _copy_time(self, shape: Shape, case: Case) -> float | None:
        """A copy of a layer's bytes outside of matrix products and attention, from a profile as well."""
        if self.device == "cpu":
            return None
        count = self._count(shape)
        return kernels_of(captured(copies(shape, case.tokens, count)).replay).outside / count


def freed(device: str) -> None:
    """Give back memory that nothing uses, for other processes."""
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()


def measured(run: Callable[[], object], graph: torch.cuda.CUDAGraph | None) -> tuple[float, Kernels | None]:
    """Microseconds of a run and its kernels, by its graph; without one, on the CPU, the time alone."""
    taken = time_of(run, graph)
    if graph is None:
        return taken, None
    kernels = kernels_of(graph.replay)
    return taken, kernels if kernels.launches else kernels_of(run)  # in case the profiler does not see into graphs


def time_of(run: Callable[[], object], graph: torch.cuda.CUDAGraph | None) -> float:
    """Microseconds of a run, by its graph; without one, of one sample on the CPU."""
    if graph is None:
        return _median_time(run, time.perf_counter, samples=1, seconds=0)
    return _median_time(graph.replay, _synchronized_clock)


def captured(run: Callable[[], object]) -> torch.cuda.CUDAGraph:
    """A graph of a run."""
    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        run()
    return graph


def _synchronized_clock() -> float:
    torch.cuda.synchronize()
    return time.perf_counter()


def _median_time(
    run: Callable[[], object], clock: Callable[[], float], samples: int = _SAMPLES, seconds: float = _SAMPLE_SECONDS
) -> float:
    def sample(rounds: int) -> float:
        start = clock()
        for _ in range(rounds):
            run()
        return (clock() - start) / rounds

    sample(1)
    rounds = max(1, round(seconds / sample(1)))
    return sorted(sample(rounds) for _ in range(samples))[samples // 2] * 1e6
