"""SGLang's kernels of FP8 with a scale for each row or for the tensor."""

from __future__ import annotations

import torch

import jitnorm
from jitnorm.compat.arguments import as_hint, as_scale, spec_of, spec_of_codes
from jitnorm.ops.pairs import quantize_pair

_E4M3, _E4M3_ROWS = spec_of("e4m3", "tensor"), spec_of("e4m3", "row")
_LARGEST = 448.0
_LARGEST_EPS = 1 / 512


def per_token_quant_fp8(input: torch.Tensor, output_q: torch.Tensor, output_s: torch.Tensor) -> None:
    """FP8 with a scale for each row."""
    quantize_pair(input, _E4M3_ROWS, output_q, output_s)


def static_quant_fp8(
    x: torch.Tensor, x_s: torch.Tensor, repeat_scale: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """FP8 with a given scale: codes, and `x_s`, which torch repeats for each row, (rows, 1), if asked for."""
    scale = as_scale(x_s, x)
    codes = jitnorm.quantize(x, spec=_E4M3, scale=scale).data
    return codes, scale.view(1, 1).repeat(x.numel() // x.shape[-1], 1) if repeat_scale else x_s


def fp8_quantize(
    x: torch.Tensor,
    scale_inv: float = 1.0,
    out: torch.Tensor | None = None,
    fp8_dtype: torch.dtype = torch.float8_e4m3fn,
    enable_pdl: bool = False,
) -> torch.Tensor:
    """FP8 of values times `scale_inv`, whose reciprocal is rounded to float32 and filled in by torch."""
    if not scale_inv > 0:
        raise ValueError(f"scale_inv: is {scale_inv!r}; allowed are positive numbers")
    spec = spec_of_codes(fp8_dtype, "fp8_dtype", "tensor")
    scale = as_scale(1 / scale_inv, x)
    return jitnorm.quantize(x, spec=spec, scale=scale, out=out, enable_pdl=as_hint(enable_pdl)).data


def per_tensor_absmax_fp8(input: torch.Tensor, output_s: torch.Tensor) -> None:
    """The scale of the tensor, its amax times 1 / 448, where torch multiplies; `output_s` is overwritten."""
    jitnorm.compute_amax(input, out=output_s)
    output_s.mul_(1 / _LARGEST)  # a division would have other bits on GPUs, where torch multiplies, too


def per_tensor_quant_mla_fp8(
    x: torch.Tensor, x_s_out: torch.Tensor, eps: float = 1e-12
) -> tuple[torch.Tensor, torch.Tensor]:
    """FP8 with a scale computed for the tensor, in two launches: codes, and `x_s_out`, which is overwritten.

    Args:
        x: (heads, rows, head_size), with any strides of the first two.
        x_s_out: where to write the scale, float32 (1,).
        eps: the least amax, up to 1 / 512, which is the least one here.

    Raises:
        ValueError: an argument that is not allowed.
    """
    if eps > _LARGEST_EPS:
        raise ValueError(f"eps: is {eps!r}; allowed are numbers up to {_LARGEST_EPS}, the least amax here")
    return jitnorm.quantize(x, spec=_E4M3, scale="tensor", out_scale=x_s_out).data, x_s_out
