"""vLLM's norm and rotation with insertion of keys and values into a paged cache."""

from __future__ import annotations

from typing import Any

import torch

import jitnorm

_PLAIN, _FP8 = ("auto", "bfloat16", "float16"), ("fp8", "fp8_e4m3")

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
    if not 0 <= rotary_dim <= min(head_dim, cos_sin_cache.shape[-1]):
        raise ValueError(
            f"rotary_dim: is {rotary_dim}; allowed are even numbers up to head_dim {head_dim} and the "
            f"{cos_sin_cache.shape[-1]} columns of cos_sin_cache"
        )
    heads = num_q_heads, num_kv_heads, num_kv_heads
    angles = _first_angles(cos_sin_cache, rotary_dim, positions)
    made = insert_turned_heads(
        (None, None, None), heads, qkv, q_weight, k_weight, angles, slot_mapping, (key_cache, value_cache), head_dim,
        eps, norm_weight_bias, kv_cache_dtype, (k_scale, v_scale),
    )  # fmt: skip
    q, k, v = (each.view(-1, count * head_dim) for each, count in zip(made, heads, strict=True))
    return q, k, v


def insert_turned_heads(
    outputs: Heads | tuple[None, None, None],
    heads: tuple[int, int, int],
    qkv: torch.Tensor,
    q_weight: torch.Tensor,
    k_weight: torch.Tensor,
    angles: Angles,
    slot_mapping: torch.Tensor,
    caches: tuple[torch.Tensor, torch.Tensor],
    head_dim: int,
    eps: float,
    norm_weight_bias: float,
    kv_cache_dtype: str,
    scales: tuple[torch.Tensor | None, torch.Tensor | None],
) -> Heads:
    """Write queries, keys and values, of so many heads each, and insert the last two into their caches.

    Outputs are (tokens, heads * head_dim), allocated where they are None; results are (tokens, heads, head_dim).
    """
    if qkv.ndim != 2 or qkv.shape[1] != sum(heads) * head_dim:
        raise ValueError(
            f"qkv: shape is {tuple(qkv.shape)}; expected (tokens, {sum(heads)} heads of {head_dim}), "
            f"{sum(heads) * head_dim} columns"
        )
    if norm_weight_bias not in (0, 1):
        raise ValueError(f"norm_weight_bias: is {norm_weight_bias!r}; allowed are 0 and 1")
    if kv_cache_dtype not in (*_PLAIN, *_FP8):
        raise ValueError(f"kv_cache_dtype: is {kv_cache_dtype!r}; allowed are {', '.join((*_PLAIN, *_FP8))}")
    # `unflatten` would take 2 us more, and so would the method `split`.
    q, k, v = torch.split_with_sizes(qkv.view(-1, sum(heads), head_dim), heads, 1)
    q_out, k_out, v_out = (
        None if each is None else each.view(-1, count, head_dim) for each, count in zip(outputs, heads, strict=True)
    )
    options: dict[str, Any] = {
        "q_out": q_out, "k_out": k_out, "v_out": v_out, "keep_heads": True, "unit_bias": norm_weight_bias == 1,
        "rounding": "output",
    }  # fmt: skip
    call = q, k, v, q_weight, k_weight, *angles, slot_mapping, *caches
    if kv_cache_dtype in _FP8:
        made: Heads = jitnorm.qk_rmsnorm_rope_cache_quant(*call, *scales, eps, **options)
    else:
        made = jitnorm.qk_rmsnorm_rope_cache(*call, eps, **options)
    return made


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
