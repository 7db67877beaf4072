"""The activations of `flashinfer.activation`. `enable_pdl` is a hint."""

from __future__ import annotations

from typing import Any

import torch

import jitnorm
from jitnorm.compat.arguments import as_hint, spec_of
from jitnorm.compat.flashinfer.four_over_six import UNSET, resolve_nvfp4_4over6

_MXFP8 = spec_of("e4m3", 32, "ue8m0", "128x4")


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


def silu_and_mul_mxfp8_quantize(
    gated_input: torch.Tensor, *, rowwise: bool = True, colwise: bool = False
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """SwiGLU, rounded to the input's dtype, then MXFP8 along rows, along columns, or both, with 128x4 scales.

    Along columns it takes three launches: torch transposes the result of SwiGLU.

    Args:
        gated_input: shape (M, 2K), gates first; M and K are multiples of 128.
        rowwise: whether 32 elements of a row share a scale.
        colwise: whether 32 elements of a column share a scale.

    Returns:
        Codes of rows, shape (M, K); codes of columns, shape (M, K) and strides (1, M); scales of rows, shape (M, K /
        32); scales of columns, shape (K * M / 32,). Those that were not requested are empty.
    """
    if gated_input.ndim != 2 or gated_input.shape[0] % 128 or gated_input.shape[1] % 256:
        raise ValueError(
            f"gated_input: shape is {tuple(gated_input.shape)}; expected (M, 2K), M and K multiples of 128"
        )
    if not rowwise and not colwise:
        raise ValueError("rowwise, colwise: both are False; one of them must be True")
    empty = gated_input.new_empty(0, dtype=torch.float8_e4m3fn), gated_input.new_empty(0, dtype=torch.float8_e8m0fnu)
    (row_codes, row_scales), (column_codes, column_scales) = empty, empty
    if rowwise:
        by_rows = jitnorm.silu_and_mul_quantize(gated_input, spec=_MXFP8, rounding="output")
        row_codes, row_scales = by_rows.data, by_rows.scale.view(torch.float8_e8m0fnu).view(len(gated_input), -1)
    if colwise:
        by_columns = jitnorm.quantize(jitnorm.silu_and_mul(gated_input).T.contiguous(), spec=_MXFP8)
        column_codes, column_scales = by_columns.data.T, by_columns.scale.view(torch.float8_e8m0fnu).view(-1)
    return row_codes, column_codes, row_scales, column_scales
