"""SGLang's kernels of sums of norms and residuals, as between the layers of Gemma and Grok."""

from __future__ import annotations

import torch

import jitnorm


def fused_dual_residual_rmsnorm(
    x: torch.Tensor, residual: torch.Tensor, weight1: torch.Tensor, weight2: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """The RMSNorm of a sum, and the sum, of the residual and the RMSNorm of `x`; the sum is normalized unrounded."""
    return jitnorm.sandwich_rmsnorm(x, residual, weight1, weight2, eps)


def gemma_rmsnorm_residual_scalar(
    x: torch.Tensor, weight: torch.Tensor, residual: torch.Tensor, scalar: torch.Tensor, eps: float = 1e-6
) -> torch.Tensor:
    """The sum of the residual and the RMSNorm of `x`, which is rounded before torch multiplies it by the scalar.

    The sum's own norm, which `jitnorm.sandwich_rmsnorm` also computes, is not used.
    """
    return _sum(x, residual, weight, eps).mul_(scalar)


def gemma_dual_rmsnorm_residual_scalar(
    x1: torch.Tensor,
    weight1: torch.Tensor,
    x2: torch.Tensor,
    weight2: torch.Tensor,
    weight3: torch.Tensor,
    residual: torch.Tensor,
    scalar: torch.Tensor,
    eps1: float = 1e-6,
    eps2: float = 1e-6,
    eps3: float = 1e-6,
) -> torch.Tensor:
    """`gemma_rmsnorm_residual_scalar` of the sum of two RMSNorms; that sum, too, is rounded, and so is the second norm.

    It takes three launches before torch multiplies.
    """
    both = _sum(x1, jitnorm.rmsnorm(x2, weight2, eps2), weight1, eps1)
    return gemma_rmsnorm_residual_scalar(both, weight3, residual, scalar, eps3)


def _sum(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return jitnorm.sandwich_rmsnorm(x, residual, weight, weight, eps)[1]
