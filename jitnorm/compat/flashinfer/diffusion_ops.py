"""The norm and rotation of `flashinfer.diffusion_ops`, for the tokens of a video: patches in frames of rows."""

from __future__ import annotations

import torch

import jitnorm
from jitnorm.compat.arguments import as_scale, spec_of
from jitnorm.compat.constants import remembered
from jitnorm.compat.flashinfer.dit_layernorm import (
    fused_dit_gate_residual_layernorm_gamma_beta,
    fused_dit_gate_residual_layernorm_scale_shift,
    fused_dit_residual_layernorm_scale_shift,
)
from jitnorm.compat.rope import yarn_angles
from jitnorm.ops.norm_qk_packed import qk_rmsnorm_rope_rows

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

    FP8 codes are those of products with the scales. torch computes the cosines and sines of a video once.
    """
    heads, patches = (num_heads_q, num_heads_k, num_heads_v), (ppf, pph, ppw)
    channels = num_frame_channels, num_height_channels, num_width_channels
    _check_sizes(qkv, heads, head_dim, patches, channels)
    device, lead = qkv.device, qkv.shape[:-1]
    angles = _angles(device, patches, channels, base, factor, low, high, attention_factor)
    positions = _positions(device, lead.numel(), angles.shape[0])
    dtype = torch.float8_e4m3fn if output_fp8 else qkv.dtype
    outputs = [
        _output(name, given, (*lead, count, head_dim), dtype, qkv)
        for name, given, count in zip(("q_out", "k_out", "v_out"), (q_out, k_out, v_out), heads, strict=True)
    ]
    q, k, v = (out.view(*lead, count * head_dim) for out, count in zip(outputs, heads, strict=True))
    scale = as_scale(1 / output_quant_scale, qkv) if output_fp8 else None
    if is_qk_norm:
        qk_rmsnorm_rope_rows(
            qkv, q, k, q_weight.detach(), k_weight.detach(),  # parameters, for which FlashInfer has no gradient, either
            angles, positions, scale, eps, not interleave, num_heads_q, num_heads_k, head_dim,
        )  # fmt: skip
    else:
        _turn(qkv, (q, k), angles, positions, not interleave, head_dim, scale)
    _store(qkv.narrow(-1, (num_heads_q + num_heads_k) * head_dim, num_heads_v * head_dim), v_quant_scale, v)
    return outputs[0], outputs[1], outputs[2]


def _turn(
    qkv: torch.Tensor, outputs: tuple[torch.Tensor, torch.Tensor], angles: torch.Tensor, positions: torch.Tensor,
    is_neox: bool, head_dim: int, scale: torch.Tensor | None,
) -> None:  # fmt: skip
    """Write rotated queries and keys, without a norm."""
    tokens, columns = positions.shape[0], [out.shape[-1] for out in outputs]
    q, k, _ = qkv.tensor_split((columns[0], sum(columns)), -1)
    q, k = (each.reshape(tokens, -1, head_dim) for each in (q, k))
    q_out, k_out = (out.view(tokens, -1, head_dim) for out in outputs)  # not a copy
    if scale is None:
        jitnorm.rope(q, k, angles, positions, is_neox, q_out, k_out)
    else:
        jitnorm.rope_quant(q, k, angles, positions, scale, scale, is_neox, q_out, k_out)


def _store(x: torch.Tensor, scale: float, out: torch.Tensor) -> None:
    """Write values unchanged, or as FP8 codes of their products with a scale."""
    if out.dtype == torch.float8_e4m3fn:
        jitnorm.quantize(x, spec=spec_of("e4m3", "tensor"), scale=as_scale(1 / scale, x), out=out)
    else:
        out.copy_(x)


@remembered(8)
def _angles(
    device: torch.device, patches: Sizes, channels: Sizes, base: float, factor: float, low: float, high: float,
    scale: float,
) -> torch.Tensor:  # fmt: skip
    """The cosines and sines of each token of a video: those of its frame, its row and its column, side by side."""
    positions = torch.meshgrid(*(torch.arange(count, device=device) for count in patches), indexing="ij")
    bands = [
        yarn_angles(of.reshape(-1), size, base, factor, low, high, scale).chunk(2, -1)
        for of, size in zip(positions, channels, strict=True)
        if size
    ]
    return torch.cat([band[i] for i in (0, 1) for band in bands], -1)


@remembered(8)
def _positions(device: torch.device, tokens: int, of_video: int) -> torch.Tensor:
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
