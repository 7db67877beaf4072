"""FlashInfer's RMSNorm for training."""

from __future__ import annotations

import torch

import jitnorm


def cake_rmsnorm(
    x: torch.Tensor,
    w: torch.Tensor,
    eps: float = 1e-6,
    residual: torch.Tensor | None = None,
    deterministic: bool = True,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """RMSNorm of x, or of its unrounded sum with the residual, that autograd differentiates.

    Args:
        x: (tokens, hidden_size).
        w: the weight, (hidden_size,); its gradient is summed in float32, along the same tree on every target.
        eps: added to the mean of squares.
        residual: like `x`, or None.
        deterministic: changes nothing; the gradients always are.

    Returns:
        the norm, or with a residual the norm and the rounded sum.
    """
    if x.ndim != 2:
        raise ValueError(f"x: has {x.ndim} dimensions; expected (tokens, hidden_size)")
    return jitnorm.rmsnorm(x, w, eps) if residual is None else jitnorm.add_rmsnorm(x, residual, w, eps)
