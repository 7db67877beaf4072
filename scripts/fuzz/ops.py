"""The ops that are fuzzed: the arguments of each, its call, and the reference's result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from encoded import GIVEN, KINDS, encoded, given_keywords
from numpy.typing import NDArray

import jitnorm
from jitnorm import reference

Array = NDArray[Any]
Tensors = Mapping[str, Any]
Choices = dict[str, Any]


@dataclass(frozen=True)
class FuzzedOp:
    """One op.

    Attributes:
        tensors: its tensors by name, each (..., H), a vector if the name is in `VECTORS`; what is written ends in "out"
            or is named by `in_place`.
        call: makes the call of the tensors, by name, with `eps` and the choices.
        expected: what each written tensor must hold, of arrays (M, H); what is encoded for ops with a spec.
        options: the values of each choice.
        in_place: the inputs that are written.
        halves: whether a row of the input has gates and values, 2H.
    """

    tensors: tuple[str, ...]
    call: Callable[[Tensors, float, Choices], Any]
    expected: Callable[[Tensors, float, Choices], dict[str, Array]]
    options: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    in_place: tuple[str, ...] = ()
    halves: bool = False


VECTORS = ("weight", "bias", "gemma", "beta")
_WEIGHTS = ("same", "float32")
_GATES = ("silu", "gelu", "gelu_tanh")


def _norm(t: Tensors, eps: float, c: Choices) -> dict[str, Array]:
    return {"out": reference.rmsnorm_f32(t["input"], t["weight"], eps, rounding=c["rounding"])}


def _added(t: Tensors, eps: float, c: Choices) -> dict[str, Array]:
    y = reference.rmsnorm_f32(t["input"], t["weight"], eps, residual=t["residual"], weight_bias=float(c["gemma"]))
    return {"input": y, "residual": reference.stored_residual(t["input"], t["residual"])}


def _encode_norm(t: Tensors, eps: float, c: Choices) -> Any:
    others = {"residual": t["residual"], "unit_bias": c["unit_bias"], "eps": eps}
    return jitnorm.norm_quantize(t["input"], t["weight"], **others, **_spec(t, c))


def _encoded_norm(t: Tensors, eps: float, c: Choices) -> dict[str, Array]:
    y = reference.rmsnorm_f32(t["input"], t["weight"], eps, residual=t["residual"], weight_bias=float(c["unit_bias"]))
    return {"residual": reference.stored_residual(t["input"], t["residual"]), "encoded": y}


def _spec(t: Tensors, c: Choices) -> dict[str, Any]:
    return {**given_keywords(KINDS[c["spec"]], t["make"]), "out": t.get("data"), "out_scale": t.get("scale")}


SPECS = {"spec": tuple(range(len(KINDS)))}
OPS = {
    "rmsnorm": FuzzedOp(
        ("input", "weight", "out"),
        lambda t, eps, c: jitnorm.rmsnorm(t["input"], t["weight"], eps, t["out"], rounding=c["rounding"]),
        _norm,
        {"weight": _WEIGHTS, "rounding": ("once", "hf")},
    ),
    "rmsnorm_bias": FuzzedOp(
        ("input", "weight", "bias", "out"),
        lambda t, eps, c: jitnorm.rmsnorm_bias(t["input"], t["weight"], t["bias"], eps, t["out"]),
        lambda t, eps, c: {"out": reference.rmsnorm_f32(t["input"], t["weight"], eps, bias=t["bias"])},
        {"weight": _WEIGHTS},
    ),
    "rmsnorm_silu": FuzzedOp(
        ("input", "weight", "out"),
        lambda t, eps, c: jitnorm.rmsnorm_silu(t["input"], t["weight"], eps, t["out"], activation=c["activation"]),
        lambda t, eps, c: {"out": reference.activated_rmsnorm_f32(t["input"], t["weight"], c["activation"], eps=eps)},
        {"weight": _WEIGHTS, "activation": _GATES},
    ),
    "fused_add_rmsnorm": FuzzedOp(
        ("input", "residual", "weight"),
        lambda t, eps, c: (jitnorm.gemma_fused_add_rmsnorm if c["gemma"] else jitnorm.fused_add_rmsnorm)(
            t["input"], t["residual"], t["weight"], eps
        ),
        _added,
        {"weight": _WEIGHTS, "gemma": (False, True)},
        ("input", "residual"),
    ),
    "layernorm": FuzzedOp(
        ("input", "gemma", "beta", "out"),
        lambda t, eps, c: jitnorm.layernorm(t["input"], t["gemma"], t["beta"], eps, out=t["out"]),
        lambda t, eps, c: {"out": reference.layernorm_f32(t["input"], t["gemma"], t["beta"], eps)},
        {"weight": ("float32",)},
    ),
    "silu_and_mul": FuzzedOp(
        ("input", "out"),
        lambda t, eps, c: getattr(jitnorm, f"{c['activation']}_and_mul")(t["input"], t["out"]),
        lambda t, eps, c: {"out": reference.gated_f32(t["input"], c["activation"])},
        {"activation": _GATES},
        halves=True,
    ),
    "activation": FuzzedOp(
        ("input", "out"),
        lambda t, eps, c: getattr(jitnorm, c["activation"])(t["input"], t["out"]),
        lambda t, eps, c: {"out": reference.activated_f32(t["input"], c["activation"])},
        {"activation": (*_GATES, "relu2")},
    ),
    "norm_quantize": FuzzedOp(
        ("input", "residual", "weight"),
        _encode_norm,
        _encoded_norm,
        {"weight": _WEIGHTS, "unit_bias": (False, True), **SPECS},
        ("residual",),
    ),
    "quantize": FuzzedOp(
        ("input",),
        lambda t, eps, c: jitnorm.quantize(t["input"], **_spec(t, c)),
        lambda t, eps, c: {"encoded": t["input"].astype(np.float32)},
        SPECS,
    ),
    "silu_and_mul_quantize": FuzzedOp(
        ("input",),
        lambda t, eps, c: jitnorm.silu_and_mul_quantize(t["input"], **_spec(t, c)),
        lambda t, eps, c: {"encoded": reference.swiglu_f32(t["input"])},
        SPECS,
        halves=True,
    ),
}


def encoding_of(y: Array, c: Choices) -> dict[str, Array]:
    """The arrays that encoding rows must give, by the fields of a `QuantizedTensor`."""
    return encoded(y, KINDS[c["spec"]], GIVEN)
