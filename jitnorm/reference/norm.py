"""RMSNorm and LayerNorm in float32, and the residual stream that RMSNorm stores."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jitnorm.reference.checks import FLOAT32, as_float32, require_shape
from jitnorm.reference.elements import round_to
from jitnorm.reference.float32 import ONE, canonical
from jitnorm.reference.statistics import row_sum, sum_of_squares


@np.errstate(all="ignore")
def rmsnorm_f32(
    x: NDArray[Any],
    weight: NDArray[Any],
    eps: float = 1e-6,
    *,
    residual: NDArray[Any] | None = None,
    weight_bias: float = 0.0,
) -> NDArray[np.float32]:
    """Normalize the rows of ``x + residual`` by their root mean square and apply the weight.

    With h = x + residual, unrounded: ``y = (h * rstd) * (weight + weight_bias)``, where
    ``rstd = 1 / sqrt(sum_of_squares(h) / H + eps)``.

    Args:
        x: (M, H) float16, bfloat16 or float32.
        weight: (H,) in the dtype of x, or float32.
        eps: Added to the mean square, rounded to float32.
        residual: (M, H) float16, bfloat16 or float32, added to x; None adds nothing.
        weight_bias: Added to the weight, rounded to float32. Zero means that no addition takes place, so a
            weight of -0 keeps its sign.

    Returns:
        y, (M, H) float32, not rounded to the dtype of x.

    Raises:
        TypeError: An array has a dtype that is not listed above.
        ValueError: An array has a shape that is not listed above.
    """
    h = as_float32(x, "x", ndim=2)
    if residual is not None:
        h = _add(h, residual)
    if weight.dtype not in (x.dtype, FLOAT32):
        raise TypeError(f"weight is {weight.dtype}; use the dtype of x, {x.dtype}, or float32")
    require_shape(weight, h.shape[1:], "weight")
    factor = as_float32(weight, "weight")
    if np.float32(weight_bias) != 0:
        factor = factor + np.float32(weight_bias)
    return canonical((h * _reciprocal_root_mean_square(h, eps)) * factor)


@np.errstate(all="ignore")
def layernorm_f32(
    x: NDArray[Any], gamma: NDArray[np.float32], beta: NDArray[np.float32], eps: float = 1e-6
) -> NDArray[np.float32]:
    """Normalize the rows of x by their mean and variance and apply gamma and beta.

    With ``mean = row_sum(x) / H`` and ``d = x - mean``: ``y = (d * rstd) * gamma + beta``, where
    ``rstd = 1 / sqrt(sum_of_squares(d) / H + eps)``.

    Args:
        x: (M, H) float16, bfloat16 or float32.
        gamma: (H,) float32.
        beta: (H,) float32.
        eps: Added to the variance, rounded to float32.

    Returns:
        y, (M, H) float32, not rounded to the dtype of x.

    Raises:
        TypeError: An array has a dtype that is not listed above.
        ValueError: An array has a shape that is not listed above.

    Example:
        >>> gamma, beta = np.array([[1, 4], [0, 0.5]], np.float32)
        >>> layernorm_f32(np.array([[1, 3]], np.float32), gamma, beta, eps=0.0).tolist()
        [[-1.0, 4.5]]
    """
    h = as_float32(x, "x", ndim=2)
    for parameter, name in ((gamma, "gamma"), (beta, "beta")):
        if parameter.dtype != FLOAT32:
            raise TypeError(f"{name} is {parameter.dtype}; use float32")
        require_shape(parameter, h.shape[1:], name)
    mean = row_sum(h) / np.float32(h.shape[1])
    d = h - mean[:, None]
    return canonical((d * _reciprocal_root_mean_square(d, eps)) * gamma + beta)


@np.errstate(all="ignore")
def stored_residual(x: NDArray[Any], residual: NDArray[Any]) -> NDArray[Any]:
    """Add the residual to x in float32 and round the sum to the dtype of x.

    RMSNorm stores this sum for the next layer, but normalizes the one before the rounding.

    Args:
        x: (M, H) float16, bfloat16 or float32.
        residual: (M, H) float16, bfloat16 or float32.

    Returns:
        (M, H) in the dtype of x; NaN is 0x7FFF in 16 bits and 0x7FFFFFFF in 32.

    Raises:
        TypeError: An array has a dtype that is not listed above.
        ValueError: An array has a shape that is not listed above.
    """
    return round_to(_add(as_float32(x, "x", ndim=2), residual), x.dtype)


def _add(x: NDArray[np.float32], residual: NDArray[Any]) -> NDArray[np.float32]:
    require_shape(residual, x.shape, "residual")
    total: NDArray[np.float32] = x + as_float32(residual, "residual")
    return total


def _reciprocal_root_mean_square(h: NDArray[np.float32], eps: float) -> NDArray[np.float32]:
    """Return ``1 / sqrt(sum_of_squares(h) / H + eps)`` as a column, (M, 1)."""
    mean_square = sum_of_squares(h) / np.float32(h.shape[1])
    rstd: NDArray[np.float32] = ONE / np.sqrt(mean_square + np.float32(eps))
    return rstd[:, None]
