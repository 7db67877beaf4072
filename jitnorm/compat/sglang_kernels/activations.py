"""SGLang's kernels of activations, alone and times values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import jitnorm

_LARGEST_LIMIT = 2.0**127
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
        sorted_token_ids: the token of each row, of which those from `num_valid_tokens` on are padding, which stays as
            it is; ignored without `expert_ids`.
        num_tokens_post_padded: the number of rows before further padding; goes with that.
        num_valid_tokens: likewise.

    Raises:
        ValueError: an argument that is not allowed.
    """
    if op_name not in _ACTIVATIONS:
        raise ValueError(f"op_name: is {op_name!r}; allowed are {', '.join(_ACTIVATIONS)}")
    function = _ACTIVATIONS[op_name]
    if expert_ids is None:
        return function(input, out)
    made = function(input)
    if out is None:
        return made
    rows = torch.arange(made.numel() // made.shape[-1], device=made.device)
    is_left = expert_ids[rows // expert_step] == -1
    if sorted_token_ids is not None:
        is_left |= (sorted_token_ids[rows] >= num_valid_tokens) | (rows >= num_tokens_post_padded)
    return _copy_others(made, is_left.view(made.shape[:-1]), out)


def _copy_others(made: torch.Tensor, is_left: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """Copy rows except those that are left as they are."""
    return torch.where(is_left.unsqueeze(-1), out, made, out=out)


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
    """SiLU of the first half of each row, rounded, times the second; both are limited if `clamp_limit` is positive."""
    if clamp_limit > 0:
        return jitnorm.silu_and_mul_with_clamp(input, clamp_limit, out, rounding="hf")
    return jitnorm.silu_and_mul(input, out, rounding="hf")


def gelu_and_mul_with_activation_rounding(input: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """GELU, by erf, of the first half of each row, rounded, times the second."""
    return jitnorm.gelu_and_mul(input, out, rounding="hf")


def relu2(input: torch.Tensor, out: torch.Tensor | None = None, *, fast_math: bool = True) -> torch.Tensor:
    """The square of ReLU; subnormal results are kept always, as for `fast_math` of False."""
    return jitnorm.relu2(input, out)


def silu_and_mul_clamp(input: torch.Tensor, output: torch.Tensor, swiglu_limit: float) -> None:
    """SwiGLU of a first half of at most `swiglu_limit` and a second half clamped to it; the limit is not rounded."""
    jitnorm.silu_and_mul_with_clamp(input, limit_of("swiglu_limit", swiglu_limit), output)


def silu_and_mul_masked_fwd(input: torch.Tensor, output: torch.Tensor, masked_m: torch.Tensor) -> torch.Tensor:
    """SwiGLU of the first ``masked_m[e]`` rows of each expert; torch copies them, and the others stay as they are.

    Args:
        input: (experts, rows, 2 * hidden_size), gates and then values.
        output: where to write, (experts, rows, hidden_size).
        masked_m: integers (experts,).
    """
    made = jitnorm.silu_and_mul(input)
    is_left = torch.arange(made.shape[1], device=made.device) >= masked_m.unsqueeze(-1)
    return _copy_others(made, is_left, output)


def swiglu_oai_split(
    gate_up: torch.Tensor,
    alpha: float,
    beta: float,
    limit: float | None,
    out_dtype: torch.dtype | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Clamped SwiGLU, ``gate * sigmoid(alpha * gate) * (value + beta)``, of rows with gates and then values.

    Args:
        gate_up: (..., 2 * hidden_size).
        alpha: from 0.01 to 100.
        beta: what is added to values.
        limit: of gates, and of values in magnitude; None is 2^127.
        out_dtype: None, or the dtype of `gate_up`.
        out: where to write, (rows, hidden_size); None allocates.

    Raises:
        ValueError: an argument that is not allowed.
    """
    if out_dtype not in (None, gate_up.dtype):
        raise ValueError(f"out_dtype: is {out_dtype}; allowed are None and that of gate_up, {gate_up.dtype}")
    *leading, columns = gate_up.shape
    rows = gate_up.reshape(-1, columns)
    made = jitnorm.silu_and_mul_with_clamp(rows, limit_of("limit", limit), out, alpha=alpha, beta=beta)
    return made.reshape(*leading, columns // 2)


def bias_gelu_tanh(input: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """GELU, by tanh, of the sum of input and bias, which torch adds and rounds."""
    total = input + bias
    return jitnorm.gelu_tanh(total, total)


def limit_of(name: str, limit: float | None) -> float:
    """The limit of gates and values; for None, the largest that there is.

    Raises:
        ValueError: it is not positive.
    """
    if limit is None:
        return _LARGEST_LIMIT
    if not limit > 0:
        raise ValueError(f"{name}: is {limit!r}; allowed are positive numbers")
    return limit
