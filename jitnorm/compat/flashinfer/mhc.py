"""The functions of `flashinfer.mhc`."""

from __future__ import annotations

import torch

import jitnorm

__all__ = ["mhc_post"]
_STREAMS = 4


def mhc_post(
    x: torch.Tensor, residual: torch.Tensor, post_layer_mix: torch.Tensor, comb_res_mix: torch.Tensor
) -> torch.Tensor:
    """The four streams behind a layer: mixed, and what it gives added to each.

    Raises:
        ValueError: a shape that is not allowed.
    """
    if residual.ndim < 3 or residual.shape[-2] != _STREAMS:
        raise ValueError(f"residual: shape is {tuple(residual.shape)}; expected (..., {_STREAMS}, H)")
    outer = residual.shape[:-2]
    if post_layer_mix.shape == (*outer, _STREAMS, 1):
        post_layer_mix = post_layer_mix.squeeze(-1)
    tensors = (x, residual, post_layer_mix, comb_res_mix)
    return jitnorm.mhc_post(*(tensor.contiguous() for tensor in tensors))
