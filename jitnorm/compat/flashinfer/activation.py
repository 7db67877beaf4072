"""The activations of `flashinfer.activation`. `enable_pdl` is a hint."""

from __future__ import annotations

from typing import Any

import torch

import jitnorm
from jitnorm.compat.arguments import as_hint
from jitnorm.compat.flashinfer.four_over_six import UNSET, resolve_nvfp4_4over6


def silu_and_mul(input: torch.Tensor, out: torch.Tensor | None = None, enable_pdl: bool | None = None) -> torch.Tensor:
    """SwiGLU: SiLU of the first half of each row times the second."""
    return jitnorm.silu_and_mul(input, out, as_hint(enable_pdl))


def gelu_and_mul(input: torch.Tensor, out: torch.Tensor | None = None, enable_pdl: bool | None = None) -> torch.Tensor:
    """GELU, by erf, of the first half of each row times the second."""
    return jitnorm.gelu_and_mul(input, out, as_hint(enable_pdl))


def gelu_tanh_and_mul(
    input: torch.Tensor, out: torch.Tensor | None = None, enable_pdl: bool | None = None
) -> torch.Tensor:
    """GELU, by tanh, of the first half of each row times the second."""
    return jitnorm.gelu_tanh_and_mul(input, out, as_hint(enable_pdl))


def silu_and_mul_scaled_nvfp4_experts_quantize(
    a: torch.Tensor, mask: torch.Tensor, a_global_sf: torch.Tensor, nvfp4_4over6: Any = UNSET
) -> tuple[torch.Tensor, torch.Tensor]:
    """SwiGLU of each expert's rows up to its mask, then NVFP4."""
    return jitnorm.silu_and_mul_scaled_nvfp4_experts_quantize(
        a, mask, a_global_sf, resolve_nvfp4_4over6(nvfp4_4over6), rounding="output"
    )
