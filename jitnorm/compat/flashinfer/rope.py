"""FlashInfer's rotation of queries and keys by a table; also ``from jitnorm.compat.flashinfer import rope``."""

from __future__ import annotations

import torch

from jitnorm.compat.rope import turn


def apply_rope_with_cos_sin_cache(
    positions: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    head_size: int,
    cos_sin_cache: torch.Tensor,
    is_neox: bool = True,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rotate queries and keys, (tokens, heads * head_size)."""
    outputs = torch.empty_like(query), torch.empty_like(key)
    turn(query, key, head_size, cos_sin_cache, is_neox, positions, outputs)
    return outputs


def apply_rope_with_cos_sin_cache_inplace(
    positions: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    head_size: int,
    cos_sin_cache: torch.Tensor,
    is_neox: bool = True,
) -> None:
    """Rotate queries and keys, (tokens, heads * head_size), in place."""
    turn(query, key, head_size, cos_sin_cache, is_neox, positions, (query, key))
