"""Norms without encoding."""

from __future__ import annotations

from typing import Any

from jitnorm.catalogue.encodings import ANY_ENCODING, BATCH, NORM
from jitnorm.catalogue.op import Choices, Fields, Op
from jitnorm.kernels.quant_spec import FP8_TENSOR

_HEADS = {**NORM, "row_dims": (1, 2)}  # of tensors on their own, and of views of a packed one

# As the op of kernels it has all that they can; the function has the defaults.
RMSNORM = Op(
    "rmsnorm", "the norm; Gemma's has weight + 1", {"op": "rmsnorm"}, finds_amax=True,
    choices={
        **NORM, **ANY_ENCODING, **BATCH, "residual": False, "unit_bias": False, "keep_norm": False, "keep_rstd": False,
        "gate_columns": 0, "activation": "", "streams": 0, "scale_ub": False, "inverse_global_scale": False,
        "amax_only": False, "pair": False, "bias": False,
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
LAYERNORM = Op(
    "layernorm", "LayerNorm", {"op": "layernorm"},
    choices={
        **ANY_ENCODING, **BATCH, "residual": False, "keep_norm": False, "keep_rstd": False, "gate_columns": 0,
        "activation": "", "streams": 0, "scale_ub": False, "inverse_global_scale": False, "amax_only": False,
    },
)  # fmt: skip
QK_RMSNORM = Op(
    "qk_rmsnorm", "the norm of queries and keys in one launch, also in place in a packed QKV tensor",
    {"op": "rmsnorm", "pair": True, "unit_bias": False}, choices=_HEADS,
)  # fmt: skip
GEMMA_QK_RMSNORM = Op(
    "gemma_qk_rmsnorm", QK_RMSNORM.computes, {"op": "rmsnorm", "pair": True, "unit_bias": True}, choices=_HEADS
)


def _rope_fields(is_neox: bool, rotary_size: int, unit_bias: bool) -> Fields:
    rope = "neox" if is_neox else "interleaved"
    return {"rope": rope, "rotary_size": rotary_size, "unit_bias": unit_bias}


def _rope_options(_: Choices, fields: Fields) -> dict[str, Any]:
    return {"is_neox": fields["rope"] == "neox", "unit_bias": fields["unit_bias"]}


_ROPE: dict[str, Any] = {
    "rope": "neox", "rotary_size": 0, "unit_bias": False, "angles": "float32", "positions": "int64",
}  # fmt: skip
QK_RMSNORM_ROPE = Op(
    "qk_rmsnorm_rope", "the norm of queries and keys and their rotary position embedding, also in place",
    {"op": "rmsnorm", "pair": True}, _rope_fields, choices={**_HEADS, **_ROPE}, options=_rope_options,
)  # fmt: skip
QK_RMSNORM_ROPE_QUANT = Op(
    "qk_rmsnorm_rope_quant", "the same in FP8, by given scales", {"op": "rmsnorm", "pair": True, "quant": FP8_TENSOR},
    _rope_fields, choices={**_HEADS, **_ROPE}, options=_rope_options,
)  # fmt: skip

OPS = (
    RMSNORM, GEMMA_RMSNORM, FUSED_ADD_RMSNORM, GEMMA_FUSED_ADD_RMSNORM, ADD_RMSNORM, GEMMA_ADD_RMSNORM, RMSNORM_BIAS,
    LAYERNORM, QK_RMSNORM, GEMMA_QK_RMSNORM, QK_RMSNORM_ROPE, QK_RMSNORM_ROPE_QUANT,
)  # fmt: skip
