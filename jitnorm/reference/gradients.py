"""The gradients of RMSNorm and LayerNorm in float32, and those of their parameters, summed over rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jitnorm.reference.checks import FLOAT32, as_float32, require_shape
from jitnorm.reference.float32 import canonical, fma
from jitnorm.reference.norm import inv_rms_f32
from jitnorm.reference.statistics import CHUNK, row_sum, sum_of_products

_ACCUMULATORS = 256

Gradients = tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]


@np.errstate(all="ignore")
def rmsnorm_backward_f32(
    grad: NDArray[Any],
    h: NDArray[Any],
    weight: NDArray[Any] | None,
    eps: float = 1e-6,
    *,
    weight_bias: float = 0.0,
    residual_grad: NDArray[Any] | None = None,
) -> Gradients:
    """Return the gradients of RMSNorm with respect to its input, its weight and its bias, if any.

    With ``n = h * rstd`` and ``g = grad * (weight + weight_bias)``, or ``grad`` without a weight, the gradient of the
    input is ``rstd * (g - n * mean(g * n)) + residual_grad``, and that of the weight is the sum over the rows of
    ``grad * n``.

    Args:
        grad: (M, H) float16, bfloat16 or float32, the gradient of the norm.
        h: (M, H), what was normalized.
        weight: (H,), as in :func:`rmsnorm_f32`.
        eps: Added to the mean square, rounded to float32.
        weight_bias: Added to the weight.
        residual_grad: (M, H), added to the gradient of the input; None adds nothing.

    Returns:
        (M, H), (H,) and (H,) float32, not rounded to the dtypes of the input and the parameters.

    Raises:
        TypeError: An array has a dtype that is not allowed.
        ValueError: An array has a shape that is not allowed.

    Example:
        >>> x, grad = np.array([[3, 4]], np.float32), np.array([[1, 0]], np.float32)
        >>> rmsnorm_backward_f32(grad, x, np.ones(2, np.float32), eps=0.0)[2].tolist()
        [1.0, 0.0]
    """
    values = as_float32(h, "h", ndim=2)
    factor = None if weight is None else as_float32(weight, "weight")
    if factor is not None and np.float32(weight_bias) != 0:
        factor = factor + np.float32(weight_bias)
    return _gradients(grad, values, inv_rms_f32(values, eps), factor, residual_grad, is_centered=False)


@np.errstate(all="ignore")
def layernorm_backward_f32(
    grad: NDArray[Any],
    x: NDArray[Any],
    mean: NDArray[np.float32],
    rstd: NDArray[np.float32],
    gamma: NDArray[np.float32] | None,
    *,
    residual_grad: NDArray[Any] | None = None,
) -> Gradients:
    """Return the gradients of LayerNorm with respect to its input, gamma and beta.

    With ``d = x - mean``, ``n = d * rstd`` and ``g = grad * gamma``, the gradient of the input is
    ``rstd * ((g - mean(g)) - n * mean(g * n)) + residual_grad``.

    Args:
        grad: (M, H) float16, bfloat16 or float32, the gradient of the norm.
        x: (M, H), what was normalized.
        mean: (M,) float32, of the rows, as :func:`layernorm_statistics_f32` returns it.
        rstd: (M,) float32, the reciprocals of their standard deviations, likewise.
        gamma: (H,) float32, or None.
        residual_grad: (M, H), added to the gradient of the input; None adds nothing.

    Returns:
        (M, H), (H,) and (H,) float32, not rounded to the dtypes of the input and the parameters.

    Raises:
        TypeError: An array has a dtype that is not allowed.
        ValueError: An array has a shape that is not allowed.

    Example:
        >>> x, grad = np.array([[1, 5]], np.float32), np.array([[1, 0]], np.float32)
        >>> mean, rstd = np.array([3], np.float32), np.array([0.5], np.float32)
        >>> layernorm_backward_f32(grad, x, mean, rstd, np.ones(2, np.float32))[1].tolist()
        [-1.0, 0.0]
    """
    values = as_float32(x, "x", ndim=2)
    for statistic, name in ((mean, "mean"), (rstd, "rstd")):
        require_shape(statistic, values.shape[:1], name)
    return _gradients(grad, values - mean[:, None], rstd, gamma, residual_grad, is_centered=True)


def _gradients(
    grad: NDArray[Any],
    d: NDArray[np.float32],
    rstd: NDArray[np.float32],
    factor: NDArray[np.float32] | None,
    residual_grad: NDArray[Any] | None,
    *,
    is_centered: bool,
) -> Gradients:
    require_shape(grad, d.shape, "grad")
    dy, size = as_float32(grad, "grad"), np.float32(d.shape[1])
    g, n = dy if factor is None else dy * factor, d * rstd[:, None]
    slope = sum_of_products(g, d)[:, None] * rstd[:, None] / size
    centered = g - (row_sum(g) / size)[:, None] if is_centered else g
    input_grad = rstd[:, None] * fma(-n, np.broadcast_to(slope, n.shape), centered)
    if residual_grad is not None:
        require_shape(residual_grad, d.shape, "residual_grad")
        input_grad = input_grad + as_float32(residual_grad, "residual_grad")
    return canonical(input_grad), _sum_of_segments(dy, n), _sum_of_segments(dy, None)


def _sum_of_segments(dy: NDArray[np.float32], n: NDArray[np.float32] | None) -> NDArray[np.float32]:
    """The sum over the rows of dy * n, or of dy."""
    rows, size = dy.shape
    places = rows_of_pack(size)
    segments = min(-(-rows // places), most_segments(size))
    sums = np.zeros((segments, places, size), np.float32)
    for row in range(rows):
        at = row // places % segments, row % places
        sums[at] = sums[at] + dy[row] if n is None else fma(dy[row], n[row], sums[at])
    return sum_rows_f32(_fold(sums.swapaxes(0, 1)))


def rows_of_pack(size: int) -> int:
    """The number of rows of that length with separate accumulators: as many as 256 lanes of 16 elements hold.

    Example:
        >>> [rows_of_pack(size) for size in (16, 128, 1024, 1025)]
        [256, 32, 4, 1]
    """
    chunks = -(-size // CHUNK)
    return 256 >> (chunks - 1).bit_length() if chunks <= 64 else 1


def most_segments(size: int) -> int:
    """The most segments that rows of that length are divided into.

    Example:
        >>> most_segments(4096), most_segments(4097)
        (256, 128)
    """
    return 256 if size <= 256 * CHUNK else 128


@np.errstate(all="ignore")
def sum_rows_f32(matrix: NDArray[np.float32]) -> NDArray[np.float32]:
    """Sum the rows of a matrix: each of 256 accumulators adds every 256th row in order, and they are folded.

    Args:
        matrix: (M, N) float32.

    Returns:
        (N,) float32.

    Raises:
        TypeError: matrix has another dtype.
        ValueError: matrix is not 2-D.

    Example:
        >>> sum_rows_f32(np.array([[1, 2], [3, 4]], np.float32)).tolist()
        [4.0, 6.0]
    """
    if matrix.dtype != FLOAT32 or matrix.ndim != 2:
        error = TypeError if matrix.dtype != FLOAT32 else ValueError
        raise error(f"matrix is {matrix.ndim}-D {matrix.dtype}; it must be 2-D float32")
    sums = np.zeros((_ACCUMULATORS, matrix.shape[1]), np.float32)
    for first in range(0, len(matrix), _ACCUMULATORS):
        rows = matrix[first : first + _ACCUMULATORS]
        sums[: len(rows)] += rows
    return canonical(_fold(sums))


def _fold(sums: NDArray[np.float32]) -> NDArray[np.float32]:
    """Reduce the first axis, a power of two long, by v[i] + v[i + k] for k = half of it down to 1."""
    while len(sums) > 1:
        half = len(sums) // 2
        sums = sums[:half] + sums[half:]
    total: NDArray[np.float32] = sums[0]
    return total
