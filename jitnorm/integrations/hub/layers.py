"""Layers whose `forward` the package `kernels` gives to Transformers modules that request them by name."""

from __future__ import annotations

import torch

from jitnorm.ops.norm import gemma_rmsnorm, rmsnorm

__all__ = ["RMSNorm", "RMSNormZeroCentered"]


class RMSNorm(torch.nn.Module):  # type: ignore[misc]
    """`jitnorm.rmsnorm`, rounded like Transformers' ``LlamaRMSNorm``."""

    can_torch_compile = True
    weight: torch.Tensor
    variance_epsilon: float

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Normalize the rows of a tensor of shape (..., hidden_size)."""
        return rmsnorm(hidden_states, self.weight, self.variance_epsilon, rounding="hf")


class RMSNormZeroCentered(torch.nn.Module):  # type: ignore[misc]
    """`jitnorm.gemma_rmsnorm`, for norms whose weight is centred at zero."""

    can_torch_compile = True
    weight: torch.Tensor
    eps: float

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalize the rows of a tensor of shape (..., hidden_size)."""
        return gemma_rmsnorm(x, self.weight, self.eps)
