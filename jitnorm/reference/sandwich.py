"""Sandwich norms: the RMSNorm of the sum of an RMSNorm and a residual."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jitnorm.reference.checks import as_float32
from jitnorm.reference.elements import Rounding, round_to
from jitnorm.reference.norm import rmsnorm_f32


@np.errstate(all="ignore")
def sandwich_rmsnorm_f32(
    x: NDArray[Any],
    residual: NDArray[Any],
    input_weight: NDArray[Any],
    weight: NDArray[Any],
    eps: float = 1e-6,
    *,
    weight_bias: float = 0.0,
    rounding: Rounding = "once",
) -> tuple[NDArray[np.float32], NDArray[Any]]:
    """Return the RMSNorm of ``rmsnorm(x) + residual``, and that sum.

    Args:
        x: (M, H) float16, bfloat16 or float32.
        residual: (M, H) in the dtype of x.
        input_weight: (H,) in the dtype of x, or float32; of the norm of x.
        weight: Like `input_weight`; of the norm of the sum.
        eps: As of :func:`rmsnorm_f32`, for both norms.
        weight_bias: As of :func:`rmsnorm_f32`, for both norms.
        rounding: What is rounded to the dtype of x: nothing ("once"), the norm of the sum ("output"), or both norms
            with this rounding, and, with "hf", the sum before it is normalized.

    Returns:
        The norm of the sum, (M, H) float32; the sum, (M, H) in the dtype of x.

    Raises:
        TypeError: An array has a dtype that is not listed above.
        ValueError: An array has a shape that is not listed above.

    Example:
        >>> x, residual, ones = np.float32([[3, 3]]), np.float32([[0, 6]]), np.ones(2, np.float32)
        >>> sandwich_rmsnorm_f32(x, residual, ones, ones, eps=0.0)[1].tolist()
        [[1.0, 7.0]]
    """
    options: dict[str, Any] = {"weight_bias": weight_bias, "dtype": x.dtype}
    of_input: Rounding = "once" if rounding == "output" else rounding
    total = rmsnorm_f32(x, input_weight, eps, rounding=of_input, **options) + as_float32(residual, "residual", ndim=2)
    stored = round_to(total, x.dtype)
    h = stored.astype(np.float32) if rounding == "hf" else total
    y = rmsnorm_f32(h, as_float32(weight, "weight"), eps, rounding=rounding, **options)
    return y, stored
