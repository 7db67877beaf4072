"""Activations without encoding: of values, and of gates that are multiplied by values."""

from __future__ import annotations

from typing import Any

from jitnorm.catalogue.encodings import ROUNDING
from jitnorm.catalogue.op import Choices, Fields, Op


def granularity_of(choices: Choices) -> int | None:
    """The argument of functions for `gate_columns`, of which -1 means halves."""
    return None if choices["gate_columns"] == -1 else choices["gate_columns"]


def _turns(gate_columns: int) -> Fields:
    return {"gate_columns": gate_columns}


def _turns_options(choices: Choices, _: Fields) -> dict[str, Any]:
    return {"granularity": granularity_of(choices)}


def _gates(name: str, activation: str, computes: str, **choices: Any) -> Op:
    return Op(
        name, computes, {"op": "quantize", "activation": activation}, _turns, choices={"gate_columns": -1, **choices},
        options=_turns_options,
    )  # fmt: skip


def _values(activation: str) -> Op:
    computes = "an activation: SiLU, GELU by erf or by tanh, the square of ReLU"
    return Op(activation, computes, {"op": "quantize", "activation": activation})


_OF_GATES = "the SiLU or GELU of gates, times values: SwiGLU, GEGLU"
SILU_AND_MUL = _gates("silu_and_mul", "silu", _OF_GATES, **ROUNDING)
GELU_AND_MUL = _gates("gelu_and_mul", "gelu", _OF_GATES, **ROUNDING)
GELU_TANH_AND_MUL = _gates("gelu_tanh_and_mul", "gelu_tanh", _OF_GATES, **ROUNDING)
SWIGLUOAI_AND_MUL = _gates(
    "swigluoai_and_mul",
    "swigluoai",
    "the clamped SwiGLU of gpt-oss, of interleaved columns or of halves",
    gate_columns=1,
)
SILU, GELU, GELU_TANH, RELU2 = map(_values, ("silu", "gelu", "gelu_tanh", "relu2"))

OPS = (SILU_AND_MUL, GELU_AND_MUL, GELU_TANH_AND_MUL, SWIGLUOAI_AND_MUL, SILU, GELU, GELU_TANH, RELU2)
