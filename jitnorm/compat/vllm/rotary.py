"""vLLM's rotation of queries and keys."""

from __future__ import annotations

import torch

from jitnorm.compat.rope import turn


def rotary_embedding(
    positions: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor | None,
    head_size: int,
    cos_sin_cache: torch.Tensor,
    is_neox: bool,
    rope_dim_offset: int = 0,
    inverse: bool = False,
) -> None:
    """Rotate queries, and keys if given, in place; for `inverse`, torch negates the sines of the table."""
    if not 0 <= rope_dim_offset <= head_size - cos_sin_cache.shape[-1]:
        raise ValueError(
            f"rope_dim_offset: is {rope_dim_offset}; of heads of {head_size}, {cos_sin_cache.shape[-1]} elements are "
            f"turned, so 0 to {head_size - cos_sin_cache.shape[-1]} is allowed"
        )
    if inverse:
        cosines, sines = cos_sin_cache.chunk(2, dim=-1)
        cos_sin_cache = torch.cat([cosines, -sines], -1)
    turn(query, key, head_size, cos_sin_cache, is_neox, positions, (query, key), rope_dim_offset)
