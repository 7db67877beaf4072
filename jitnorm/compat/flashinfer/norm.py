"""The norms of `flashinfer.norm`. `enable_pdl` is a hint; a scale may be a number or any tensor of one element."""

from __future__ import annotations

from typing import Any

import torch

import jitnorm
from jitnorm.catalogue.encoding_norms import FUSED_ADD_RMSNORM_QUANT, RMSNORM_QUANT
from jitnorm.compat.arguments import as_hint, as_scale, spec_of, spec_of_codes
from jitnorm.compat.flashinfer.diffusion_ops import fused_qk_rmsnorm_rope as fused_qk_rmsnorm_rope
from jitnorm.ops.pairs import layernorm_quantize_given, rmsnorm_fp4quant_pair, rmsnorm_quant_given


def rmsnorm(
    input: torch.Tensor,
    weight: torch.Tensor,
    eps: float = 1e-6,
    out: torch.Tensor | None = None,
    enable_pdl: bool | None = None,
) -> torch.Tensor:
    """RMSNorm of the last dimension; a 3-D input has heads."""
    return jitnorm.rmsnorm(input, weight, eps, out, as_hint(enable_pdl))


def gemma_rmsnorm(
    input: torch.Tensor,
    weight: torch.Tensor,
    eps: float = 1e-6,
    out: torch.Tensor | None = None,
    enable_pdl: bool | None = None,
) -> torch.Tensor:
    """RMSNorm with the weight ``weight + 1``."""
    return jitnorm.gemma_rmsnorm(input, weight, eps, out, as_hint(enable_pdl))


def rmsnorm_sigmoid_gate(
    input: torch.Tensor, gate: torch.Tensor, eps: float = 1e-5, *, enable_pdl: bool = True
) -> None:
    """RMSNorm of the last dimension without a weight, times the sigmoid of the gate, in place."""
    jitnorm.rmsnorm_gated(input, gate, None, eps, input, as_hint(enable_pdl), activation="sigmoid")


def supports_rmsnorm_sigmoid_gate(dtype: torch.dtype, head_dim: int, device: torch.device | str | None = None) -> bool:
    """Whether `rmsnorm_sigmoid_gate` has such heads: it has all that are not empty, on every device."""
    return head_dim > 0 and dtype in (torch.float16, torch.bfloat16, torch.float32)


def fused_add_rmsnorm(
    input: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    eps: float = 1e-6,
    enable_pdl: bool | None = None,
) -> None:
    """Add the input to the residual, and write the RMSNorm of the sum to the input, both in place."""
    jitnorm.fused_add_rmsnorm(input, residual, weight, eps, as_hint(enable_pdl))


def gemma_fused_add_rmsnorm(
    input: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    eps: float = 1e-6,
    enable_pdl: bool | None = None,
) -> None:
    """`fused_add_rmsnorm` with the weight ``weight + 1``."""
    jitnorm.gemma_fused_add_rmsnorm(input, residual, weight, eps, as_hint(enable_pdl))


def rmsnorm_quant(
    out: torch.Tensor,
    input: torch.Tensor,
    weight: torch.Tensor,
    scale: float | torch.Tensor,
    eps: float = 1e-6,
    enable_pdl: bool | None = None,
) -> None:
    """RMSNorm, then FP8 with a given scale."""
    rmsnorm_quant_given(RMSNORM_QUANT, out, input, None, weight, scale, eps, enable_pdl)


def fused_add_rmsnorm_quant(
    out: torch.Tensor,
    input: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    scale: float | torch.Tensor,
    eps: float = 1e-6,
    enable_pdl: bool | None = None,
) -> None:
    """`rmsnorm_quant` of the sum with the residual, which becomes the sum."""
    rmsnorm_quant_given(FUSED_ADD_RMSNORM_QUANT, out, input, residual, weight, scale, eps, enable_pdl)


