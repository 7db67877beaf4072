"""The norm and rotation of `flashinfer.diffusion_ops`, for the tokens of a video: patches in frames of rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import torch

import jitnorm
from jitnorm.compat.arguments import as_scale, spec_of
from jitnorm.compat.flashinfer.dit_layernorm import (
    fused_dit_gate_residual_layernorm_gamma_beta,
    fused_dit_gate_residual_layernorm_scale_shift,
    fused_dit_residual_layernorm_scale_shift,
)
from jitnorm.compat.rope import yarn_angles

__all__ = [
    "fused_dit_gate_residual_layernorm_gamma_beta",
    "fused_dit_gate_residual_layernorm_scale_shift",
    "fused_dit_residual_layernorm_scale_shift",
    "fused_qk_rmsnorm_rope",
]

Sizes = tuple[int, int, int]
"""Of frames, rows of a frame and columns of a row."""


def fused_qk_rmsnorm_rope(
    qkv: torch.Tensor,
    q_weight: torch.Tensor,
    k_weight: torch.Tensor,
    *,
    ppf: int,
    pph: int,
    ppw: int,
    num_frame_channels: int,
    num_height_channels: int,
    num_width_channels: int,
    num_heads_q: int,
    num_heads_k: int,
    num_heads_v: int,
    head_dim: int,
    eps: float = 1e-6,
    base: float = 10000.0,
    interleave: bool = True,
    factor: float = 1.0,
    low: float = 0.0,
    high: float = 0.0,
    attention_factor: float = 1.0,
    is_qk_norm: bool = True,
    output_fp8: bool = False,
    output_quant_scale: float = 1.0,
    v_quant_scale: float = 1.0,
    q_out: torch.Tensor | None = None,
    k_out: torch.Tensor | None = None,
    v_out: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """RMSNorm over all heads of queries, and of keys, then rotation of each head by three positions; and values.

    FP8 codes are those of products with the scales. torch computes the cosines and sines of a video once, and they are
    cached.
    """
    heads, patches = (num_heads_q, num_heads_k, num_heads_v), (ppf, pph, ppw)
    channels = num_frame_channels, num_height_channels, num_width_channels
    _check_sizes(qkv, heads, head_dim, patches, channels)
    angles = _angles(patches, channels, base, factor, low, high, attention_factor, qkv.device)
    positions = _positions(qkv.shape[:-1].numel(), len(angles), qkv.device)
    dtype = torch.float8_e4m3fn if output_fp8 else qkv.dtype
    outputs = [
        _output(name, given, (*qkv.shape[:-1], count, head_dim), dtype, qkv)
        for name, given, count in zip(("q_out", "k_out", "v_out"), (q_out, k_out, v_out), heads, strict=True)
    ]
    # The method `split` would take 2 us more, and so would views with shapes that are not separate numbers.
    sizes = [count * head_dim for count in heads]
    rows = torch.split_with_sizes(qkv.reshape(-1, 1, qkv.shape[-1]), sizes, -1)
    written = [out.view(-1, 1, size) for out, size in zip(outputs, sizes, strict=True)]
    scale = 1 / output_quant_scale if output_fp8 else None
    if is_qk_norm:
        weights = q_weight.detach(), k_weight.detach()  # parameters, for which FlashInfer has no gradient, either
        _normalize(rows[:2], weights, written[:2], angles, positions, eps, not interleave, head_dim, scale)
    else:
        _turn(rows[:2], written[:2], angles, positions, not interleave, head_dim, scale)
    _store(rows[2], v_quant_scale, written[2])
    return outputs[0], outputs[1], outputs[2]


def _normalize(
    rows: tuple[torch.Tensor, ...], weights: tuple[torch.Tensor, ...], outputs: list[torch.Tensor],
    angles: torch.Tensor, positions: torch.Tensor, eps: float, is_neox: bool, head_dim: int, scale: float | None,
) -> None:  # fmt: skip
    """Write the rotated norms, in one launch if both have the same length."""
    call: Callable[..., Any] = jitnorm.qk_rmsnorm_rope
    if scale is not None:
        one = as_scale(scale, rows[0])
        call = partial(jitnorm.qk_rmsnorm_rope_quant, q_scale=one, k_scale=one)
    call = partial(call, cos_sin_cache=angles, positions=positions, eps=eps, is_neox=is_neox, head_size=head_dim)
    pairs = [(0, 1)] if rows[0].shape == rows[1].shape else [(0, 0), (1, 1)]
    for q, k in pairs:
        k_rows, k_out = (rows[k], outputs[k]) if q != k else (rows[q][:, :0], outputs[q][:, :0])
        call(rows[q], k_rows, q_weight=weights[q], k_weight=weights[k], q_out=outputs[q], k_out=k_out)


def _turn(
    rows: tuple[torch.Tensor, ...], outputs: list[torch.Tensor], angles: torch.Tensor, positions: torch.Tensor,
    is_neox: bool, head_dim: int, scale: float | None,
) -> None:  # fmt: skip
    """Write rotated queries and keys, without a norm."""
    q, k, q_out, k_out = (each.reshape(len(each), -1, head_dim) for each in (*rows, *outputs))
    if scale is None:
        jitnorm.rope(q, k, angles, positions, is_neox, q_out, k_out)
    else:
        one = as_scale(scale, q)
        jitnorm.rope_quant(q, k, angles, positions, one, one, is_neox, q_out, k_out)


def _store(x: torch.Tensor, scale: float, out: torch.Tensor) -> None:
    """Write values unchanged, or as FP8 codes of their products with a scale."""
    if out.dtype == torch.float8_e4m3fn:
        jitnorm.quantize(x.reshape(out.shape), spec=spec_of("e4m3", "tensor"), scale=as_scale(1 / scale, x), out=out)
    else:
        out.copy_(x.reshape(out.shape))


@lru_cache(maxsize=8)
def _angles(
    patches: Sizes, channels: Sizes, base: float, factor: float, low: float, high: float, scale: float,
    device: torch.device,
) -> torch.Tensor:  # fmt: skip
    """The cosines and sines of each token of a video: those of its frame, its row and its column, side by side."""
    positions = torch.meshgrid(*(torch.arange(count, device=device) for count in patches), indexing="ij")
    bands = [
        yarn_angles(of.reshape(-1), size, base, factor, low, high, scale).chunk(2, -1)
        for of, size in zip(positions, channels, strict=True)
        if size
    ]
    return torch.cat([band[i] for i in (0, 1) for band in bands], -1)


@lru_cache(maxsize=8)
def _positions(tokens: int, of_video: int, device: torch.device) -> torch.Tensor:
    """The index of each token in its video."""
    return torch.arange(tokens, device=device) % of_video


def _output(
    name: str, given: torch.Tensor | None, shape: tuple[int, ...], dtype: torch.dtype, like: torch.Tensor
) -> torch.Tensor:
    if given is None:
        return like.new_empty(shape, dtype=dtype)
    if given.shape != shape or given.dtype != dtype:
        raise ValueError(f"{name}: is {given.dtype} of shape {tuple(given.shape)}; expected {dtype} of shape {shape}")
    return given


def _check_sizes(qkv: torch.Tensor, heads: Sizes, head_dim: int, patches: Sizes, channels: Sizes) -> None:
    if qkv.shape[-1] != sum(heads) * head_dim:
        raise ValueError(
            f"qkv: has {qkv.shape[-1]} columns; {sum(heads)} heads of {head_dim} are {sum(heads) * head_dim}"
        )
    if sum(channels) != head_dim or any(size % 2 or size < 0 for size in channels):
        raise ValueError(
            f"num_frame_channels, num_height_channels, num_width_channels: are {channels}; expected even numbers whose "
            f"sum is head_dim {head_dim}"
        )
    tokens, of_video = qkv.shape[-2], patches[0] * patches[1] * patches[2]
    is_whole = tokens == of_video if qkv.ndim == 3 else tokens % of_video == 0 if of_video > 0 else False
    if min(patches) < 1 or not is_whole:
        raise ValueError(
            f"ppf, pph, ppw: are {patches}, {of_video} tokens; expected positive numbers of which qkv, of shape "
            f"{tuple(qkv.shape)}, has whole videos"
        )
