"""The gradients of ops, for frameworks with automatic differentiation."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from jitnorm.catalogue import norms
from jitnorm.catalogue.op import Op
from jitnorm.ops.backward import gemma_rmsnorm_backward, layernorm_backward, rmsnorm_backward, rmsnorm_bias_backward

Tensors = Mapping[str, Any]
"""Tensors by the names of an op's arguments."""
Backward = Callable[..., tuple[Any, ...]]


@dataclass(frozen=True)
class Gradient:
    """The gradient of an op.

    Attributes:
        saved: the names of the arguments that it takes besides the gradients of outputs.
        backward: computes the gradients of inputs, by name, from the saved tensors, the gradients of outputs (None for
            those that nothing depends on), `eps` and the names of inputs that need gradients; of others, it may leave
            out those of parameters.
        recorded: the op to call instead, with the same arguments, while gradients are recorded: its outputs are those
            of the call, followed by others to save; None for the op itself.
    """

    saved: tuple[str, ...]
    backward: Callable[[Tensors, Tensors, float, Collection[str]], dict[str, Any]]
    recorded: Op | None = None


def gradient_of(op: Op) -> Gradient | None:
    """The gradient of an op, or None if it has none."""
    return _GRADIENTS.get(op.name)


def _of_norm(function: Backward, *parameters: str) -> Gradient:
    """The gradient of a norm with such parameters, its weight first."""
    names = ("input", *parameters)

    def backward(saved: Tensors, grads: Tensors, eps: float, needed: Collection[str]) -> dict[str, Any]:
        weight_grad = any(name in needed for name in parameters)
        found = function(grads["out"], saved["input"], saved[parameters[0]], eps, weight_grad=weight_grad)
        return dict(zip(names, found, strict=True))

    return Gradient(("input", parameters[0]), backward)


def _of_layernorm() -> Gradient:
    """The gradient of layer normalization, which saves the statistics of rows."""
    saved = ("input", "mean", "rstd", "gemma")

    def backward(saved_tensors: Tensors, grads: Tensors, eps: float, needed: Collection[str]) -> dict[str, Any]:
        weight_grad = "gemma" in needed or "beta" in needed
        found = layernorm_backward(grads["out"], *(saved_tensors[name] for name in saved), weight_grad=weight_grad)
        return dict(zip(("input", "gemma", "beta"), found, strict=True))

    return Gradient(saved, backward, norms.LAYERNORM_WITH_STATISTICS)


def _of_sum(function: Backward) -> Gradient:
    """The gradient of a norm with a residual, whose stored sum is known."""

    def backward(saved: Tensors, grads: Tensors, eps: float, needed: Collection[str]) -> dict[str, Any]:
        of_norm, of_sum = grads["out"], grads["residual_out"]
        if of_norm is None:
            return {"input": of_sum, "residual": of_sum, "weight": None}
        options: dict[str, Any] = {"residual_grad": of_sum, "weight_grad": "weight" in needed}
        found, weight = function(of_norm, saved["residual_out"], saved["weight"], eps, **options)
        return {"input": found, "residual": found, "weight": weight}

    return Gradient(("residual_out", "weight"), backward)


def _of_pair(function: Backward) -> Gradient:
    def backward(saved: Tensors, grads: Tensors, eps: float, needed: Collection[str]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name in ("q", "k"):
            if (grad := grads[f"{name}_out"]) is not None:
                weight = f"{name}_weight"
                pair = function(grad, saved[name], saved[weight], eps, weight_grad=weight in needed)
                found[name], found[weight] = pair
        return found

    return Gradient(("q", "k", "q_weight", "k_weight"), backward)


_GRADIENTS = {
    norms.RMSNORM.name: _of_norm(rmsnorm_backward, "weight"),
    norms.GEMMA_RMSNORM.name: _of_norm(gemma_rmsnorm_backward, "weight"),
    norms.RMSNORM_BIAS.name: _of_norm(rmsnorm_bias_backward, "weight", "bias"),
    norms.LAYERNORM.name: _of_layernorm(),
    norms.ADD_RMSNORM.name: _of_sum(rmsnorm_backward),
    norms.GEMMA_ADD_RMSNORM.name: _of_sum(gemma_rmsnorm_backward),
    norms.FUSED_ADD_RMSNORM.name: _of_sum(rmsnorm_backward),
    norms.GEMMA_FUSED_ADD_RMSNORM.name: _of_sum(gemma_rmsnorm_backward),
    norms.QK_RMSNORM.name: _of_pair(rmsnorm_backward),
    norms.Q_KV_RMSNORM.name: _of_pair(rmsnorm_backward),
    norms.GEMMA_QK_RMSNORM.name: _of_pair(gemma_rmsnorm_backward),
}
