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


def gemma_qkv_rmsnorm(
    q: torch.Tensor,
    k: torch.Tensor | None,
    v: torch.Tensor | None,
    q_weight: torch.Tensor,
    k_weight: torch.Tensor | None,
    num_q_heads: int,
    num_kv_heads: int,
    head_dim: int,
    eps: float = 1e-6,
) -> None:
    """RMSNorm of the heads of queries, keys and values, in place; that of values has no weight, and its own launch.

    Args:
        q: (tokens, num_q_heads * head_dim), such as a part of a packed tensor.
        k: likewise; without keys or values, only queries are normalized.
        v: likewise.
        q_weight: (head_dim,).
        k_weight: likewise.
        num_q_heads: how many heads queries have.
        num_kv_heads: how many heads keys have, and values.
        head_dim: elements of a head.
        eps: added to the mean of squares.

    Raises:
        ValueError: heads do not fill a tensor.
    """
    q = _heads("q", q, num_q_heads, head_dim)
    if k is None or v is None:
        jitnorm.rmsnorm(q, q_weight, eps, q)
        return
    k, v = _heads("k", k, num_kv_heads, head_dim), _heads("v", v, num_kv_heads, head_dim)
    if (v.dtype, v.shape) != (k.dtype, k.shape):  # before queries and keys are written
        raise ValueError(f"v: is {v.dtype} of shape {tuple(v.shape)}; expected {k.dtype}, {tuple(k.shape)}, like k")
    jitnorm.qk_rmsnorm(q, k, q_weight, k_weight, eps, q, k)
    jitnorm.rmsnorm(v, None, eps, v)


def rms_norm_gate(
    x: torch.Tensor,
    gate: torch.Tensor | None = None,
    weight: torch.Tensor | None = None,
    *,
    head_dim: int,
    eps: float = 0.0,
    has_norm: bool = True,
    out: torch.Tensor | None = None,
    config: int = -1,
) -> torch.Tensor:
    """RMSNorm of heads, times the sigmoid of gates.

    Args:
        x: (tokens, heads * head_dim).
        gate: the same shape, or (tokens, groups, heads / groups * head_dim); None for no gates.
        weight: (head_dim,); None for no weight.
        head_dim: elements of a head.
        eps: added to the mean of squares.
        has_norm: has to be True.
        out: where to write, like `x`; None allocates.
        config: ignored; selects SGLang's kernel.

    Raises:
        ValueError: an argument that is not allowed.
    """
    if not has_norm:
        raise ValueError("has_norm: is False, but gates multiply norms here; pass True, or x * gate.sigmoid()")
    made = torch.empty_like(x) if out is None else out
    if gate is None:
        shape: tuple[int, ...] = (*x.shape[:-1], -1, head_dim)
        jitnorm.rmsnorm(x.view(shape), weight, eps, made.view(shape))
        return made
    if gate.numel() != x.numel():
        raise ValueError(f"gate: shape is {tuple(gate.shape)}, but that of x is {tuple(x.shape)}; pass one as large")
    gate = gate.unsqueeze(1) if gate.ndim == 2 else gate
    shape = (*gate.shape[:2], -1, head_dim)
    jitnorm.rmsnorm_gated(x.view(shape), gate.view(shape), weight, eps, made.view(shape), activation="sigmoid")
    return made


def _heads(name: str, x: torch.Tensor, heads: int, head_dim: int) -> torch.Tensor:
    if x.shape[-1] != heads * head_dim:
        raise ValueError(f"{name}: has {x.shape[-1]} columns; {heads} heads of {head_dim} are {heads * head_dim}")
    return x.unflatten(-1, (heads, head_dim))
