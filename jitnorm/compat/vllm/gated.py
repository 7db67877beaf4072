"""The gated norms of vLLM's Mamba 2 and Gated DeltaNet layers."""

from __future__ import annotations

import torch

import jitnorm

# vLLM's names of activations.
_ACTIVATIONS = {"swish": "silu"}


def rms_norm_gated(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    z: torch.Tensor | None = None,
    eps: float = 1e-6,
    group_size: int | None = None,
    norm_before_gate: bool = True,
    activation: str = "swish",
) -> torch.Tensor:
    """RMSNorm times the activation of the gates `z`, or RMSNorm of that product; without gates, plain RMSNorm."""
    if z is None:
        if group_size not in (None, x.shape[-1]):
            raise ValueError(f"group_size: is {group_size}, but z is None; pass None, or reshape x to rows of groups")
        if bias is None:
            return jitnorm.rmsnorm(x, weight, eps)
        return jitnorm.rmsnorm_bias(x, weight, bias, eps)
    return jitnorm.rmsnorm_gated(
        x, z, weight, eps, bias=bias, activation=_ACTIVATIONS.get(activation, activation),
        norm_before_gate=norm_before_gate, group_size=group_size,
    )  # fmt: skip


def fla_rms_norm_gated(
    x: torch.Tensor,
    z: torch.Tensor | None,
    weight: torch.Tensor,
    eps: float,
    group_size: int | None,
    norm_before_gate: bool,
    activation: str,
) -> torch.Tensor:
    """`rms_norm_gated` without a bias, with arguments in the order of ``torch.ops.vllm.fla_rms_norm_gated``."""
    return rms_norm_gated(x, weight, None, z, eps, group_size, norm_before_gate, activation)
