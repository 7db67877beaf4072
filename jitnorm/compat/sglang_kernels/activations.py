"""SGLang's kernels of activations, alone and times values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import jitnorm

_ACTIVATIONS: dict[str, Callable[..., Any]] = {
    "silu": jitnorm.silu_and_mul,
    "gelu": jitnorm.gelu_and_mul,
    "gelu_tanh": jitnorm.gelu_tanh_and_mul,
}


def run_activation(
    op_name: str,
    input: torch.Tensor,
    out: torch.Tensor | None,
    expert_ids: torch.Tensor | None = None,
    expert_step: int = 1,
    *,
    sorted_token_ids: torch.Tensor | None = None,
    num_tokens_post_padded: torch.Tensor | None = None,
    num_valid_tokens: int = 0,
) -> torch.Tensor:
    """An activation of the first half of each row times the second.

    Args:
        op_name: silu, gelu (by erf) or gelu_tanh.
        input: float16, bfloat16 or float32, shape (..., 2 * hidden_size).
        out: where to write the result; None: into a new tensor.
        expert_ids: the expert of each `expert_step` rows; the rows of -1 stay as they are: torch copies the others.
        expert_step: how many rows an expert has each time.
        sorted_token_ids: has to be None.
        num_tokens_post_padded: goes with that.
        num_valid_tokens: likewise.

    Raises:
        ValueError: an argument that is not allowed.
    """
    if op_name not in _ACTIVATIONS:
        raise ValueError(f"op_name: is {op_name!r}; allowed are {', '.join(_ACTIVATIONS)}")
    if sorted_token_ids is not None:
        raise ValueError("sorted_token_ids: is given; rows in other orders are not taken, so pass None")
    function = _ACTIVATIONS[op_name]
    if expert_ids is None:
        return function(input, out)
    made = function(input)
    if out is None:
        return made
    rows = torch.arange(made.numel() // made.shape[-1], device=made.device)
    is_kept = (expert_ids[rows // expert_step] == -1).view(*made.shape[:-1], 1)
    return out.copy_(torch.where(is_kept, out, made))


def silu_and_mul(input: torch.Tensor, out: torch.Tensor | None = None, *args: Any, **keywords: Any) -> torch.Tensor:
    """`run_activation` of SiLU."""
    return run_activation("silu", input, out, *args, **keywords)


def gelu_and_mul(input: torch.Tensor, out: torch.Tensor | None = None, *args: Any, **keywords: Any) -> torch.Tensor:
    """`run_activation` of GELU by erf."""
    return run_activation("gelu", input, out, *args, **keywords)


def gelu_tanh_and_mul(
    input: torch.Tensor, out: torch.Tensor | None = None, *args: Any, **keywords: Any
) -> torch.Tensor:
    """`run_activation` of GELU by tanh."""
    return run_activation("gelu_tanh", input, out, *args, **keywords)


def silu_and_mul_with_activation_rounding(
    input: torch.Tensor, out: torch.Tensor | None = None, *, clamp_limit: float = 0.0
) -> torch.Tensor:
    """SiLU of the first half of each row, rounded, times the second."""
    if clamp_limit:
        raise ValueError(f"clamp_limit: is {clamp_limit}; allowed is 0, no limit")
    return jitnorm.silu_and_mul(input, out, rounding="hf")


def gelu_and_mul_with_activation_rounding(input: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """GELU, by erf, of the first half of each row, rounded, times the second."""
    return jitnorm.gelu_and_mul(input, out, rounding="hf")


def relu2(input: torch.Tensor, out: torch.Tensor | None = None, *, fast_math: bool = True) -> torch.Tensor:
    """The square of ReLU; subnormal results are kept always, as for `fast_math` of False."""
    return jitnorm.relu2(input, out)
