"""The mixes of residual streams before and behind a layer of manifold-constrained hyper-connections (mHC)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jitnorm.reference.checks import as_float32, require_shape
from jitnorm.reference.float32 import canonical, fma


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
    """Mix the n residual streams of each token behind a layer, from whose result each begins.

    Args:
        x: (M, H), what the layer gives, float32 (float16, bfloat16 and E4M3 are widened).
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
