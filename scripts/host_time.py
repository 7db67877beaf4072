"""Measures the host time of a call at 1x64 with torch tensors, on the GPU if there is one and on the CPU target.

    python scripts/host_time.py

Microseconds a call, in this one process: the best of ten batches of 200 calls. Processes differ by more than batches
do, so quote the median of several, and how many there were.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

import jitnorm


def best_batch(call: Callable[[], Any], synchronize: Callable[[], None]) -> float:
    times = []
    for _ in range(11):
        synchronize()
        start = time.perf_counter()
        for _ in range(200):
            call()
        times.append((time.perf_counter() - start) / 200 * 1e6)
    return min(times[1:])


def measure(device: str, synchronize: Callable[[], None]) -> None:
    x, w = torch.randn(1, 64).bfloat16().to(device), torch.randn(64).bfloat16().to(device)
    out = jitnorm.rmsnorm(x, w)
    codes, scales = jitnorm.rmsnorm_fp4quant(x, w)
    calls: dict[str, Callable[[], Any]] = {
        "rmsnorm, outputs given": lambda: jitnorm.rmsnorm(x, w, out=out),
        "rmsnorm_fp4quant, outputs given": lambda: jitnorm.rmsnorm_fp4quant(x, w, codes, scales),
        "rmsnorm, allocating": lambda: jitnorm.rmsnorm(x, w),
        "rmsnorm_fp4quant, allocating": lambda: jitnorm.rmsnorm_fp4quant(x, w),
    }
    for name, call in calls.items():
        print(f"{device:5} {name:32} {best_batch(call, synchronize):7.2f} us")


if __name__ == "__main__":
    measure("cpu", lambda: None)
    if torch.cuda.is_available():
        measure("cuda", torch.cuda.synchronize)
