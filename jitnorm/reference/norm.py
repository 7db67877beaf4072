"""RMSNorm and LayerNorm in float32, and the residual stream that RMSNorm stores."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from jitnorm.reference.checks import BFLOAT16, E4M3, FLOAT16, FLOAT32, as_float32, require_shape
from jitnorm.reference.elements import Rounding, round_to
from jitnorm.reference.float32 import ONE, canonical
from jitnorm.reference.statistics import row_sum, sum_of_squares


@np.errstate(all="ignore")
def rmsnorm_f32(
    x: NDArray[Any],
    weight: NDArray[Any] | None,
    eps: float = 1e-6,
    *,
    residual: NDArray[Any] | None = None,
    weight_bias: float = 0.0,
    bias: NDArray[Any] | None = None,
    rounding: Rounding = "once",
    dtype: DTypeLike | None = None,
) -> NDArray[np.float32]:
    """Normalize the rows of ``x + residual`` by their root mean square and apply the weight.

    With h = x + residual, unrounded: ``y = (h * rstd) * (weight + weight_bias) + bias``, where
    ``rstd = 1 / sqrt(sum_of_squares(h) / H + eps)``, see :func:`inv_rms_f32`. Further roundings are optional.

    Args:
        x: (M, H) float16, bfloat16, float32 or E4M3 (ml_dtypes.float8_e4m3fn).
        weight: (H,) in the dtype of x, or float32; with an x in E4M3, float16, bfloat16 or float32. None for no weight.
        eps: Added to the mean square, rounded to float32.
        residual: (M, H) float16, bfloat16 or float32, added to x; None adds nothing.
        weight_bias: Added to the weight, rounded to float32. Zero means that no addition takes place, so a
            weight of -0 keeps its sign.
        bias: (H,) in the dtype of weight, added to the product; None adds nothing, so a y of -0 keeps its sign.
        rounding: What is rounded to `dtype`: nothing ("once"), y ("output"), or y and each step before it ("hf"): h
            and, unless there is a weight_bias, ``h * rstd`` and its product with the weight; or these, but not h
            ("vllm").
        dtype: float16, bfloat16 or float32; None for that of x.

    Returns:
        y, (M, H) float32, by default not rounded to the dtype of x.

    Raises:
        TypeError: An array has a dtype that is not listed above.
        ValueError: An array has a shape that is not listed above, or there is a weight_bias or bias without a weight.

    Example:
        >>> x, weight = np.array([[3, 4]], np.float32), np.array([1, 2], np.float32)
        >>> rmsnorm_f32(x, weight, eps=0.0).astype(float).round(4).tolist()
        [[0.8485, 2.2627]]
    """

    def rounded(values: NDArray[np.float32], *, is_needed: bool) -> NDArray[np.float32]:
        return round_to(values, dtype or x.dtype).astype(np.float32) if is_needed else values

    rounds_steps = rounding in ("hf", "vllm") and np.float32(weight_bias) == 0
    h = as_float32(x, "x", ndim=2)
    if residual is not None:
        h = rounded(_add(h, residual), is_needed=rounding == "hf")
    y = rounded(h * inv_rms_f32(h, eps)[:, None], is_needed=rounds_steps)
    if weight is None:
        if weight_bias or bias is not None:
            raise ValueError("weight is None; without one, weight_bias and bias are not allowed")
        return canonical(rounded(y, is_needed=rounding != "once"))
    y = y * _factor(x, weight, weight_bias)
    if bias is not None:
        if bias.dtype != weight.dtype:
            raise TypeError(f"bias is {bias.dtype}; with a weight of {weight.dtype}, use the same")
        require_shape(bias, h.shape[1:], "bias")
        y = rounded(y, is_needed=rounds_steps) + as_float32(bias, "bias")
    return canonical(rounded(y, is_needed=rounding != "once"))


def _factor(x: NDArray[Any], weight: NDArray[Any], weight_bias: float) -> NDArray[np.float32]:
    dtypes = (FLOAT16, BFLOAT16, FLOAT32) if x.dtype == E4M3 else (x.dtype, FLOAT32)
    if weight.dtype not in dtypes:
        allowed = " or ".join(dict.fromkeys(map(str, dtypes)))
        raise TypeError(f"weight is {weight.dtype}; with an x of {x.dtype}, use {allowed}")
    require_shape(weight, x.shape[1:], "weight")
    factor = as_float32(weight, "weight")
    return factor if np.float32(weight_bias) == 0 else factor + np.float32(weight_bias)


@np.errstate(all="ignore")
def inv_rms_f32(h: NDArray[Any], eps: float = 1e-6) -> NDArray[np.float32]:
    """Return the factor by which RMSNorm multiplies a row: ``1 / sqrt(sum_of_squares(h) / H + eps)``.

    Args:
        h: (M, H) float32 (float16, bfloat16 and E4M3 are widened). H is at least 1.
        eps: Added to the mean square, rounded to float32.

    Returns:
        (M,) float32.

    Raises:
        TypeError: h has another dtype.
        ValueError: h is not 2-D or its rows are empty.

    Example:
        >>> inv_rms_f32(np.array([[2, 2]], np.float32), eps=0.0).tolist()
        [0.5]
    """
    mean_square = sum_of_squares(h) / np.float32(h.shape[1])
    return canonical(ONE / np.sqrt(mean_square + np.float32(eps)))


@np.errstate(all="ignore")
def layernorm_f32(
    x: NDArray[Any], gamma: NDArray[np.float32] | None, beta: NDArray[np.float32] | None, eps: float = 1e-6
) -> NDArray[np.float32]:
    """Normalize the rows of x by their mean and variance and apply gamma and beta.

    With ``mean = row_sum(x) / H`` and ``d = x - mean``: ``y = (d * rstd) * gamma + beta``, where
    ``rstd = 1 / sqrt(sum_of_squares(d) / H + eps)``.

    Args:
        x: (M, H) float16, bfloat16, float32 or E4M3.
        gamma: (H,) float32; None for no weight.
        beta: (H,) float32; None, without gamma, adds nothing.
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
    mean, rstd = layernorm_statistics_f32(h, eps)
    y = (h - mean[:, None]) * rstd[:, None]
    if gamma is None and beta is None:
        return canonical(y)
    if gamma is None or beta is None:
        raise ValueError("one of gamma and beta is None; use both or neither")
    for parameter, name in ((gamma, "gamma"), (beta, "beta")):
        if parameter.dtype != FLOAT32:
            raise TypeError(f"{name} is {parameter.dtype}; use float32")
        require_shape(parameter, h.shape[1:], name)
    return canonical(y * gamma + beta)


