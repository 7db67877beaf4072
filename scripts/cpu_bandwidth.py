"""Measures the memory bandwidth per core of the CPU target, and of one core's memcpy.

    python scripts/cpu_bandwidth.py [ROWSxHIDDEN_SIZE ...]

A bandwidth is the bytes read and written, divided by time and number of threads; the best of nine calls counts.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np

import jitnorm

Call = Callable[[], Any]


def best(call: Call) -> float:
    """Seconds per call."""
    call()
    times = []
    for _ in range(9):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def ops(rows: int, hidden_size: int) -> dict[str, tuple[float, Call]]:
    """A call of each op, and its bytes per element."""
    x = np.random.default_rng(0).standard_normal((rows, hidden_size)).astype(ml_dtypes.bfloat16)
    half = np.random.default_rng(1).standard_normal((rows, hidden_size)).astype(np.float16)
    w, residual, out, half_out = x[0].copy(), x.copy(), np.empty_like(x), np.empty_like(half)
    codes, scales = jitnorm.rmsnorm_fp4quant(x, w)
    mx_scales = jitnorm.rmsnorm_fp4quant(x, w, block_size=32)[1]
    out8, scale = np.empty(x.shape, ml_dtypes.float8_e4m3fn), np.ones(1, np.float32)
    better = replace(jitnorm.NVFP4, four_over_six=True)
    return {
        "rmsnorm": (4, lambda: jitnorm.rmsnorm(x, w, out=out)),
        "rmsnorm of float16": (4, lambda: jitnorm.rmsnorm(half, half[0], out=half_out)),
        "fused_add_rmsnorm": (8, lambda: jitnorm.fused_add_rmsnorm(out, residual, w)),
        "rmsnorm_quant, FP8": (3, lambda: jitnorm.rmsnorm_quant(out8, x, w, scale)),
        "rmsnorm_fp4quant, MXFP4": (
            2.5 + 1 / 32,
            lambda: jitnorm.rmsnorm_fp4quant(x, w, codes, mx_scales, block_size=32),
        ),
        "rmsnorm_fp4quant, NVFP4": (2.5 + 1 / 16, lambda: jitnorm.rmsnorm_fp4quant(x, w, codes, scales)),
        "NVFP4 alone": (2.5 + 1 / 16, lambda: jitnorm.quantize(x, spec=jitnorm.NVFP4)),
        "NVFP4, four over six": (2.5 + 1 / 16, lambda: jitnorm.quantize(x, spec=better)),
    }


def memcpy_bandwidth() -> float:
    source = np.ones(1 << 25, np.uint8)
    target = np.empty_like(source)
    return 2 * source.nbytes / best(lambda: np.copyto(target, source))


def main(shapes: list[str]) -> None:
    memcpy = memcpy_bandwidth()
    threads = int(os.environ.get("JITNORM_CPU_THREADS") or len(os.sched_getaffinity(0)))
    print(f"memcpy of 32 MiB, one core: {memcpy / 1e9:.1f} GB/s; figures for each of {threads} threads")
    for shape in shapes:
        rows, hidden_size = map(int, shape.split("x"))
        for name, (size, call) in ops(rows, hidden_size).items():
            seconds = best(call)
            bandwidth = size * rows * hidden_size / seconds / threads
            print(f"{shape:12} {name:26} {seconds * 1e3:8.2f} ms {bandwidth / 1e9:6.2f} GB/s {bandwidth / memcpy:6.1%}")


if __name__ == "__main__":
    main(sys.argv[1:] or ["4096x4096"])
