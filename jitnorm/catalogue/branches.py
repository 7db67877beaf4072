"""Layer normalization of the sum of a residual and a branch, with gates and modulation, as in DiT."""

from __future__ import annotations

from typing import Any

from jitnorm.catalogue.encodings import ANY_ENCODING, GENERAL_OUTPUTS, encoding_options
from jitnorm.catalogue.op import WITHOUT_WEIGHT, Choices, Fields, Op
from jitnorm.kernels.quant_spec import QuantSpec

_INPUT = {"branch_gate": "gate", "branch_scale": "input_scale"}
_MODULATION = {**_INPUT, "modulation_scale": "scale", "modulation_shift": "shift"}
# The names of a quantized norm's scale, because `scale` is that of its modulation.
_ENCODED = {**GENERAL_OUTPUTS, "scale": "quant_scale"}
_ROUNDING: dict[str, Any] = {"rounding": "once"}
_QUANTIZED: dict[str, Any] = {**ANY_ENCODING, "batched": False, "scale_per_matrix": False}


def _gated(gate_bias: bool, branch_scale: bool) -> Fields:
    return {"gate_bias": gate_bias, "branch_scale": branch_scale}


def _gated_quantized(quant: QuantSpec, batched: bool, scale_per_matrix: bool, *of_branch: bool) -> Fields:
    return {"quant": quant, "batched": batched, "scale_per_matrix": scale_per_matrix, **_gated(*of_branch)}


def _modulated(residual: bool, branch_gate: bool, modulation_bias: bool, *of_branch: bool) -> Fields:
    return {
        "residual": residual, "branch_gate": branch_gate, "modulation_bias": modulation_bias, **_gated(*of_branch),
    }  # fmt: skip


def _modulated_quantized(quant: QuantSpec, batched: bool, scale_per_matrix: bool, *others: bool) -> Fields:
    return {"quant": quant, "batched": batched, "scale_per_matrix": scale_per_matrix, **_modulated(*others)}


def _quantized_options(_: Choices, fields: Fields) -> dict[str, Any]:
    options = {_ENCODED.get(name, name): value for name, value in encoding_options(fields["quant"]).items()}
    return {**options, "batched": fields["batched"]}


_GATED: dict[str, Any] = {"weight": "", **_ROUNDING, "gate_bias": False, "branch_scale": False}
_MODULATED: dict[str, Any] = {
    **_ROUNDING, "residual": False, "branch_gate": False, "modulation_bias": False, "gate_bias": False,
    "branch_scale": False,
}  # fmt: skip
_OF_GATED: Fields = {"op": "layernorm", "residual": True, "branch_gate": True}
_OF_MODULATED: Fields = {"op": "layernorm", "modulated": True, **WITHOUT_WEIGHT}
GATED_ADD_LAYERNORM = Op(
    "gated_add_layernorm", "the sum of residual and gate times input, and its LayerNorm", _OF_GATED, _gated,
    _INPUT, choices=_GATED,
)  # fmt: skip
GATED_ADD_LAYERNORM_QUANTIZE = Op(
    "gated_add_layernorm_quantize", "the same in any format", _OF_GATED, _gated_quantized,
    {**_INPUT, **_ENCODED}, finds_amax=True, choices={**_GATED, **_QUANTIZED}, options=_quantized_options,
)  # fmt: skip
ADAPTIVE_LAYERNORM = Op(
    "adaptive_layernorm", "LayerNorm with the scale and shift of DiT, optionally of gate times input plus residual",
    _OF_MODULATED, _modulated, _MODULATION, choices=_MODULATED,
)  # fmt: skip
ADAPTIVE_LAYERNORM_QUANTIZE = Op(
    "adaptive_layernorm_quantize", "the same in any format", _OF_MODULATED, _modulated_quantized,
    {**_MODULATION, **_ENCODED}, finds_amax=True, choices={**_MODULATED, **_QUANTIZED}, options=_quantized_options,
)  # fmt: skip

OPS = (GATED_ADD_LAYERNORM, ADAPTIVE_LAYERNORM, GATED_ADD_LAYERNORM_QUANTIZE, ADAPTIVE_LAYERNORM_QUANTIZE)
