"""vLLM's norm and rotation with insertion of keys and values into a paged cache."""

from __future__ import annotations

import torch

from jitnorm.ops.norm_qk_packed import qk_rmsnorm_rope_cache_packed

Heads = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""Queries, keys and values."""
Angles = tuple[torch.Tensor, torch.Tensor]
"""A table of cosines and sines, and the positions in it."""


def fused_qknorm_rope_cache(
    qkv: torch.Tensor,
    q_weight: torch.Tensor,
    k_weight: torch.Tensor,
    cos_sin_cache: torch.Tensor,
    positions: torch.Tensor,
    slot_mapping: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    num_q_heads: int,
    num_kv_heads: int,
    head_dim: int,
    rotary_dim: int,
    eps: float,
    norm_weight_bias: float = 0.0,
    kv_cache_dtype: str = "auto",
    k_scale: torch.Tensor | None = None,
    v_scale: torch.Tensor | None = None,
) -> Heads:
    """RMSNorm of queries and keys, rotation of halves, and keys and values into pages, rounded before FP8.

    If `cos_sin_cache` has more columns than `rotary_dim`, torch copies those that are used.

    Returns:
        queries, keys and values, each (tokens, heads * head_dim).
    """
    columns = cos_sin_cache.shape[-1]
    if rotary_dim != columns or rotary_dim > head_dim:
        if not 0 <= rotary_dim <= min(head_dim, columns):
            raise ValueError(
                f"rotary_dim: is {rotary_dim}; allowed are even numbers up to head_dim {head_dim} and the "
                f"{columns} columns of cos_sin_cache"
            )
        cos_sin_cache, positions = _first_angles(cos_sin_cache, rotary_dim, positions)
    return qk_rmsnorm_rope_cache_packed(
        qkv, None, None, None, q_weight, k_weight, cos_sin_cache, positions, slot_mapping, key_cache, value_cache,
        k_scale, v_scale, eps, num_q_heads, num_kv_heads, head_dim, norm_weight_bias, kv_cache_dtype,
    )  # fmt: skip


def angles_of(cos: torch.Tensor, sin: torch.Tensor, pairs: int, positions: torch.Tensor) -> Angles:
    """The table whose halves are, or begin with, `cos` and `sin`; torch copies them unless they are side by side."""
    if not 0 <= pairs <= min(cos.shape[-1], sin.shape[-1]):
        raise ValueError(
            f"rotary_pairs: is {pairs}; allowed are 0 to the {min(cos.shape[-1], sin.shape[-1])} of cos, sin"
        )
    are_halves = sin.data_ptr() == cos.data_ptr() + pairs * cos.element_size() and sin.stride() == cos.stride()
    if pairs and pairs == cos.shape[-1] and are_halves:
        return cos.as_strided((len(cos), 2 * pairs), cos.stride()), positions
    return _first_angles(torch.cat([cos, sin], -1), 2 * pairs, positions)


def _first_angles(cos_sin_cache: torch.Tensor, rotary_dim: int, positions: torch.Tensor) -> Angles:
    """The table of the first angles of a wider one, and the positions in it; without any, an angle of 0."""
    if rotary_dim == 0:
        table = cos_sin_cache.new_zeros((1, 2))
        table[:, :1].fill_(1)
        return table, torch.zeros_like(positions)
    if cos_sin_cache.shape[-1] == rotary_dim:
        return cos_sin_cache, positions
    return torch.cat([half[:, : rotary_dim // 2] for half in cos_sin_cache.chunk(2, dim=-1)], -1), positions
