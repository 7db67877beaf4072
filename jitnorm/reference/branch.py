"""Layer normalization of the sum of a residual and a gated branch, modulated as in diffusion transformers (DiT)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jitnorm.reference.checks import as_float32, require_shape
from jitnorm.reference.float32 import ONE, canonical, fma
from jitnorm.reference.norm import layernorm_f32

F32 = NDArray[np.float32]


@np.errstate(all="ignore")
def branch_sum_f32(
    x: NDArray[Any],
    residual: NDArray[Any] | None = None,
    gate: NDArray[Any] | None = None,
    gate_bias: NDArray[np.float32] | None = None,
    scale: float | None = None,
) -> F32:
    """Return ``x * ((gate + gate_bias) * scale) + residual``, the last two operations as one fused multiply-add.

    Args:
        x: (M, H) float16, bfloat16 or float32.
        residual: Like x; None adds nothing.
        gate: Like x; None multiplies by `scale` alone, if there is one.
        gate_bias: (H,) float32, added to the gate; None adds nothing.
        scale: Factor of the gate and its bias, or of x without a gate, rounded to float32; None for none.

    Returns:
        (M, H) float32.

    Raises:
        TypeError: An array has another dtype.
        ValueError: An array has another shape.

    Example:
        >>> x, gate = np.float32([[1, 2]]), np.float32([[10, 0]])
        >>> branch_sum_f32(x, 100 * x, gate, np.float32([0, 1])).tolist()
        [[110.0, 202.0]]
    """
    branch = as_float32(x, "x", ndim=2)
    number = None if scale is None else np.full_like(branch, scale)
    factor = _plus(gate, gate_bias, branch, "gate")
    if factor is None:
        factor = number
    elif number is not None:
        factor = factor * number
    stream = None if residual is None else as_float32(residual, "residual", ndim=2)
    if stream is not None:
        require_shape(stream, branch.shape, "residual")
        return canonical(branch + stream if factor is None else fma(branch, factor, stream))
    return canonical(branch if factor is None else branch * factor)


@np.errstate(all="ignore")
def adaptive_layernorm_f32(
    h: F32,
    scale: NDArray[Any],
    shift: NDArray[Any],
    eps: float = 1e-6,
    *,
    scale_bias: NDArray[np.float32] | None = None,
    shift_bias: NDArray[np.float32] | None = None,
) -> F32:
    """Return the layer normalization of h, times ``1 + (scale + scale_bias)``, plus ``shift + shift_bias``, by an fma.

    Args:
        h: (M, H) float32, such as :func:`branch_sum_f32` gives.
        scale: (M, H) float16, bfloat16 or float32.
        shift: Like scale.
        eps: As of :func:`layernorm_f32`.
        scale_bias: (H,) float32; None adds nothing.
        shift_bias: (H,) float32; None adds nothing.

    Returns:
        (M, H) float32.

    Raises:
        TypeError: An array has another dtype.
        ValueError: An array has another shape.

    Example:
        >>> h, ones = np.float32([[1, 3]]), np.ones((1, 2), np.float32)
        >>> adaptive_layernorm_f32(h, ones, 5 * ones, eps=0.0).tolist()
        [[3.0, 7.0]]
    """
    norm = layernorm_f32(h, None, None, eps)
    factor, offset = _plus(scale, scale_bias, norm, "scale"), _plus(shift, shift_bias, norm, "shift")
    assert factor is not None
    assert offset is not None
    return canonical(fma(norm, ONE + factor, offset))


def _plus(values: NDArray[Any] | None, bias: NDArray[np.float32] | None, like: F32, name: str) -> F32 | None:
    """Values of the shape of another array, plus a bias of each column."""
    if values is None:
        return None
    require_shape(values, like.shape, name)
    wide = as_float32(values, name)
    if bias is None:
        return wide
    require_shape(bias, like.shape[1:], f"{name}_bias")
    total: F32 = wide + as_float32(bias, f"{name}_bias")
    return total
