"""Norms and quantization as programs write them in plain torch, in the styles of several libraries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from jitnorm.bench.torch_programs import PROGRAMS

EPS = 1e-5
Tensor = Any


def llama(x: Tensor, weight: Tensor) -> Tensor:
    """Transformers': what is normalized is rounded before the weight."""
    h = x.to(torch.float32)
    h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + EPS)
    return weight * h.to(x.dtype)


def gemma(x: Tensor, weight: Tensor) -> Tensor:
    h = x.float()
    return (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + EPS) * (1.0 + weight.float())).type_as(x)


def of_torch(x: Tensor, weight: Tensor) -> Tensor:
    return torch.nn.functional.rms_norm(x, weight.shape, weight, EPS)


def by_hand(x: Tensor, weight: Tensor) -> Tensor:
    """In float32 to the end, squared by a product, the factors the other way round."""
    h = x.float()
    return (weight.float() * (torch.rsqrt(EPS + torch.mean(h * h, dim=x.ndim - 1, keepdim=True)) * h)).to(x.dtype)


NORMS = {"llama": llama, "gemma": gemma, "of_torch": of_torch, "by_hand": by_hand}
# What rounds to 16 bits on the way to its result.
ROUNDS = {"llama": ("normalized",)}


def add_narrow(norm: Callable[..., Any], x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Transformers': the norm of the rounded sum."""
    total = residual + x
    return norm(total, weight), total


def add_wide(norm: Callable[..., Any], x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """vLLM's: the norm of the sum in float32."""
    h = x.to(torch.float32) + residual.to(torch.float32)
    total = h.to(x.dtype)
    h = h * torch.rsqrt(h.pow(2).mean(dim=-1, keepdim=True) + EPS)
    if norm is gemma:
        return (h * (1 + weight.float())).to(x.dtype), total
    return (h.to(x.dtype) * weight if norm is llama else (h * weight).to(x.dtype)), total


def token_of_vllm(y: Tensor) -> tuple[Tensor, Tensor]:
    amax, _ = y.abs().max(dim=-1)
    scale = (amax.unsqueeze(-1).to(torch.float32) / 448).clamp(min=1.0 / (448 * 512))
    return (y.to(torch.float32) * scale.reciprocal()).clamp(-448, 448).to(torch.float8_e4m3fn), scale


def token_by_amax(y: Tensor) -> tuple[Tensor, Tensor]:
    """Bounded before the division, divided, of flattened rows, in E5M2."""
    y = y.float().view(-1, y.shape[-1])
    scale = y.abs().amax(1, keepdim=True).clamp_min(1 / 512) / 57344
    return (y / scale).clamp(min=-57344, max=57344).to(torch.float8_e5m2), scale


def group_of_deepgemm(y: Tensor) -> tuple[Tensor, Tensor]:
    """Unclamped, and multiplied by the reciprocal of the amax."""
    groups = y.reshape(-1, y.shape[-1] // 128, 128)
    amax = groups.abs().float().amax(dim=2).clamp(1e-4)
    codes = (groups * (448.0 / amax.unsqueeze(2))).to(torch.float8_e4m3fn)
    return codes.view(y.shape), amax / 448.0


def group_of_64(y: Tensor) -> tuple[Tensor, Tensor]:
    groups = y.unflatten(-1, (-1, 64)).float()
    scale = torch.clamp(groups.abs().amax(-1, keepdim=True), min=1e-4) / 448
    return (groups * (1 / scale)).clamp(-448, 448).to(torch.float8_e4m3fn).flatten(-2), scale.squeeze(-1)


FOUND_SCALES = {
    "e4m3/row/f32": token_of_vllm, "e5m2/row/f32": token_by_amax, "e4m3/128/f32": group_of_deepgemm,
    "e4m3/64/f32": group_of_64,
}  # fmt: skip


def static_of_vllm(y: Tensor, scale: Tensor) -> Tensor:
    return (y.to(torch.float32) * scale.reciprocal()).clamp(-448.0, 448.0).to(torch.float8_e4m3fn)


def static_of_torchao(y: Tensor, scale: Tensor) -> Tensor:
    return (y.to(torch.float32) / scale).clamp(min=-448.0, max=448.0).to(torch.float8_e4m3fn)


GIVEN_SCALE = {"vllm": static_of_vllm, "torchao": static_of_torchao}
MEASURED = {name: PROGRAMS[name] for name in ("fp8 token", "add fp8 token", "rmsnorm fp8 128", "add fp8 128")}
