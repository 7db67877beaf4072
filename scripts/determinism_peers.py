"""Calls of jitnorm's ops and of equivalent functions in other libraries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jitnorm

EPS = 1e-6
Tensor = Any
# jitnorm's result and the other's, as bytes or in a comparable dtype, and whether all values must be equal.
Pair = tuple[Tensor, Tensor, bool]


def _llama(rounding: str) -> Callable[[Tensor, Tensor], Pair]:
    def compare(x: Tensor, weight: Tensor) -> Pair:
        import torch
        from transformers.models.llama.modeling_llama import LlamaRMSNorm

        weight = weight.to(x.dtype)
        norm = LlamaRMSNorm(x.shape[-1], eps=EPS).to(x.dtype)
        with torch.no_grad():
            norm.weight.copy_(weight)
            return jitnorm.rmsnorm(x, weight, EPS, rounding=rounding), norm(x), False

    return compare


def _mx(element: str, scale_rounding: str, mode: str) -> Callable[[Tensor, Tensor], Pair]:
    spec = jitnorm.QuantSpec(element, 32, "ue8m0", scale_rounding=scale_rounding)

    def compare(x: Tensor, _: Tensor) -> Pair:
        import torch
        from torchao.prototype.mx_formats import mx_tensor

        dtype = torch.float4_e2m1fn_x2 if element == "e2m1" else torch.float8_e4m3fn
        scales, codes = mx_tensor.to_mx(x, dtype, 32, getattr(mx_tensor.ScaleCalculationMode, mode))
        ours = jitnorm.quantize(x, spec=spec)
        return _joined(ours.data, ours.scale), _joined(codes, scales), True

    return compare


def _nvfp4(x: Tensor, _: Tensor) -> Pair:
    from torchao.prototype.mx_formats.nvfp4_tensor import nvfp4_quantize

    scales, codes = nvfp4_quantize(x.float())
    ours = jitnorm.quantize(x, spec=jitnorm.NVFP4)
    return _joined(ours.data, ours.scale), _joined(codes, scales), False


def _fp8_rows(x: Tensor, _: Tensor) -> Pair:
    import torch
    from torchao.quantization.quant_primitives import _choose_scale_float8, _quantize_affine_float8

    scale = _choose_scale_float8(x, [1, x.shape[-1]])
    codes = _quantize_affine_float8(x, scale, torch.float8_e4m3fn)
    ours = jitnorm.quantize(x, spec=jitnorm.FP8_TOKEN)
    return ours.data.view(torch.uint8), codes.view(torch.uint8), False


def _joined(codes: Tensor, scales: Tensor) -> Tensor:
    import torch

    rows = [part.contiguous().view(torch.uint8).reshape(len(codes), -1) for part in (codes, scales)]
    return torch.cat(rows, dim=1)


# The comparisons with each library.
PEERS: dict[str, dict[tuple[str, str], Callable[[Tensor, Tensor], Pair]]] = {
    "transformers": {
        ("rmsnorm, rounding hf, bfloat16", "Transformers' LlamaRMSNorm"): _llama("hf"),
        ("rmsnorm, rounding once, bfloat16", "Transformers' LlamaRMSNorm"): _llama("once"),
    },
    "torchao": {
        ("quantize, MXFP8, floor", "torchao's to_mx"): _mx("e4m3", "floor", "FLOOR"),
        ("quantize, MXFP8, up", "torchao's to_mx, RCEIL"): _mx("e4m3", "up", "RCEIL"),
        ("quantize, MXFP4, floor", "torchao's to_mx"): _mx("e2m1", "floor", "FLOOR"),
        ("quantize, MXFP4, even", "torchao's to_mx"): _mx("e2m1", "even", "EVEN"),
        ("quantize, NVFP4", "torchao's nvfp4_quantize"): _nvfp4,
        ("quantize, FP8_TOKEN, codes", "torchao's float8 of rows"): _fp8_rows,
    },
}
