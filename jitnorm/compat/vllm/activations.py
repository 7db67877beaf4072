"""Operators of `torch.ops._C` for activations that are not encoded; outputs are the first arguments."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

import jitnorm


def silu_and_mul(result: torch.Tensor, input: torch.Tensor) -> None:
    """SwiGLU: SiLU of the first half of each row times the second."""
    jitnorm.silu_and_mul(input, result, rounding="hf")


def gelu_and_mul(out: torch.Tensor, input: torch.Tensor) -> None:
    """GELU, by erf, of the first half of each row times the second."""
    jitnorm.gelu_and_mul(input, out, rounding="hf")


def gelu_tanh_and_mul(out: torch.Tensor, input: torch.Tensor) -> None:
    """GELU, by tanh, of the first half of each row times the second."""
    jitnorm.gelu_tanh_and_mul(input, out, rounding="hf")


def swigluoai_and_mul(out: torch.Tensor, input: torch.Tensor, alpha: float = 1.702, limit: float = 7.0) -> None:
    """The clamped SwiGLU of gpt-oss, with alternating gates and values."""
    jitnorm.swigluoai_and_mul(input, out, alpha=alpha, limit=limit)


def silu_and_mul_with_clamp(
    result: torch.Tensor, input: torch.Tensor, limit: float, alpha: float = 1.0, beta: float = 0.0
) -> None:
    """SwiGLU of a first half of at most `limit` and a second half clamped to it, plus `beta`."""
    jitnorm.silu_and_mul_with_clamp(input, limit, result, alpha=alpha, beta=beta, rounding="hf")


def mul_and_silu(out: torch.Tensor, input: torch.Tensor) -> None:
    """The first half of each row times SiLU of the second."""
    jitnorm.mul_and_silu(input, out, rounding="hf")


def fatrelu_and_mul(out: torch.Tensor, input: torch.Tensor, threshold: float) -> None:
    """The first half of each row, or zero up to the threshold, times the second."""
    jitnorm.fatrelu_and_mul(input, threshold, out)


def relu_squared(out: torch.Tensor, input: torch.Tensor) -> None:
    """The square of ReLU."""
    jitnorm.relu2(input, out)


def gelu_new(out: torch.Tensor, input: torch.Tensor) -> None:
    """GELU by tanh; vLLM rounds some of its steps."""
    jitnorm.gelu_tanh(input, out)


def gelu_quick(out: torch.Tensor, input: torch.Tensor) -> None:
    """GELU by the sigmoid."""
    jitnorm.gelu_quick(input, out)


# The same function as `gelu_new`, with vLLM's products in a different order.
gelu_fast = gelu_new


def _silu(out: torch.Tensor, input: torch.Tensor) -> None:
    jitnorm.silu(input, out)


def _gelu(out: torch.Tensor, input: torch.Tensor) -> None:
    jitnorm.gelu(input, out)


# Those of `masked_moe_activation` that have no numbers.
_BY_NAME: dict[str, Callable[[torch.Tensor, torch.Tensor], None]] = {
    "silu": silu_and_mul,
    "gelu": gelu_and_mul,
    "gelu_tanh": gelu_tanh_and_mul,
    "silu_no_mul": _silu,
    "gelu_no_mul": _gelu,
    "gelu_tanh_no_mul": gelu_new,
    "relu2_no_mul": relu_squared,
}
_WITH_NUMBERS = ("silu_with_clamp", "swigluoai", "swigluoai_uninterleave")


def masked_moe_activation(
    out: torch.Tensor,
    input: torch.Tensor,
    valid_token_counts: torch.Tensor,
    activation: str,
    clamp_limit: float = 0.0,
    alpha: float = 1.0,
    beta: float = 0.0,
    situ_beta: float = 1.0,
    situ_linear_beta: float = -1.0,
) -> None:
    """An activation of the first tokens of each expert; other rows of `out` stay as they are.

    All rows are computed, and torch copies those of tokens.

    Args:
        out: (tokens, hidden_size), or (experts, tokens, hidden_size).
        input: likewise, with 2 * hidden_size if the activation is gated.
        valid_token_counts: the number of tokens of each expert.
        activation: silu, gelu or gelu_tanh, of the first half of each row, times the second; with ``_no_mul``, or
            relu2_no_mul, of each element; silu_with_clamp or swigluoai_uninterleave, as `silu_and_mul_with_clamp`;
            swigluoai, as `swigluoai_and_mul`.
        clamp_limit: of the activations that have a limit.
        alpha: likewise.
        beta: likewise, but not of swigluoai.
        situ_beta: ignored.
        situ_linear_beta: ignored.
    """
    function: Callable[[torch.Tensor, torch.Tensor], None]
    if activation in ("silu_with_clamp", "swigluoai_uninterleave"):
        function = partial(silu_and_mul_with_clamp, limit=clamp_limit, alpha=alpha, beta=beta)
    elif activation == "swigluoai":
        function = partial(swigluoai_and_mul, alpha=alpha, limit=clamp_limit)
    elif activation in _BY_NAME:
        function = _BY_NAME[activation]
    else:
        raise ValueError(f"activation: is {activation!r}; allowed are {', '.join((*_BY_NAME, *_WITH_NUMBERS))}")
    made = torch.empty_like(out)
    function(made, input)
    is_token = torch.arange(out.shape[-2], device=out.device) < valid_token_counts.view(-1, 1)
    out.copy_(torch.where(is_token.view(*out.shape[:-1], 1), made, out))