def fused_add_rmsnorm_fp8_block_quant(
    out: torch.Tensor,
    block_scale: torch.Tensor,
    normed_out: torch.Tensor | None,
    input: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    eps: float = 1e-6,
    enable_pdl: bool | None = None,
) -> None:
    """RMSNorm of the sum with the residual, rounded, then FP8 in groups of 128 with column-major scales."""
    jitnorm.fused_add_rmsnorm_fp8_block_quant(
        out, block_scale, normed_out, input, residual, weight, eps, as_hint(enable_pdl), rounding="output"
    )


def layernorm(input: torch.Tensor, gemma: torch.Tensor, beta: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """Layer normalization."""
    return jitnorm.layernorm(input, gemma, beta, eps)


def layernorm_quant(
    out: torch.Tensor,
    input: torch.Tensor,
    gemma: torch.Tensor,
    beta: torch.Tensor,
    scale: float | torch.Tensor,
    eps: float = 1e-6,
) -> None:
    """Layer normalization, rounded to the input's dtype, then FP8 with a given scale."""
    layernorm_quantize_given(input, gemma, beta, eps, spec_of_codes(out.dtype, "out", "tensor"), out, scale)


def rmsnorm_fp4quant(
    input: torch.Tensor,
    weight: torch.Tensor,
    y_fp4: torch.Tensor | None = None,
    block_scale: torch.Tensor | None = None,
    global_scale: torch.Tensor | None = None,
    eps: float = 1e-6,
    block_size: int = 16,
    scale_format: str | None = None,
    is_sf_swizzled_layout: bool = False,
    enable_pdl: bool | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """RMSNorm, then NVFP4 or MXFP4: codes and scales. UE8M0 scales ignore `global_scale`."""
    found: tuple[torch.Tensor, torch.Tensor] = rmsnorm_fp4quant_pair(
        input, None, weight, y_fp4, block_scale, None, None if _is_ue8m0(block_size, scale_format) else global_scale,
        None, eps, as_hint(enable_pdl), block_size, scale_format, is_sf_swizzled_layout, False, False,
    )  # fmt: skip
    return found


def add_rmsnorm_fp4quant(
    input: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    y_fp4: torch.Tensor | None = None,
    block_scale: torch.Tensor | None = None,
    global_scale: torch.Tensor | None = None,
    eps: float = 1e-6,
    block_size: int = 16,
    scale_format: str | None = None,
    is_sf_swizzled_layout: bool = False,
    output_both_sf_layouts: bool = False,
    block_scale_unswizzled: torch.Tensor | None = None,
    enable_pdl: bool | None = None,
    y_out: torch.Tensor | None = None,
) -> Any:
    """`rmsnorm_fp4quant` of the sum with the residual, which becomes the sum; both scale layouts on request."""
    return rmsnorm_fp4quant_pair(
        input, residual, weight, y_fp4, block_scale, block_scale_unswizzled,
        None if _is_ue8m0(block_size, scale_format) else global_scale, y_out, eps, as_hint(enable_pdl), block_size,
        scale_format, is_sf_swizzled_layout, output_both_sf_layouts, True,
    )  # fmt: skip


def fused_rmsnorm_silu(
    input: torch.Tensor,
    weight: torch.Tensor,
    eps: float = 1e-6,
    out: torch.Tensor | None = None,
    block_scale: torch.Tensor | None = None,
) -> Any:
    """SiLU of the RMSNorm in the dtype of `out`: the input's, FP8 with a scale of 1, or NVFP4, codes and scales."""
    if out is None or out.dtype == input.dtype:
        return jitnorm.rmsnorm_silu(input, weight, eps, out)
    if out.dtype == torch.float8_e4m3fn:
        scale = as_scale(1.0, input)
        jitnorm.norm_quantize(
            input, weight, spec=spec_of("e4m3", "tensor"), scale=scale, eps=eps, activation="silu", out=out
        )
        return out
    q = jitnorm.norm_quantize(
        input, weight, spec=jitnorm.NVFP4, eps=eps, activation="silu", out=out, out_scale=block_scale
    )
    return out, q.scale


def _is_ue8m0(block_size: int, scale_format: str | None) -> bool:
    return scale_format == "ue8m0" or (scale_format is None and block_size == 32)
