"""Norms without encoding."""

from __future__ import annotations

from typing import Any

from jitnorm.catalogue.encodings import ANY_ENCODING, BATCH, NORM
from jitnorm.catalogue.gates import GATE, gated, gated_options
from jitnorm.catalogue.op import Choices, Fields, Op

_HEADS = {**NORM, "row_dims": (1, 2)}  # of tensors on their own, and of views of a packed one

# As the op of kernels it has all that they can; the function has the defaults.
RMSNORM = Op(
    "rmsnorm", "the norm; Gemma's has weight + 1", {"op": "rmsnorm"}, finds_amax=True,
    choices={
        **NORM, **ANY_ENCODING, **BATCH, "residual": False, "unit_bias": False, "keep_norm": False, "keep_rstd": False,
        "gate_columns": 0, "activation": "", "streams": 0, "scale_ub": False, "inverse_global_scale": False,
        "amax_only": False, "pair": False, "bias": False, "activates_norm": False,
        "gate": "", "weight_rows": 1, "sandwich": False,
    },
)  # fmt: skip
GEMMA_RMSNORM = Op("gemma_rmsnorm", RMSNORM.computes, {"op": "rmsnorm", "unit_bias": True}, choices=NORM)
FUSED_ADD_RMSNORM = Op(
    "fused_add_rmsnorm", "residual += input; input = norm of the sum", {"op": "rmsnorm", "residual": True}, choices=NORM
)
GEMMA_FUSED_ADD_RMSNORM = Op(
    "gemma_fused_add_rmsnorm", FUSED_ADD_RMSNORM.computes, {"op": "rmsnorm", "residual": True, "unit_bias": True},
    choices=NORM,
)  # fmt: skip
ADD_RMSNORM = Op(
    "add_rmsnorm", "the same without writing an input: the norm of the sum, and the sum",
    {"op": "rmsnorm", "residual": True}, choices=NORM,
)  # fmt: skip
GEMMA_ADD_RMSNORM = Op(
    "gemma_add_rmsnorm", ADD_RMSNORM.computes, {"op": "rmsnorm", "residual": True, "unit_bias": True}, choices=NORM
)
RMSNORM_BIAS = Op(
    "rmsnorm_bias", "the norm with a bias beside the weight", {"op": "rmsnorm", "bias": True}, choices=NORM
)


def _activated(activation: str) -> Fields:
    return {"activation": activation}


def _activated_options(_: Choices, fields: Fields) -> dict[str, Any]:
    return {"activation": fields["activation"]}


RMSNORM_SILU = Op(
    "rmsnorm_silu", "the SiLU or GELU of the norm", {"op": "rmsnorm", "activates_norm": True}, _activated,
    choices={**NORM, "activation": "silu"}, options=_activated_options,
)  # fmt: skip
RMSNORM_GATED = Op(
    "rmsnorm_gated", "the norm times the SiLU or sigmoid of gates, or the norm of such a product; by groups of a row",
    {"op": "rmsnorm"}, gated, choices={**NORM, **GATE}, options=gated_options,
)  # fmt: skip


def _unit_bias(unit_bias: bool) -> Fields:
    return {"unit_bias": unit_bias}


def _unit_bias_options(_: Choices, fields: Fields) -> dict[str, Any]:
    return {"unit_bias": fields["unit_bias"]}


SANDWICH_RMSNORM = Op(
    "sandwich_rmsnorm", "the norm of input, plus residual; the norm of that sum, and the sum",
    {"op": "rmsnorm", "residual": True, "sandwich": True}, _unit_bias, choices={**NORM, "unit_bias": False},
    options=_unit_bias_options,
)  # fmt: skip
LAYERNORM = Op(
    "layernorm", "LayerNorm", {"op": "layernorm"},
    choices={
        **ANY_ENCODING, **BATCH, "residual": False, "keep_norm": False, "keep_rstd": False, "gate_columns": 0,
        "activation": "", "streams": 0, "scale_ub": False, "inverse_global_scale": False, "amax_only": False,
        "activates_norm": False,
    },
)  # fmt: skip
QK_RMSNORM = Op(
    "qk_rmsnorm", "the norm of queries and keys in one launch, also in place in a packed QKV tensor",
    {"op": "rmsnorm", "pair": True, "unit_bias": False}, choices=_HEADS,
)  # fmt: skip
GEMMA_QK_RMSNORM = Op(
    "gemma_qk_rmsnorm", QK_RMSNORM.computes, {"op": "rmsnorm", "pair": True, "unit_bias": True}, choices=_HEADS
)

OPS = (
    RMSNORM, GEMMA_RMSNORM, FUSED_ADD_RMSNORM, GEMMA_FUSED_ADD_RMSNORM, ADD_RMSNORM, GEMMA_ADD_RMSNORM, RMSNORM_BIAS,
    RMSNORM_SILU, RMSNORM_GATED, SANDWICH_RMSNORM, LAYERNORM, QK_RMSNORM, GEMMA_QK_RMSNORM,
)  # fmt: skip
