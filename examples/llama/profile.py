"""The kernels of a run, from torch's profiler: how many, of which class, and when."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch

GEMM, ATTENTION, OTHER = "gemm", "attention", "other"
_ROUNDS = 3

# Inductor names its kernels after the operations that they are fused from, also after those that they are none of, and
# flash attention has CUTLASS in its name; so the first pattern that is found decides.
_CLASSES = (
    (re.compile(r"^triton_(tem|mm)_"), GEMM),
    (re.compile(r"^triton_|jitnorm"), OTHER),
    (re.compile(r"flash|fmha|attention|sdpa", re.IGNORECASE), ATTENTION),
    (re.compile(r"gemm|gemv|nvjet|cutlass|cublas|xmma|splitk|scaled_mm", re.IGNORECASE), GEMM),
)


class Span(NamedTuple):
    """A kernel as it ran, in microseconds."""

    name: str
    start: float
    end: float


class Kernels(NamedTuple):
    """The kernels of one run.

    Attributes:
        launches: how many there are, copies and fills among them.
        gemm: microseconds in matrix products.
        attention: microseconds in attention.
        outside: microseconds in which kernels run, but none of these two classes.
        names: of other kernels, how often each runs, and its microseconds.
    """

    launches: float
    gemm: float
    attention: float
    outside: float
    names: dict[str, tuple[float, float]]


def kernel_class(name: str) -> str:
    """The class of a kernel by its name.

    Example:
        >>> [kernel_class(name) for name in ("nvjet_tst_64x8", "triton_red_fused__scaled_mm_mul_0", "flash_fwd_kernel")]
        ['gemm', 'other', 'attention']
    """
    return next((found for pattern, found in _CLASSES if pattern.search(name)), OTHER)


def kernels_of(run: Callable[[], object]) -> Kernels:
    """Profile a run on the GPU, which has run before."""
    spans = _spans(run)
    names = Counter(span.name for span in spans if kernel_class(span.name) == OTHER)
    taken = {name: sum(span.end - span.start for span in spans if span.name == name) for name in names}
    inside = {each: _covered(span for span in spans if kernel_class(span.name) == each) for each in (GEMM, ATTENTION)}
    within = _covered(span for span in spans if kernel_class(span.name) != OTHER)
    return Kernels(
        len(spans) / _ROUNDS,
        inside[GEMM] / _ROUNDS,
        inside[ATTENTION] / _ROUNDS,
        (_covered(spans) - within) / _ROUNDS,
        {name: (count / _ROUNDS, taken[name] / _ROUNDS) for name, count in names.most_common()},
    )


def _covered(spans: Iterable[Span]) -> float:
    """How long at least one of them runs: with programmatic dependent launch, kernels overlap.

    Example:
        >>> _covered([Span("a", 0, 2), Span("b", 1, 3), Span("c", 5, 6)])
        4.0
    """
    total, end = 0.0, float("-inf")
    for span in sorted(spans, key=lambda span: span.start):
        total += max(0.0, span.end - max(end, span.start))
        end = max(end, span.end)
    return total


def _spans(run: Callable[[], object]) -> list[Span]:
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(_ROUNDS):
            run()
        torch.cuda.synchronize()
    on_gpu = torch.autograd.DeviceType.CUDA
    events = [event for event in profile.events() if event.device_type == on_gpu and not _is_annotation(event)]
    return [Span(event.name, event.time_range.start, event.time_range.end) for event in events]


def _is_annotation(event: Any) -> bool:
    """Whether an event is a stretch of kernels that a program names."""
    return bool(getattr(event, "is_user_annotation", False))
