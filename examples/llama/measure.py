"""Measures the arms: layers of a model, captured in CUDA graphs, in prefill and in decode."""

from __future__ import annotations

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


Cell = tuple[Case, Arm]
"""An arm in a case."""


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


class _Prepared(NamedTuple):
    """An arm whose layers have run in a case: nothing is compiled any more."""

    run: Callable[[], object]
    graph: torch.cuda.CUDAGraph | None
    error: float


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
    """A model with random weights, whose cells are prepared, and then measured one by one.

    Args:
        shape: its sizes.
        layers: how many layers are measured; the others take as long.
        device: ``cuda`` or ``cpu``.
        backend: torch.compile's.
    """

    def __init__(self, shape: Shape, layers: int, device: str, backend: str) -> None:
        self.shape, self.device, self.backend = shape, device, backend
        torch.manual_seed(0)
        self.weights = [random_weights(shape, device) for _ in range(layers)]
        self._encoded: dict[type[Plain], list[LayerWeights]] = {}
        self._prepared: dict[Cell, _Prepared] = {}
        self._known_inputs: dict[Case, tuple[Inputs, Tensor]] = {}
        self._around: dict[Case, tuple[float, float | None]] = {}

    def prepare(self, cell: Cell) -> None:
        """Have a cell's layers compiled, run, and captured in a graph; this need not be alone on the GPU."""
        case, arm = cell
        inputs, expected = self._inputs_of(case)
        ops, layer = arm.prepared(self.shape, self.backend)
        weights = self._weights_for(ops)
        run = partial(inputs.through, layer, weights)
        _, residual = run()
        error = float((residual - expected).float().norm() / expected.float().norm())
        graph = None if self.device == "cpu" else captured(run, self._shared_pool())
        self._prepared[cell] = _Prepared(run, graph, error)

    def measure(self, cell: Cell) -> Row:
        """Measure a cell that is prepared, which is not afterwards."""
        case, arm = cell
        run, graph, error = self._prepared.pop(cell)
        taken, kernels = measured(run, graph)
        ends, copy = self._around_layers(case)
        count = len(self.weights)
        row = Row(
            self.shape.name, case.phase, case.batch, case.tokens, arm.name, taken / count,
            ends + taken * self.shape.layers / count, error,
        )  # fmt: skip
        if kernels is not None:
            row.launches, row.gemm_us, row.attention_us, row.outside_us = (each / count for each in kernels[:4])
            row.kernels = {name: (often / count, us / count) for name, (often, us) in kernels.names.items()}
            row.copy_us = copy
        return row

    def _shared_pool(self) -> tuple[int, int] | None:
        """The memory pool of the graphs that wait to be measured; torch ends a pool together with its last graph."""
        return next((each.graph.pool() for each in self._prepared.values() if each.graph), None)

    def _inputs_of(self, case: Case) -> tuple[Inputs, Tensor]:
        """What the layers of a case work on, and the residual that bf16 finds."""
        if case not in self._known_inputs:
            torch.manual_seed(case.tokens)
            shape = (case.tokens, self.shape.hidden)
            x, residual = (torch.randn(shape, device=self.device, dtype=torch.bfloat16) for _ in range(2))
            caches = [empty_cache(self.shape, case.batch, case.length, self.device) for _ in self.weights]
            for cache in caches:
                for tensor in cache:
                    tensor.normal_()
            at = places(self.shape, case.batch, case.length, case.first, self.device)
            inputs = Inputs(x, residual, caches, at)
            _, expected = inputs.through(partial(layer, Plain(self.shape)), self.weights)
            self._known_inputs[case] = inputs, expected
        return self._known_inputs[case]

    def _weights_for(self, ops: Plain) -> list[LayerWeights]:
        """The weights as an arm's kind of operations takes them."""
        kind = type(ops)
        if kind not in self._encoded:
            self._encoded[kind] = [w.encoded(ops.encoded_weight) for w in self.weights]
        return self._encoded[kind]

    def _around_layers(self, case: Case) -> tuple[float, float | None]:
        """The times of what no arm changes: the ends of the model, and a copy of the bytes that a layer moves."""
        if case not in self._around:
            self._around[case] = self._ends_time(case), self._copy_time(case)
        return self._around[case]

    def _ends_time(self, case: Case) -> float:
        """What comes before the layers and after: the same in all arms, by torch in bfloat16."""
        embedding, head = self._vocabulary()
        tokens = torch.randint(len(embedding), (case.tokens,), device=self.device)
        last = torch.arange(1, case.batch + 1, device=self.device) * (case.tokens // case.batch) - 1
        ops, norm = Plain(self.shape), self.weights[0].mlp_norm

        def run() -> Tensor:
            x = embedding[tokens][last]
            return ops.linear(ops.add_norm(x, x, norm)[0], head)

        return time_of(run, None if self.device == "cpu" else captured(run, None))

    def _vocabulary(self) -> list[Tensor]:
        """The embedding, and the weight that logits are found by."""
        size = (self.shape.vocabulary, self.shape.hidden)
        return [torch.randn(size, device=self.device, dtype=torch.bfloat16) for _ in range(2)]

    def _copy_time(self, case: Case) -> float | None:
        """A copy of a layer's bytes outside of matrix products and attention, from a profile as well."""
        if self.device == "cpu":
            return None
        run, count = copies(self.shape, case.tokens, len(self.weights)), len(self.weights)
        return kernels_of(captured(run, None).replay).outside / count


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


def captured(run: Callable[[], object], pool: tuple[int, int] | None) -> torch.cuda.CUDAGraph:
    """A graph of a run that has run before; graphs of one pool are not replayed at once."""
    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
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
