"""SGLang's kernels of RMSNorm, rounded, followed by quantization."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import torch

import jitnorm
from jitnorm.compat.arguments import as_scale, spec_of
from jitnorm.compat.groups import spec_of_eps
from jitnorm.compat.sglang_kernels.mxfp8 import MXFP8_SWIZZLED
from jitnorm.kernels.quant_spec import QuantSpec
from jitnorm.ops.quantize_fp4 import largest_scale

_NVFP4 = spec_of("e2m1", 16, "e4m3")


def rmsnorm_mxfp8(x: torch.Tensor, weight: torch.Tensor, eps: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """RMSNorm, and its MXFP8: the norm, its codes, and swizzled scales, uint8, flat."""
    norm = torch.empty_like(x, memory_format=torch.contiguous_format)
    q = jitnorm.norm_quantize(x, weight, spec=MXFP8_SWIZZLED, eps=eps, y_out=norm, rounding="output")
    return norm, q.data, q.scale


def rmsnorm_fp8_e8m0_quant(
    x: torch.Tensor, weight: torch.Tensor, eps: float, group_size: int = 128
) -> tuple[tuple[torch.Tensor, torch.Tensor], torch.Tensor]:
    """RMSNorm, and its FP8 with a power of two for each group of a row: codes and scales, then the norm.

    Scales are float8_e8m0fnu, which torch converts: the memory of a matrix (groups, rows), as one (rows, groups). They
    are at least 2^-126.
    """
    norm = torch.empty_like(x, memory_format=torch.contiguous_format)
    spec = spec_of_eps("e4m3", group_size, 0.0, True, "column", 0.0)
    q = jitnorm.norm_quantize(x, weight, spec=spec, eps=eps, y_out=norm, rounding="output")
    return (q.data, q.scale.to(torch.float8_e8m0fnu).view(len(x), -1)), norm


def fused_norm_fp4_quant(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    eps: float,
    global_scale_inv: float,
    *,
    quantize: bool = True,
    want_normed: bool = False,
) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
    """RMSNorm, and its NVFP4 with a scale for each row, ``amax * global_scale_inv``.

    Args:
        x: (rows, hidden_size).
        weight: (hidden_size,); None for no weight.
        eps: added to the mean of squares.
        global_scale_inv: 1 / (6 * m), where m is the largest block scale, from 2^-9 to 448.
        quantize: whether to quantize.
        want_normed: whether to return the norm, too.

    Returns:
        ``(codes, block scales, row scales, norm)``, None for those that were not asked for: uint8 (rows, hidden_size /
        2), uint8 (rows, hidden_size / 16), float32 (rows,), and the norm.

    Raises:
        ValueError: an argument that is not allowed.
    """
    if not quantize:
        if not want_normed:
            raise ValueError("quantize, want_normed: both are False; pass True for one")
        return None, None, None, jitnorm.rmsnorm(x, weight, eps)
    norm = torch.empty_like(x) if want_normed else None
    spec = _spec_of_rows(float(global_scale_inv))
    q = jitnorm.norm_quantize(x, weight, spec=spec, eps=eps, y_out=norm, rounding="output", global_scale="row")
    return q.data.view(torch.uint8), q.scale.view(torch.uint8), q.row_scale, norm


# Cached, because constructing a spec takes 20 us.
@cache
def _spec_of_rows(global_scale_inv: float) -> QuantSpec:
    try:
        largest = largest_scale(global_scale_inv)
    except ValueError:
        raise ValueError(
            f"global_scale_inv: is {global_scale_inv}; allowed is 1 / (6 * m) for m from 2**-9 to 448"
        ) from None
    assert largest is not None  # there is a number
    return replace(_NVFP4, global_scale="row", e4m3_max=largest)


def fused_norm_fp4_quant_static(
    x: torch.Tensor, weight: torch.Tensor | None, eps: float, global_scale: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """RMSNorm in NVFP4 with a given global scale: codes, two per byte, and scales, uint8 (rows, hidden_size / 16)."""
    q = jitnorm.norm_quantize(
        x, weight, spec=_NVFP4, eps=eps, global_scale=as_scale(global_scale, x).view(1), rounding="output"
    )
    return q.data.view(torch.uint8), q.scale.view(torch.uint8)
