"""SGLang's kernels of RMSNorm of rows, with one weight or several."""

from __future__ import annotations

import torch

import jitnorm


def rmsnorm(input: torch.Tensor, weight: torch.Tensor, out: torch.Tensor | None = None, eps: float = 1e-6) -> None:
    """RMSNorm into `out`; for None, in place."""
    jitnorm.rmsnorm(input, weight, eps, input if out is None else out)


def rmsnorm_hf(
    input: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6, out: torch.Tensor | None = None
) -> torch.Tensor:
    """RMSNorm, rounded before the weight, as in Transformers."""
    return jitnorm.rmsnorm(input, weight, eps, out, rounding="hf")


def fused_add_rmsnorm(
    input: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    eps: float = 1e-6,
    *,
    cast_x_before_out_mul: bool = False,
) -> None:
    """The residual becomes the sum, and the input its RMSNorm, rounded before the weight if asked for."""
    jitnorm.fused_add_rmsnorm(input, residual, weight, eps, rounding="vllm" if cast_x_before_out_mul else "once")


def fused_rmsnorm(x: torch.Tensor, weight: torch.Tensor, eps: float, inplace: bool = False) -> torch.Tensor:
    """RMSNorm, in place if asked for."""
    return jitnorm.rmsnorm(x, weight, eps, x if inplace else None)


def rmsnorm_fp32(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """RMSNorm; torch converts a weight to float32 that has neither that dtype nor the input's."""
    return jitnorm.rmsnorm(x, weight if weight.dtype == x.dtype else weight.float(), eps)


def can_use_rmsnorm_fanout(x: torch.Tensor) -> bool:
    """Whether `rmsnorm_fanout` has such rows: it has all, in any number."""
    return x.dtype in (torch.float16, torch.bfloat16, torch.float32)


def rmsnorm_fanout(
    x: torch.Tensor, weight0: torch.Tensor, weight1: torch.Tensor, weight2: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """RMSNorm with each of three weights, in one launch, for which torch stacks the weights."""
    weights = {"weight0": weight0, "weight1": weight1, "weight2": weight2}
    _check_shapes(x.shape[-1:], **weights)
    first, second, third = jitnorm.rmsnorm_multi(x, torch.stack([*weights.values()]), eps)
    return first, second, third


def _check_shapes(shape: torch.Size, **tensors: torch.Tensor) -> None:
    for name, tensor in tensors.items():
        if tensor.shape != shape:
            raise ValueError(f"{name}: shape is {tuple(tensor.shape)}; expected {tuple(shape)}")


def is_supported_fused_eh_norm_hidden_size(hidden_size: int) -> bool:
    """Whether `fused_eh_norm` has rows of that size: it has all that are not empty."""
    return hidden_size > 0


def fused_eh_norm(
    inputs_embeds: torch.Tensor,
    previous_hidden: torch.Tensor,
    enorm_weight: torch.Tensor,
    hnorm_weight: torch.Tensor,
    eps: float,
) -> torch.Tensor:
    """RMSNorm of embeddings beside that of hidden states, (tokens, 2 * hidden_size), in one launch."""
    shape = inputs_embeds.shape
    _check_shapes(shape, previous_hidden=previous_hidden)
    _check_shapes(shape[-1:], enorm_weight=enorm_weight, hnorm_weight=hnorm_weight)
    out = inputs_embeds.new_empty(*shape[:-1], 2 * shape[-1])
    jitnorm.q_kv_rmsnorm(inputs_embeds, previous_hidden, enorm_weight, hnorm_weight, eps, *out.chunk(2, -1))
    return out


def grouped_gemma_rmsnorm(
    input: torch.Tensor,
    weight: torch.Tensor,
    group_size: int,
    eps: float = 1e-6,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """RMSNorm of each group of a row times the group's weights, plus 1, as in Gemma; one launch for each group."""
    if group_size < 1 or input.shape[-1] % group_size:
        raise ValueError(f"group_size: is {group_size}, which does not divide the hidden size {input.shape[-1]}")
    made = torch.empty_like(input, memory_format=torch.contiguous_format) if out is None else out
    _check_shapes(input.shape[-1:], weight=weight)  # all groups before any is written
    _check_shapes(input.shape, out=made)
    groups = (each.split(group_size, -1) for each in (input, weight, made))
    for rows, weights, results in zip(*groups, strict=True):
        jitnorm.gemma_rmsnorm(rows, weights, eps, results)
    return made
