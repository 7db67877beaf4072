"""Measures the arms: layers of a model, captured in CUDA graphs, in prefill and in decode."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
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
    """What all arms share in a case: inputs, the residual of bf16, and the times of what they do not change."""

    inputs: Inputs
    expected: Tensor
    ends: float
    copy: float | None


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
    def tokens_per_second(self) -> float:
        """Of the whole model."""
        return self.tokens / self.step_us * 1e6


class Bench:
    """A model with random weights, whose cases are measured.

    Args:
        shape: its sizes.
        layers: how many layers are measured; the others take as long.
        device: ``cuda`` or ``cpu``.
        backend: torch.compile's.
    """

    def __init__(self, shape: Shape, layers: int, device: str, backend: str) -> None:
        self.shape, self.device, self.backend = shape, device, backend
        self.weights = [random_weights(shape, device) for _ in range(layers)]
        self._encoded: dict[type[Plain], list[LayerWeights]] = {}

    def rows(self, case: Case, arms: Sequence[Arm], deadline: float, leave_out: Callable[[str], None]) -> Iterator[Row]:
        """Measure arms in a case.

        Args:
            case: the case.
            arms: the arms.
            deadline: of `time.monotonic`, after which no arm is begun.
            leave_out: is told what is left out, since the time is over or an exception stopped it.
        """
        name = f"{self.shape.name}, {case.phase}, batch {case.batch}"
        prepared: _Prepared | None = None
        for arm in arms:
            if time.monotonic() > deadline:
                leave_out(f"{name}, {arm.name}: out of time")
                continue
            try:
                prepared = self._prepared(case) if prepared is None else prepared
                yield self._row(case, arm, prepared)
            except Exception as error:  # of compilers and other libraries; the other arms are measured
                first_line = str(error).strip().partition("\n")[0]
                leave_out(f"{name}, {arm.name}: {type(error).__name__}: {first_line}")
            gc.collect()
            if self.device == "cuda":
                torch.cuda.empty_cache()

    def _prepared(self, case: Case) -> _Prepared:
        inputs = self._inputs(case)
        _, expected = inputs.through(partial(layer, Plain(self.shape)), self.weights)
        return _Prepared(inputs, expected, self._ends_time(case), self._copy_time(case))

    def _row(self, case: Case, arm: Arm, prepared: _Prepared) -> Row:
        inputs, expected, ends, copy = prepared
        ops, layer = arm.prepared(self.shape, self.backend)
        weights = self._weights_for(ops)
        _, residual = inputs.through(layer, weights)
        error = float((residual - expected).float().norm() / expected.float().norm())
        del residual
        taken, kernels = measured(lambda: inputs.through(layer, weights), self.device)
        count = len(weights)
        row = Row(
            self.shape.name, case.phase, case.batch, case.tokens, arm.name, taken / count,
            ends + taken * self.shape.layers / count, error,
        )  # fmt: skip
        if kernels is not None:
            row.launches, row.gemm_us, row.attention_us, row.outside_us = (each / count for each in kernels[:4])
            row.kernels = {name: (often / count, us / count) for name, (often, us) in kernels.names.items()}
            row.copy_us = copy
        return row

    def run_once(self, case: Case, arm: Arm) -> None:
        """Compute the layers by an arm, which compiles them."""
        ops, layer = arm.prepared(self.shape, self.backend)
        self._inputs(case).through(layer, self._weights_for(ops))

    def _inputs(self, case: Case) -> Inputs:
        shape = (case.tokens, self.shape.hidden)
        x, residual = (torch.randn(shape, device=self.device, dtype=torch.bfloat16) for _ in range(2))
        caches = [empty_cache(self.shape, case.batch, case.length, self.device) for _ in self.weights]
        for cache in caches:
            for tensor in cache:
                tensor.normal_()
        return Inputs(x, residual, caches, places(self.shape, case.batch, case.length, case.first, self.device))

    def _weights_for(self, ops: Plain) -> list[LayerWeights]:
        """The weights as an arm's kind of operations takes them."""
        kind = type(ops)
        if kind not in self._encoded:
            self._encoded[kind] = [w.encoded(ops.encoded_weight) for w in self.weights]
        return self._encoded[kind]

    def _ends_time(self, case: Case) -> float:
        """What comes before the layers and after: the same in all arms, by torch in bfloat16."""
        embedding, head = self._vocabulary()
        tokens = torch.randint(len(embedding), (case.tokens,), device=self.device)
        last = torch.arange(1, case.batch + 1, device=self.device) * (case.tokens // case.batch) - 1
        ops, norm = Plain(self.shape), self.weights[0].mlp_norm

        def run() -> Tensor:
            x = embedding[tokens][last]
            return ops.linear(ops.add_norm(x, x, norm)[0], head)

        return measured(run, self.device, profile=False)[0]

    def _vocabulary(self) -> list[Tensor]:
        """The embedding, and the weight that logits are found by."""
        size = (self.shape.vocabulary, self.shape.hidden)
        return [torch.randn(size, device=self.device, dtype=torch.bfloat16) for _ in range(2)]

    def _copy_time(self, case: Case) -> float | None:
        """A copy of a layer's bytes outside of matrix products and attention, from a profile as well."""
        if self.device == "cpu":
            return None
        count = len(self.weights)
        _, kernels = measured(copies(self.shape, case.tokens, count), self.device)
        return None if kernels is None else kernels.outside / count


def measured(run: Callable[[], object], device: str, profile: bool = True) -> tuple[float, Kernels | None]:
    """Microseconds of a run and its kernels, on a GPU as a CUDA graph; on the CPU one sample of its time alone."""
    if device == "cpu":
        return _median_time(run, time.perf_counter, samples=1, seconds=0), None
    graph = _captured(run)
    taken = _median_time(graph.replay, _synchronized_clock)
    if not profile:
        return taken, None
    kernels = kernels_of(graph.replay)
    return taken, kernels if kernels.launches else kernels_of(run)  # in case the profiler does not see into graphs


def _captured(run: Callable[[], object]) -> torch.cuda.CUDAGraph:
    """A graph of a run, which runs once before: whatever has to be compiled is."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
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
