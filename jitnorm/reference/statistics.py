"""The sums over a row, along one fixed tree that depends on the row length alone, and the largest magnitude.

A chunk of ``CHUNK`` elements is accumulated in order, from zero; 32 chunks form a group, combined by a
butterfly; the groups, filled up to a power of two, are combined by a butterfly again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jitnorm.reference.checks import as_float32, as_rows
from jitnorm.reference.float32 import canonical, fma

CHUNK: int = 16
"""Consecutive elements of a row that one accumulator takes in, in order."""

_GROUP = 32
_Accumulate = Callable[..., NDArray[np.float32]]


@np.errstate(all="ignore")
def sum_of_squares(h: NDArray[Any]) -> NDArray[np.float32]:
    """Sum the squares of each row along the tree, accumulated by fused multiply-adds.

    Args:
        h: (M, H) float32; float16, bfloat16 and E4M3 are widened. H is at least 1.

    Returns:
        (M,) float32.

    Raises:
        TypeError: h has another dtype.
        ValueError: h is not 2-D or its rows are empty.

    Example:
        >>> sum_of_squares(np.array([[3, 4]], np.float32)).tolist()
        [25.0]
    """
    return _tree_sum(lambda accumulator, v: fma(v, v, accumulator), as_rows(h, "h"))


@np.errstate(all="ignore")
def sum_of_squares_of(streams: NDArray[Any]) -> NDArray[np.float32]:
    """Sum the squares of all elements of each token along the tree of a row; chunks take one stream after another.

    Args:
        streams: (M, n, H) float32; float16, bfloat16 and E4M3 are widened. H is at least 1.

    Returns:
        (M,) float32.

    Raises:
        TypeError: streams has another dtype.
        ValueError: streams is not 3-D.
    """
    x = as_float32(streams, "streams", ndim=3)
    chunks = np.moveaxis(_chunks(x.transpose(1, 0, 2)), 0, -2)
    longer = chunks.reshape(1, *chunks.shape[:-2], -1)
    return _sum_of_chunks(lambda accumulator, v: fma(v, v, accumulator), longer)


@np.errstate(all="ignore")
def sum_of_products(g: NDArray[Any], h: NDArray[Any]) -> NDArray[np.float32]:
    """Sum the products of two tensors' elements in each row along the tree, accumulated by fused multiply-adds.

    Args:
        g: (M, H) float32; float16, bfloat16 and E4M3 are widened. H is at least 1.
        h: like g.

    Returns:
        (M,) float32.

    Raises:
        TypeError: g or h has another dtype.
        ValueError: g or h is not 2-D or its rows are empty.
    """
    return _tree_sum(lambda accumulator, u, v: fma(u, v, accumulator), as_rows(g, "g"), as_rows(h, "h"))


@np.errstate(all="ignore")
def row_sum(h: NDArray[Any]) -> NDArray[np.float32]:
    """Sum each row along the tree, accumulated by additions.

    Args:
        h: (M, H) float32; float16, bfloat16 and E4M3 are widened. H is at least 1.

    Returns:
        (M,) float32.

    Raises:
        TypeError: h has another dtype.
        ValueError: h is not 2-D or its rows are empty.

    Example:
        >>> row_sum(np.array([[3, 4]], np.float32)).tolist()
        [7.0]
    """
    return _tree_sum(lambda accumulator, v: accumulator + v, as_rows(h, "h"))


def amax_f32(y: NDArray[Any]) -> NDArray[np.float32]:
    """Return the largest magnitude of a tensor.

    Args:
        y: float32 (float16, bfloat16 and E4M3 are widened), any shape.

    Returns:
        (1,) float32: NaN if y holds a NaN, 0 if it holds nothing.

    Raises:
        TypeError: y has another dtype.

    Example:
        >>> amax_f32(np.array([[3, -4]], np.float16)).tolist()
        [4.0]
    """
    magnitudes = np.abs(as_float32(y, "y")).ravel()
    return canonical(magnitudes.max(initial=0, keepdims=True))


def _tree_sum(accumulate: _Accumulate, *terms: NDArray[np.float32]) -> NDArray[np.float32]:
    return _sum_of_chunks(accumulate, _chunks(np.stack(terms)))


def _chunks(terms: NDArray[np.float32]) -> NDArray[np.float32]:
    """Terms of rows, (N, M, H), by groups and chunks: (N, M, groups, chunks of a group, elements of a chunk)."""
    count, rows, length = terms.shape
    groups = -(-length // (CHUNK * _GROUP))
    # No partial sum is -0, as each begins at +0, so adding a zero changes nothing: zeros stand for whatever
    # is missing.
    padded = np.zeros((count, rows, groups * _GROUP * CHUNK), np.float32)
    padded[:, :, :length] = terms
    return padded.reshape(count, rows, groups, _GROUP, CHUNK)


def _sum_of_chunks(accumulate: _Accumulate, chunks: NDArray[np.float32]) -> NDArray[np.float32]:
    _, rows, groups, _, length = chunks.shape
    accumulator = np.zeros((rows, groups, _GROUP), np.float32)
    for i in range(length):
        accumulator = accumulate(accumulator, *chunks[..., i])
    group_sums = np.zeros((rows, 1 << (groups - 1).bit_length()), np.float32)
    group_sums[:, :groups] = _butterfly_sum(accumulator)
    return canonical(_butterfly_sum(group_sums))


def _butterfly_sum(lanes: NDArray[np.float32]) -> NDArray[np.float32]:
    """Reduce the last axis, a power of two wide, by v[i] + v[i ^ k] for k = width / 2 down to 1."""
    k = lanes.shape[-1] // 2
    while k:
        # Addition commutes, so lanes i and i ^ k hold the same sum and the lower half is enough.
        lanes = lanes[..., :k] + lanes[..., k:]
        k //= 2
    total: NDArray[np.float32] = lanes[..., 0]
    return total
