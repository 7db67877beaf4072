"""SGLang's kernels of the streams of hyper-connections after a layer."""

from __future__ import annotations

import torch

import jitnorm


def mhc_post(
    x: torch.Tensor, residual: torch.Tensor, post_layer_mix: torch.Tensor, comb_res_mix: torch.Tensor
) -> torch.Tensor:
    """The streams after a layer, (tokens, n, hidden_size): mixed, with its output `x` added to each.

    Factors are float32: `post_layer_mix` (tokens, n, 1) of the layer's output, `comb_res_mix` (tokens, n, n).
    """
    return jitnorm.mhc_post(x, residual, post_layer_mix.squeeze(-1), comb_res_mix)


def mhc_post_split_h(
    x: torch.Tensor, residual: torch.Tensor, post: torch.Tensor, comb: torch.Tensor, *, block_size: int | None = None
) -> torch.Tensor:
    """`mhc_post` with `post` of (tokens, n); `block_size` is ignored."""
    return jitnorm.mhc_post(x, residual, post, comb)
