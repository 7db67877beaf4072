"""Models a kernel's time as that of a copy of its bytes or that of its instructions, whichever is longer.

The model ignores latency, occupancy, the L2 cache and bank conflicts, so its predictions are bounds for large tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# Results per clock of a multiprocessor's pipes, assumed equal for compute capabilities 9.0 and 10.0: four warps issue
# an instruction each; float additions and products, 128; integers and logic, 64; special functions and conversions, 16;
# the L1 cache moves 128 bytes, 32 words. docs/performance.md lists the sources, and which are unconfirmed.
RATES = {"issue": 128, "fma": 128, "alu": 64, "xu": 16, "lsu": 32}
# The share of issue slots that a kernel bound by them fills, by ncu on an H200: docs/choices.md. Nothing is fitted.
BUSY_SHARE = 0.80
# The fraction of NVIDIA's stated bandwidth that a copy reaches: 0.87 to 0.89 on an H200 from 340 MB on,
# docs/benchmarks.
COPY_SHARE = 0.88


@dataclass(frozen=True)
class Gpu:
    """Published figures: multiprocessors, highest clock, bytes per second; docs/performance.md lists the sources."""

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
    """Microseconds of a copy of the op's bytes and of its instructions, with the slowest resource of `RATES`."""

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
        """The limiting resource: ``memory``, or one of `RATES`."""
        return "memory" if self.copy >= self.instructions else self.slowest


def copy_time(op_bytes: float, gpu: Gpu) -> float:
    """Microseconds of a copy that reads and writes `op_bytes` in total."""
    return op_bytes / (gpu.bandwidth * COPY_SHARE) * 1e6


def predict(per_element: Mapping[str, float], elements: float, copy: float, gpu: Gpu) -> Prediction:
    """Predict the time of an op on a GPU.

    Args:
        per_element: instructions per element, by the names in `RATES`.
        elements: number of elements.
        copy: microseconds of a copy of the op's bytes.
        gpu: the GPU.
    """
    clock = gpu.multiprocessors * gpu.hertz * BUSY_SHARE / 1e6
    times = {name: elements * per_element.get(name, 0) / (rate * clock) for name, rate in RATES.items()}
    slowest = max(times, key=lambda name: times[name])
    return Prediction(copy, times[slowest], slowest)
