"""Activations without encoding: of values, and of gates that are multiplied by values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jitnorm.catalogue.encodings import ROUNDING
from jitnorm.catalogue.op import Choices, Fields, Op
from jitnorm.kernels.activations import numbers_of


def granularity_of(choices: Choices) -> int | None:
    """The public functions' argument for `gate_columns`, where -1 means halves."""
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


def _values(name: str, activation: str = "") -> Op:
    computes = "an activation: SiLU; GELU by erf, tanh or sigmoid; the square of ReLU"
    return Op(name, computes, {"op": "quantize", "activation": activation or name})


def _turns_of(gate_columns: int, activation: str) -> Fields:
    return {"gate_columns": gate_columns, "activation": activation}


def _swigluoai_options(choices: Choices, fields: Fields) -> dict[str, Any]:
    numbers = numbers_of(fields["activation"])
    clamp = {"limit": numbers.limit, "alpha": numbers.alpha} if numbers else {}
    return {**_turns_options(choices, fields), **clamp}


def _clamped_options(choices: Choices, fields: Fields) -> dict[str, Any]:
    numbers = numbers_of(fields["activation"])
    return {**_swigluoai_options(choices, fields), **({"beta": numbers.beta} if numbers else {})}


def _fat_options(choices: Choices, fields: Fields) -> dict[str, Any]:
    numbers = numbers_of(fields["activation"])
    return {**_turns_options(choices, fields), "threshold": numbers.threshold if numbers else 0.0}


def _gates_with_numbers(name: str, computes: str, options: Callable[..., dict[str, Any]], **choices: Any) -> Op:
    return Op(
        name, computes, {"op": "quantize"}, _turns_of, choices={"gate_columns": -1, **choices}, options=options,
    )  # fmt: skip


_OF_GATES = "the SiLU or GELU of gates times values: SwiGLU, GEGLU"
SILU_AND_MUL = _gates("silu_and_mul", "silu", _OF_GATES, **ROUNDING)
GELU_AND_MUL = _gates("gelu_and_mul", "gelu", _OF_GATES, **ROUNDING)
GELU_TANH_AND_MUL = _gates("gelu_tanh_and_mul", "gelu_tanh", _OF_GATES, **ROUNDING)
_CLAMPED = "clamped SwiGLU: gpt-oss's, of interleaved columns or halves, or with any limit"
SWIGLUOAI_AND_MUL = _gates_with_numbers(
    "swigluoai_and_mul", _CLAMPED, _swigluoai_options, gate_columns=1, activation="swigluoai"
)
SILU_AND_MUL_WITH_CLAMP = _gates_with_numbers(
    "silu_and_mul_with_clamp", _CLAMPED, _clamped_options, activation="swiglu:7:1:0", **ROUNDING
)
FATRELU_AND_MUL = _gates_with_numbers(
    "fatrelu_and_mul", "gates above a threshold times values", _fat_options, activation="fatrelu:0.5", **ROUNDING
)
MUL_AND_SILU = Op(
    "mul_and_silu", "SwiGLU with values before gates",
    {"op": "quantize", "activation": "silu", "gate_columns": -1, "values_first": True}, choices=ROUNDING,
)  # fmt: skip
SILU, GELU, GELU_TANH, RELU2 = map(_values, ("silu", "gelu", "gelu_tanh", "relu2"))
GELU_QUICK = _values("gelu_quick", "swish:1.702")

OPS = (
    SILU_AND_MUL, GELU_AND_MUL, GELU_TANH_AND_MUL, SWIGLUOAI_AND_MUL, SILU_AND_MUL_WITH_CLAMP, MUL_AND_SILU,
    FATRELU_AND_MUL, SILU, GELU, GELU_TANH, GELU_QUICK, RELU2,
)  # fmt: skip
