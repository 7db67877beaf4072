"""The norm and rotation of `flashinfer.diffusion_ops`, for the tokens of a video: patches in frames of rows."""

from __future__ import annotations

from typing import Any

import torch
from torch import is_grad_enabled
from torch.compiler import is_compiling

from jitnorm.compat.arguments import spec_of
from jitnorm.compat.constants import remembered
from jitnorm.compat.flashinfer.dit_layernorm import (
    fused_dit_gate_residual_layernorm_gamma_beta,
    fused_dit_gate_residual_layernorm_scale_shift,
    fused_dit_residual_layernorm_scale_shift,
)
from jitnorm.compat.rope import yarn_angles
from jitnorm.ops.norm_qk_packed import qk_rmsnorm_rope_rows, rope_packed
from jitnorm.ops.pairs import quantize_pair

__all__ = [
    "fused_dit_gate_residual_layernorm_gamma_beta",
    "fused_dit_gate_residual_layernorm_scale_shift",
    "fused_dit_residual_layernorm_scale_shift",
    "fused_qk_rmsnorm_rope",
]

_E4M3 = spec_of("e4m3", "tensor")
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
    angles, positions = _tables(
        qkv.device, qkv.shape, heads, head_dim, patches, channels, base, factor, low, high, attention_factor
    )
    if q_out is not None or k_out is not None or v_out is not None:
        _check_outputs((q_out, k_out, v_out), qkv, heads, head_dim, output_fp8)
    scale = _scale(qkv.device, 1 / output_quant_scale) if output_fp8 else None
    if is_qk_norm:
        weights = q_weight, k_weight
        is_recorded = (q_weight.requires_grad or k_weight.requires_grad) and is_grad_enabled() and not is_compiling()
        if is_recorded:
            q_weight, k_weight = q_weight.detach(), k_weight.detach()
        q, k = qk_rmsnorm_rope_rows(
            qkv, q_out, k_out, q_weight, k_weight, angles, positions, scale, eps, not interleave,
            num_heads_q, num_heads_k, head_dim,
        )  # fmt: skip
        if is_recorded:
            q, k = (_NoGradient.apply(*pair) for pair in zip((q, k), weights, strict=True))
    else:
        q, k = rope_packed(
            qkv, q_out, k_out, angles, positions, scale, not interleave, num_heads_q, num_heads_k, head_dim
        )
    v_scale = _scale(qkv.device, 1 / v_quant_scale) if output_fp8 else None
    return q, k, _values(qkv, num_heads_q + num_heads_k, num_heads_v, head_dim, v_scale, v_out)


class _NoGradient(torch.autograd.Function):  # type: ignore[misc]
    """Marks a result as one of a weight: FlashInfer takes parameters, but has no gradient for them, nor has jitnorm."""

    @staticmethod
    def forward(result: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return result

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        ctx.mark_dirty(output)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        raise RuntimeError("fused_qk_rmsnorm_rope: has no gradient; call it under torch.no_grad()")


def _values(
    qkv: torch.Tensor, first: int, heads: int, head_dim: int, scale: torch.Tensor | None, out: torch.Tensor | None
) -> torch.Tensor:  # fmt: skip
    """Heads that follow the first ones, unchanged, or their FP8 codes with a scale."""
    start, length, shape = first * head_dim, heads * head_dim, (*qkv.shape[:-1], heads, head_dim)
    if scale is not None:
        x = qkv.narrow(-1, start, length)
        made, _ = quantize_pair(x, _E4M3, None if out is None else out.view(x.shape), None, scale)
    elif out is None:
        made = torch.narrow_copy(qkv, -1, start, length)
    else:
        return out.copy_(qkv.narrow(-1, start, length).view(shape))
    return made.view(shape)


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
def _tables(
    device: torch.device, shape: torch.Size, heads: Sizes, head_dim: int, patches: Sizes, channels: Sizes,
    *of_angles: float,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """The angles of a video's tokens, and the index in its video of each token; ValueError for other sizes."""
    _check_sizes(shape, heads, head_dim, patches, channels)
    angles = _angles(device, patches, channels, *of_angles)
    return angles, torch.arange(shape[:-1].numel(), device=device) % angles.shape[0]


@remembered(64)
def _scale(device: torch.device, scale: float) -> torch.Tensor:
    return torch.full((1,), scale, dtype=torch.float32, device=device)


def _check_outputs(
    given: tuple[torch.Tensor | None, ...], qkv: torch.Tensor, heads: Sizes, head_dim: int, is_fp8: bool
) -> None:
    dtype = torch.float8_e4m3fn if is_fp8 else qkv.dtype
    for name, out, count in zip(("q_out", "k_out", "v_out"), given, heads, strict=True):
        shape = *qkv.shape[:-1], count, head_dim
        if out is not None and (out.shape != shape or out.dtype != dtype):
            raise ValueError(f"{name}: is {out.dtype} of shape {tuple(out.shape)}; expected {dtype} of shape {shape}")


def _check_sizes(shape: torch.Size, heads: Sizes, head_dim: int, patches: Sizes, channels: Sizes) -> None:
    if shape[-1] != sum(heads) * head_dim:
        raise ValueError(f"qkv: has {shape[-1]} columns; {sum(heads)} heads of {head_dim} are {sum(heads) * head_dim}")
    if sum(channels) != head_dim or any(size % 2 or size < 0 for size in channels):
        raise ValueError(
            f"num_frame_channels, num_height_channels, num_width_channels: are {channels}; expected even numbers whose "
            f"sum is head_dim {head_dim}"
        )
    tokens, of_video = shape[-2], patches[0] * patches[1] * patches[2]
    is_whole = tokens == of_video if len(shape) == 3 else tokens % of_video == 0 if of_video > 0 else False
    if min(patches) < 1 or not is_whole:
        raise ValueError(
            f"ppf, pph, ppw: are {patches}, {of_video} tokens; expected positive numbers of which qkv, of shape "
            f"{tuple(shape)}, has whole videos"
        )
