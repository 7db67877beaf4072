"""Quantization of experts' rows, which follow one another."""

from __future__ import annotations

from typing import Any

from jitnorm.catalogue.activations import granularity_of
from jitnorm.catalogue.encodings import ANY_ENCODING, GENERAL_OUTPUTS, ROUNDING, encoding_options
from jitnorm.catalogue.op import Allocated, Choices, Fields, Op
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.dtypes import DTYPE_OF_FORMAT
from jitnorm.kernels.extents import shape
from jitnorm.kernels.quant_spec import QuantSpec
from jitnorm.kernels.row_counts import padded_rows

_COMPUTES = "the consecutive rows of experts, optionally after SwiGLU, in any format for grouped GEMMs"
_EXPERTS: dict[str, Any] = {"experts": 8, "scale_per_matrix": False}


def _grouped(quant: QuantSpec, activation: str, experts: int, scale_per_expert: bool, gathers: bool = False) -> Fields:
    return {
        "quant": quant, "activation": activation, "experts": experts, "scale_per_matrix": scale_per_expert,
        "gathers": gathers,
    }  # fmt: skip


def _gated_grouped(
    quant: QuantSpec, activation: str, experts: int, scale_per_expert: bool, gate_columns: int
) -> Fields:
    return {**_grouped(quant, activation, experts, scale_per_expert), "gate_columns": gate_columns}


def _rows_of_scales(config: KernelConfig) -> Allocated:
    """Swizzled scales with as many rows as the offsets can need."""
    quant = config.quant
    if quant is None or not quant.is_swizzled:
        return {}
    rows = shape(padded_rows(config), config.padded_scale_columns)
    return {"block_scale": (rows, DTYPE_OF_FORMAT[quant.scale_format])}


def _grouped_options(_: Choices, fields: Fields) -> dict[str, Any]:
    options = encoding_options(fields["quant"])
    return {**options, "activation": fields["activation"]} if fields["activation"] else options


def _gated_options(choices: Choices, fields: Fields) -> dict[str, Any]:
    return {**_grouped_options(choices, fields), "granularity": granularity_of(choices)}


GROUPED_QUANTIZE = Op(
    "grouped_quantize", _COMPUTES, {"op": "quantize"}, _grouped, {**GENERAL_OUTPUTS, "gathers": "input_rows"},
    _rows_of_scales,
    choices={**ANY_ENCODING, **ROUNDING, **_EXPERTS, "activation": "", "gathers": False}, options=_grouped_options,
)  # fmt: skip
SILU_AND_MUL_GROUPED_QUANTIZE = Op(
    "silu_and_mul_grouped_quantize", _COMPUTES, {"op": "quantize"}, _gated_grouped, GENERAL_OUTPUTS, _rows_of_scales,
    choices={**ANY_ENCODING, **ROUNDING, **_EXPERTS, "gate_columns": -1, "activation": "silu"},
    options=_gated_options,
)  # fmt: skip

OPS = (GROUPED_QUANTIZE, SILU_AND_MUL_GROUPED_QUANTIZE)
