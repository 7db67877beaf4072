"""The model of a kernel's time: as long as a copy of its bytes, or as its instructions take, whichever is longer.

It knows nothing of latency, occupancy, the L2 cache or bank conflicts, so what it predicts is a bound on large tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# Results a clock of a multiprocessor's pipes, taken to be alike for compute capabilities 9.0 and 10.0: four warps issue
# an instruction each; float additions and products, 128; integers and logic, 64; special functions and conversions, 16;
# the L1 cache moves 128 bytes, 32 words. docs/performance.md says where each is from and which could not be confirmed.
RATES = {"issue": 128, "fma": 128, "alu": 64, "xu": 16, "lsu": 32}
# The share of issue slots that a kernel bound by them fills: ncu's on an H200, docs/measured.md. Nothing is fitted.
BUSY_SHARE = 0.80
# What a copy reaches of the bandwidth that NVIDIA states: 0.87 to 0.89 on an H200 from 340 MB on, docs/benchmarks.
COPY_SHARE = 0.88


@dataclass(frozen=True)
class Gpu:
    """Published figures: multiprocessors, their highest clock, bytes a second; docs/performance.md has the sources."""

    name: str
    target: str
    multiprocessors: int
    hertz: float
    bandwidth: float


GPUS = {
    "H200": Gpu("H200", "sm_90a", 132, 1.98e9, 4.8e12),
    "GB200": Gpu("GB200", "sm_100a", 148, 2.062e9, 8e12),
    "B200": Gpu("B200", "sm_100a", 148, 1.965e9, 8e12),
}


@dataclass(frozen=True)
class Prediction:
    """Microseconds: of a copy of the op's bytes, and of its instructions, by the name in `RATES` that takes longest."""

    copy: float
    instructions: float
    slowest: str

    @property
    def time(self) -> float:
        return max(self.copy, self.instructions)

    @property
    def roofline(self) -> float:
        return self.copy / self.time

    @property
    def limit(self) -> str:
        """What the op waits for: ``memory``, or one of `RATES`."""
        return "memory" if self.copy >= self.instructions else self.slowest


def copy_time(op_bytes: float, gpu: Gpu) -> float:
    """Microseconds that a copy takes which reads and writes `op_bytes` in all."""
    return op_bytes / (gpu.bandwidth * COPY_SHARE) * 1e6


def predict(per_element: Mapping[str, float], elements: float, copy: float, gpu: Gpu) -> Prediction:
    """What an op takes on a GPU.

    Args:
        per_element: instructions an element, by the names of `RATES`.
        elements: how many elements there are.
        copy: microseconds that a copy of the op's bytes takes.
        gpu: where.
    """
    clock = gpu.multiprocessors * gpu.hertz * BUSY_SHARE / 1e6
    times = {name: elements * per_element.get(name, 0) / (rate * clock) for name, rate in RATES.items()}
    slowest = max(times, key=lambda name: times[name])
    return Prediction(copy, times[slowest], slowest)


def packed(per_element: Mapping[str, float]) -> dict[str, float]:
    """The same if every two float additions and products shared an instruction; the pipe does as much as before."""
    return {**per_element, "issue": per_element["issue"] - per_element.get("packable", 0) / 2}
