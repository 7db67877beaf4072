"""SGLang's kernels of RMSNorm of heads."""

from __future__ import annotations

import torch

import jitnorm


def can_use_fused_inplace_qknorm(head_dim: int, dtype: torch.dtype) -> bool:
    """Whether `fused_inplace_qknorm` has heads of that size: it has all that are not empty."""
    return head_dim > 0 and dtype in (torch.float16, torch.bfloat16, torch.float32)


def fused_inplace_qknorm(
    q: torch.Tensor,
    k: torch.Tensor,
    q_weight: torch.Tensor,
    k_weight: torch.Tensor,
    eps: float = 1e-6,
    *,
    head_dim: int = 0,
) -> None:
    """RMSNorm of the heads of queries and keys (tokens, heads, head_dim), in place."""
    if head_dim not in (0, q.shape[-1]):
        raise ValueError(f"head_dim: is {head_dim}, but the heads of q have {q.shape[-1]}; pass that, or 0")
    jitnorm.qk_rmsnorm(q, k, q_weight, k_weight, eps, q, k)
