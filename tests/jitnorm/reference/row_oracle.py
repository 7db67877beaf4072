"""The tree of the row statistics, followed without array operations."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from float32_oracle import F32, exact_fma

Accumulate = Callable[[np.float32, np.float32], np.float32]


def scalar_butterfly(lanes: list[np.float32]) -> np.float32:
    k = len(lanes) // 2
    while k:
        lanes = [lanes[i] + lanes[i ^ k] for i in range(len(lanes))]
        k //= 2
    assert all(lane == lanes[0] or (np.isnan(lane) and np.isnan(lanes[0])) for lane in lanes)
    return lanes[0]


def scalar_tree(row: F32, accumulate: Accumulate, chunk: int = 16) -> np.float32:
    chunk_sums = []
    for start in range(0, len(row), chunk):
        accumulator = np.float32(0)
        for h in row[start : start + chunk]:
            accumulator = accumulate(accumulator, h)
        chunk_sums.append(accumulator)
    group_sums = []
    for start in range(0, len(chunk_sums), 32):
        group = chunk_sums[start : start + 32]
        group_sums.append(scalar_butterfly(group + [np.float32(0)] * (32 - len(group))))
    width = 1
    while width < len(group_sums):
        width *= 2
    return scalar_butterfly(group_sums + [np.float32(0)] * (width - len(group_sums)))


def add_square(accumulator: np.float32, h: np.float32) -> np.float32:
    return exact_fma(h, h, accumulator)


def add(accumulator: np.float32, h: np.float32) -> np.float32:
    total: np.float32 = accumulator + h
    return total
