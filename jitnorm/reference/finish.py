"""RMSNorm followed by an activation."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jitnorm.reference.activation import activated_f32
from jitnorm.reference.elements import Rounding, round_to
from jitnorm.reference.norm import rmsnorm_f32


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


def _of_norm(rounding: Rounding) -> Rounding:
    """The rounding of the norm: "output" is of what follows it."""
    return "once" if rounding == "output" else rounding


def _finished(y: NDArray[np.float32], x: NDArray[Any], rounding: Rounding) -> NDArray[np.float32]:
    return y if rounding == "once" else round_to(y, x.dtype).astype(np.float32)
