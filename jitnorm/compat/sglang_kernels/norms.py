"""SGLang's kernels of RMSNorm of rows, with one weight or several."""

from __future__ import annotations

import torch

import jitnorm


def rmsnorm(input: torch.Tensor, weight: torch.Tensor, out: torch.Tensor | None = None, eps: float = 1e-6) -> None:
    """RMSNorm into `out`; for None, in place."""
    jitnorm.rmsnorm(input, weight, eps, input if out is None else out)


def rmsnorm_hf(
    input: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6, out: torch.Tensor | None = None
) -> torch.Tensor:
    """RMSNorm, rounded before the weight, as in Transformers."""
    return jitnorm.rmsnorm(input, weight, eps, out, rounding="hf")


def fused_add_rmsnorm(
    input: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    eps: float = 1e-6,
    *,
    cast_x_before_out_mul: bool = False,
) -> None:
    """The residual becomes the sum, and the input its RMSNorm, rounded before the weight if asked for."""
    jitnorm.fused_add_rmsnorm(input, residual, weight, eps, rounding="vllm" if cast_x_before_out_mul else "once")
