"""RMSNorm followed by an activation, or times gates."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jitnorm.reference.activation import activated_f32, swish_constants
from jitnorm.reference.checks import as_float32, require_shape
from jitnorm.reference.elements import Rounding, round_to
from jitnorm.reference.float32 import canonical
from jitnorm.reference.norm import rmsnorm_f32
from jitnorm.reference.sigmoid import F32, sigmoid_of_product


def activated_rmsnorm_f32(
    x: NDArray[Any], weight: NDArray[Any], activation: str, *, rounding: Rounding = "once", **norm: Any
) -> NDArray[np.float32]:
    """Return an activation of the RMSNorm of the rows of x, in float32.

    Args:
        x: As of :func:`rmsnorm_f32`.
        weight: As of :func:`rmsnorm_f32`.
        activation: As of :func:`activated_f32`.
        rounding: What is rounded to the dtype of x: nothing ("once"), the activation ("output"), or also the norm with
            this rounding ("hf", "vllm").
        norm: Further arguments of :func:`rmsnorm_f32`.

    Returns:
        (M, H) float32.

    Raises:
        TypeError: An array has a dtype that is not allowed.
        ValueError: An array has a shape that is not allowed, or there is no such activation.

    Example:
        >>> activated_rmsnorm_f32(np.array([[2, -2]], np.float32), np.ones(2, np.float32), "relu2", eps=0.0).tolist()
        [[1.0, 0.0]]
    """
    y = activated_f32(rmsnorm_f32(x, weight, rounding=_of_norm(rounding), **norm), activation)
    return _finished(y, x, rounding)


@np.errstate(all="ignore")
def gated_rmsnorm_f32(
    x: NDArray[Any],
    gate: NDArray[Any],
    weight: NDArray[Any],
    activation: str = "silu",
    *,
    norm_before_gate: bool = True,
    group_size: int | None = None,
    rounding: Rounding = "once",
    **norm: Any,
) -> NDArray[np.float32]:
    """Return ``rmsnorm(x) * activation(gate)`` or, without `norm_before_gate`, ``rmsnorm(x * activation(gate))``.

    Args:
        x: (M, H), as of :func:`rmsnorm_f32`.
        gate: (M, H) in the dtype of x.
        weight: (H,), as of :func:`rmsnorm_f32`.
        activation: "sigmoid", or as of :func:`activated_f32`.
        norm_before_gate: Whether the norm is multiplied, not x.
        group_size: Number of columns that are normalized together, a divisor of H; None for all.
        rounding: What is rounded to the dtype of x: nothing ("once"), the result ("output"), or also the norm with this
            rounding ("hf", "vllm"). The product of x and the activation never is.
        norm: `eps` and `bias` of :func:`rmsnorm_f32`.

    Returns:
        (M, H) float32.

    Raises:
        TypeError: An array has a dtype that is not allowed.
        ValueError: An array has a shape that is not allowed, or there is no such activation.

    Example:
        >>> x, gate = np.array([[2, -2]], np.float32), np.zeros((1, 2), np.float32)
        >>> gated_rmsnorm_f32(x, gate, np.ones(2, np.float32), "sigmoid", eps=0.0).tolist()
        [[0.5, -0.5]]
    """
    require_shape(gate, x.shape, "gate")
    factor = sigmoid_f32(gate) if activation == "sigmoid" else activated_f32(gate, activation)
    width = group_size or x.shape[1]
    bias = norm.pop("bias", None)
    h = x if norm_before_gate else as_float32(x, "x", ndim=2) * factor
    if not norm_before_gate:  # beside float32 values, parameters are float32
        weight, bias = as_float32(weight, "weight"), None if bias is None else as_float32(bias, "bias")
    parts = [
        rmsnorm_f32(
            h[:, at : at + width],
            weight[at : at + width],
            bias=None if bias is None else bias[at : at + width],
            rounding=_of_norm(rounding) if norm_before_gate else rounding,
            dtype=x.dtype,
            **norm,
        )
        for at in range(0, x.shape[1], width)
    ]
    y: F32 = np.concatenate(parts, axis=1)
    return _finished(canonical(y * factor), x, rounding) if norm_before_gate else y


@np.errstate(all="ignore")
def sigmoid_f32(x: NDArray[Any]) -> F32:
    """Return ``1 / (1 + exp(-x))``, of an x up to 125 ln 2 in magnitude, to which others are clamped; a NaN for a NaN.

    Arguments and errors are those of :func:`silu_f32`.

    Example:
        >>> sigmoid_f32(np.array([0, 1], np.float32)).tolist()
        [0.5, 0.7310585379600525]
    """
    wide = as_float32(x, "x")
    high, low, bound = swish_constants(1.0)
    bounded = np.nan_to_num(np.clip(wide, -bound, bound))
    return canonical(np.where(np.isnan(wide), wide, sigmoid_of_product(bounded, high, low)))


def _of_norm(rounding: Rounding) -> Rounding:
    """The rounding of the norm; "output" rounds only the final result."""
    return "once" if rounding == "output" else rounding


def _finished(y: NDArray[np.float32], x: NDArray[Any], rounding: Rounding) -> NDArray[np.float32]:
    return y if rounding == "once" else round_to(y, x.dtype).astype(np.float32)