@np.errstate(all="ignore")
def layernorm_statistics_f32(x: NDArray[Any], eps: float = 1e-6) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the mean that :func:`layernorm_f32` subtracts from a row, and the factor of the difference.

    Args:
        x: (M, H) float16, bfloat16, float32 or E4M3. H is at least 1.
        eps: Added to the variance, rounded to float32.

    Returns:
        mean and rstd, (M,) float32 each.

    Raises:
        TypeError: x has another dtype.
        ValueError: x is not 2-D or its rows are empty.

    Example:
        >>> [each.tolist() for each in layernorm_statistics_f32(np.array([[1, 5]], np.float32), eps=0.0)]
        [[3.0], [0.5]]
    """
    h = as_float32(x, "x", ndim=2)
    mean = canonical(row_sum(h) / np.float32(h.shape[1]))
    return mean, inv_rms_f32(h - mean[:, None], eps)


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

    Example:
        >>> stored_residual(np.array([[2048]], np.float16), np.array([[1]], np.float16)).tolist()
        [[2048.0]]
    """
    return round_to(_add(as_float32(x, "x", ndim=2), residual), x.dtype)


def _add(x: NDArray[np.float32], residual: NDArray[Any]) -> NDArray[np.float32]:
    require_shape(residual, x.shape, "residual")
    total: NDArray[np.float32] = x + as_float32(residual, "residual")
    return total
