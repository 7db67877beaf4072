"""The mixes of residual streams before and after a layer of manifold-constrained hyper-connections (mHC)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jitnorm.reference.activation import swish_constants
from jitnorm.reference.checks import as_float32, require_shape
from jitnorm.reference.finish import sigmoid_f32
from jitnorm.reference.float32 import ONE, canonical, fma
from jitnorm.reference.sigmoid import power_of_product
from jitnorm.reference.statistics import sum_of_squares_of


@np.errstate(all="ignore")
def mhc_mix_f32(streams: NDArray[Any], mix: NDArray[Any]) -> NDArray[np.float32]:
    """Mix the n residual streams of each token to one row, accumulated in order by fused multiply-adds.

    RMSNorm of the result is :func:`rmsnorm_f32` with a float32 weight, its statistic :func:`inv_rms_f32`.

    Args:
        streams: (M, n, H) float32 (float16, bfloat16 and E4M3 are widened).
        mix: (M, n) in any of these dtypes: the factor of each stream.

    Returns:
        (M, H) float32, not rounded to the dtype of the streams.

    Raises:
        TypeError: An array has another dtype.
        ValueError: An array has another shape.

    Example:
        >>> mhc_mix_f32(np.array([[[1, 2], [10, 20]]], np.float32), np.array([[3, 0.5]], np.float32)).tolist()
        [[8.0, 16.0]]
    """
    x = as_float32(streams, "streams", ndim=3)
    rows, count, length = x.shape
    require_shape(mix, (rows, count), "mix")
    factors = as_float32(mix, "mix")
    h = np.zeros((rows, length), np.float32)
    for i in range(count):
        h = fma(factors[:, i, None], x[:, i], h)
    return canonical(h)


@np.errstate(all="ignore")
def mhc_post_f32(
    x: NDArray[Any], streams: NDArray[Any], layer_mix: NDArray[Any], mix: NDArray[Any]
) -> NDArray[np.float32]:
    """Mix the n residual streams of each token after a layer, each starting from the layer's output.

    Args:
        x: (M, H), the output of the layer, float32 (float16, bfloat16 and E4M3 are widened).
        streams: (M, n, H), likewise.
        layer_mix: (M, n): the factor of `x` in each stream.
        mix: (M, n, n): from each stream to each.

    Returns:
        (M, n, H) float32, not rounded to the dtype of the streams.

    Raises:
        TypeError: An array has another dtype.
        ValueError: An array has another shape.

    Example:
        >>> x, streams = np.array([[1, 2]], np.float32), np.array([[[10, 20], [30, 40]]], np.float32)
        >>> mhc_post_f32(x, streams, np.array([[1, 2]], np.float32), np.float32([[[0, 1], [1, 0]]])).tolist()
        [[[31.0, 42.0], [12.0, 24.0]]]
    """
    given = as_float32(streams, "streams", ndim=3)
    rows, count, length = given.shape
    for name, array, shape in (("x", x, (rows, length)), ("layer_mix", layer_mix, (rows, count))):
        require_shape(array, shape, name)
    require_shape(mix, (rows, count, count), "mix")
    factors = as_float32(mix, "mix")
    mixed = as_float32(layer_mix, "layer_mix")[:, :, None] * as_float32(x, "x")[:, None, :]
    for i in range(count):
        mixed = fma(factors[:, i, :, None], given[:, i, None, :], mixed)
    return canonical(mixed)


@np.errstate(all="ignore")
def mhc_pre_f32(
    streams: NDArray[Any],
    projections: NDArray[np.float32],
    scale: NDArray[np.float32],
    base: NDArray[np.float32],
    squares: NDArray[np.float32] | None = None,
    count: int = 0,
    *,
    eps: float = 1e-6,
    pre_eps: float = 1e-6,
    sinkhorn_eps: float = 1e-6,
    post_factor: float = 1.0,
    rounds: int = 20,
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
    """Find the factors of the n residual streams of each token from projections of them, and mix the streams.

    Args:
        streams: (M, n, H) float32 (float16, bfloat16 and E4M3 are widened).
        projections: (S, M, n (2 + n)) float32, partial sums: n for the mix before the layer, n for its output, n by
            n for the mix after it.
        scale: (3,) float32, of each of these kinds.
        base: (n (2 + n),) float32.
        squares: (S, M) float32, partial sums of the squares of all elements of a token; None computes them.
        count: The number of squared elements; 0 for n H.
        eps: Added to the mean square, rounded to float32, as are the other numbers.
        pre_eps: Added to the factors of the mix before the layer.
        sinkhorn_eps: Added to the softmax of rows of the mix after it, and to each sum that it is divided by.
        post_factor: Multiplies the factors of the layer's output.
        rounds: How many times the mix after the layer is divided by its sums, 1 or more.

    Returns:
        (M, n), the factors of the layer's output; (M, n, n), the mix after it; (M, H), the mix before it, not
        rounded to the dtype of the streams. All float32.

    Raises:
        TypeError: An array has another dtype.
        ValueError: An array has another shape.

    Example:
        >>> streams, mixes = np.ones((1, 2, 4), np.float32), np.zeros((1, 1, 8), np.float32)
        >>> post, comb, mix = mhc_pre_f32(streams, mixes, np.ones(3, np.float32), np.zeros(8, np.float32), pre_eps=0.0)
        >>> post.tolist(), mix.tolist()
        ([[0.5, 0.5]], [[1.0, 1.0, 1.0, 1.0]])
    """
    x = as_float32(streams, "streams", ndim=3)
    rows, n, length = x.shape
    parts = as_float32(projections, "projections", ndim=3)
    require_shape(parts, (len(parts), rows, n * (2 + n)), "projections")
    total = sum_of_squares_of(x) if squares is None else _added(as_float32(squares, "squares", ndim=2))
    rstd = ONE / np.sqrt(total / np.float32(count or n * length) + np.float32(eps))
    scales = np.repeat(as_float32(scale, "scale"), (n, n, n * n))
    logits = fma(_added(parts) * rstd[:, None], scales, as_float32(base, "base"))
    before, of_layer, behind = np.split(logits, (n, 2 * n), axis=1)
    post = sigmoid_f32(of_layer) * np.float32(post_factor)
    comb = _doubly_stochastic(behind.reshape(rows, n, n), np.array(sinkhorn_eps, np.float32), rounds)
    return canonical(post), canonical(comb), mhc_mix_f32(x, sigmoid_f32(before) + np.float32(pre_eps))


def _doubly_stochastic(logits: NDArray[np.float32], eps: NDArray[np.float32], rounds: int) -> NDArray[np.float32]:
    """Divide the exponentials by the sums of rows and of columns in turn (Sinkhorn and Knopp)."""
    most = logits.max(axis=2, keepdims=True)
    factor, low, bound = swish_constants(1.0)
    powers = power_of_product(np.maximum(logits - most, -bound), factor, low)
    comb = fma(powers, ONE / _sums(powers, 2), eps)
    for i in range(rounds):
        if i:
            comb = comb * (ONE / (_sums(comb, 2) + eps))
        comb = comb * (ONE / (_sums(comb, 1) + eps))
    return comb


def _sums(values: NDArray[np.float32], axis: int) -> NDArray[np.float32]:
    """Sums, in order, along an axis of each token's matrix; the axis keeps the size 1."""
    return np.expand_dims(_added(np.moveaxis(values, axis, 0)), axis)


def _added(parts: NDArray[np.float32]) -> NDArray[np.float32]:
    total: NDArray[np.float32] = parts[0]
    for part in parts[1:]:
        total = total + part
    return total
