"""jitnorm as a provider of the ops of vLLM's IR, under the name ``jitnorm``."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from jitnorm.kernels.config_rules import MAX_HIDDEN_SIZE
from jitnorm.ops import norm

PROVIDER = "jitnorm"
_DTYPES = (torch.float16, torch.bfloat16, torch.float32)


def register() -> None:
    """Register the implementations with vLLM's IR, once; does nothing if vLLM has no IR."""
    try:
        from vllm.ir import ops
    except ImportError:
        return
    implementations: tuple[tuple[Any, Any, Any, dict[str, bool]], ...] = (
        (ops.rms_norm, rms_norm, _takes_norm, {}),
        (ops.fused_add_rms_norm, fused_add_rms_norm, _takes_add_norm, {"inplace": True}),
    )
    for op, implementation, takes, options in implementations:
        if PROVIDER not in op.impls:
            supported = torch.version.hip is None
            op.register_impl(PROVIDER, supports_args=takes, supported=supported, **options)(implementation)


def rms_norm(x: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None) -> Tensor:
    """RMSNorm with the roundings of the IR's definition: the normalized value, if the weight has its dtype."""
    is_rounded = weight is not None and weight.dtype == x.dtype
    return norm.rmsnorm(x, weight, epsilon, rounding="hf" if is_rounded else "once")


def fused_add_rms_norm(
    x: Tensor, x_residual: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None
) -> tuple[Tensor, Tensor]:
    """`rms_norm` of the unrounded sum with the residual, in place: writes the norm to `x`, the sum to `x_residual`."""
    is_rounded = weight is not None and weight.dtype == x.dtype
    norm.fused_add_rmsnorm(x, x_residual, weight, epsilon, rounding="vllm" if is_rounded else "once")
    return x, x_residual


def _takes_norm(x: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None) -> bool:
    """Whether jitnorm computes this norm: of whole rows, on the CPU or a GPU."""
    size = x.shape[-1]
    takes_rows = x.dtype in _DTYPES and 1 <= size <= MAX_HIDDEN_SIZE and (size == 1 or x.stride(-1) == 1)
    takes_weight = weight is None or (
        weight.dtype in (x.dtype, torch.float32) and weight.shape == x.shape[-1:] and weight.is_contiguous()
    )
    return variance_size is None and takes_rows and takes_weight and x.device.type in ("cpu", "cuda")


def _takes_add_norm(
    x: Tensor, x_residual: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None
) -> bool:
    """Whether jitnorm computes this norm with a residual."""
    is_like = x_residual.dtype == x.dtype and x_residual.shape == x.shape and x_residual.stride(-1) == x.stride(-1)
    return is_like and _takes_norm(x, weight, epsilon, variance_size)
