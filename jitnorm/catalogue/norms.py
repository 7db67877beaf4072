"""Norms without encoding."""

from __future__ import annotations

from typing import Any

from jitnorm.catalogue.encodings import ANY_ENCODING, BATCH, NORM
from jitnorm.catalogue.gates import GATE, gated, gated_options
from jitnorm.catalogue.op import WITHOUT_WEIGHT, Choices, Fields, Op
from jitnorm.kernels.quant_spec import FP8_TENSOR

_HEADS = {**NORM, "row_dims": (1, 2)}  # of tensors on their own, and of views of a packed one

# Under the kernel op's name, it offers all that kernels can do; the function has the defaults.
RMSNORM = Op(
    "rmsnorm", "the norm; Gemma's has weight + 1", {"op": "rmsnorm"}, finds_amax=True,
    choices={
        **NORM, **ANY_ENCODING, **BATCH, "residual": False, "unit_bias": False, "keep_norm": False, "keep_rstd": False,
        "gate_columns": 0, "activation": "", "streams": 0, "scale_ub": False, "inverse_global_scale": False,
        "amax_parts": 0, "pair": False, "bias": False, "activates_norm": False,
        "gate": "", "weight_rows": 1, "sandwich": False, "weights": 1,
    },
    weight_optional=True,
)  # fmt: skip
GEMMA_RMSNORM = Op("gemma_rmsnorm", RMSNORM.computes, {"op": "rmsnorm", "unit_bias": True}, choices=NORM)
FUSED_ADD_RMSNORM = Op(
    "fused_add_rmsnorm", "residual += input; input = norm of the sum", {"op": "rmsnorm", "residual": True},
    choices=NORM, weight_optional=True,
)  # fmt: skip
GEMMA_FUSED_ADD_RMSNORM = Op(
    "gemma_fused_add_rmsnorm", FUSED_ADD_RMSNORM.computes, {"op": "rmsnorm", "residual": True, "unit_bias": True},
    choices=NORM,
)  # fmt: skip
ADD_RMSNORM = Op(
    "add_rmsnorm", "the same without writing an input: the norm of the sum, and the sum",
    {"op": "rmsnorm", "residual": True}, choices=NORM, weight_optional=True,
)  # fmt: skip
GEMMA_ADD_RMSNORM = Op(
    "gemma_add_rmsnorm", ADD_RMSNORM.computes, {"op": "rmsnorm", "residual": True, "unit_bias": True}, choices=NORM
)
_OF_EACH_MATRIX = {"op": "rmsnorm", "batched": True, "weight_per_matrix": True}


def _batched(function: str, **fixed: bool) -> Op:
    """A function with ``batched=True``; it has no gradient, so it is a separate op."""
    name = f"{function}_batched"
    return Op(name, "", {**_OF_EACH_MATRIX, **fixed}, choices=NORM, function=function, options=_batched_options)


def _batched_options(_: Choices, __: Fields) -> dict[str, Any]:
    return {"batched": True}


RMSNORM_BATCHED = _batched("rmsnorm")
FUSED_ADD_RMSNORM_BATCHED = _batched("fused_add_rmsnorm", residual=True)
ADD_RMSNORM_BATCHED = _batched("add_rmsnorm", residual=True)
RMSNORM_BIAS = Op("rmsnorm_bias", "the norm with a weight and a bias", {"op": "rmsnorm", "bias": True}, choices=NORM)


def _activated(activation: str, has_weight: bool = True) -> Fields:
    return {"activation": activation, **({} if has_weight else WITHOUT_WEIGHT)}


def _activated_options(_: Choices, fields: Fields) -> dict[str, Any]:
    return {"activation": fields["activation"]}


RMSNORM_SILU = Op(
    "rmsnorm_silu", "the SiLU or GELU of the norm", {"op": "rmsnorm", "activates_norm": True}, _activated,
    choices={**NORM, "activation": "silu"}, options=_activated_options, weight_optional=True,
)  # fmt: skip
RMSNORM_GATED = Op(
    "rmsnorm_gated", "the norm times the SiLU or sigmoid of gates, or the norm of such a product; also by groups",
    {"op": "rmsnorm"}, gated, choices={**NORM, **GATE}, options=gated_options, weight_optional=True,
)  # fmt: skip


def _unit_bias(unit_bias: bool) -> Fields:
    return {"unit_bias": unit_bias}


def _unit_bias_options(_: Choices, fields: Fields) -> dict[str, Any]:
    return {"unit_bias": fields["unit_bias"]}


SANDWICH_RMSNORM = Op(
    "sandwich_rmsnorm", "the sum of residual and the norm of input, and the norm of that sum",
    {"op": "rmsnorm", "residual": True, "sandwich": True}, _unit_bias, choices={**NORM, "unit_bias": False},
    options=_unit_bias_options,
)  # fmt: skip


def _by_each(weights: int, unit_bias: bool) -> Fields:
    return {"weights": weights, "unit_bias": unit_bias}


_BY_EACH: dict[str, Any] = {
    "fields": _by_each, "aliases": {"weight": "weights"}, "choices": {**NORM, "weights": 2, "unit_bias": False},
    "options": _unit_bias_options,
}  # fmt: skip
RMSNORM_MULTI = Op(
    "rmsnorm_multi", "the norm multiplied by each of 2 to 4 weights, in one pass over the input", {"op": "rmsnorm"},
    **_BY_EACH,
)  # fmt: skip
ADD_RMSNORM_MULTI = Op(
    "add_rmsnorm_multi", "the same for the sum with a residual, and the sum", {"op": "rmsnorm", "residual": True},
    **_BY_EACH,
)  # fmt: skip
LAYERNORM = Op(
    "layernorm", "LayerNorm", {"op": "layernorm"},
    choices={
        "weight": "", **ANY_ENCODING, **BATCH, "residual": False, "keep_norm": False, "keep_rstd": False,
        "keep_statistics": False,
        "gate_columns": 0, "activation": "", "streams": 0, "scale_ub": False, "inverse_global_scale": False,
        "amax_parts": 0, "activates_norm": False,
    },
    weight_optional=True,
)  # fmt: skip
LAYERNORM_WITH_STATISTICS = Op(
    "layernorm_with_statistics", "LayerNorm, and the mean and rstd of each row for its gradients",
    {"op": "layernorm", "keep_statistics": True}, choices={"weight": ""}, weight_optional=True,
)  # fmt: skip
QK_RMSNORM = Op(
    "qk_rmsnorm", "the norm of queries and keys in one launch, also in place in a packed QKV tensor",
    {"op": "rmsnorm", "pair": True, "unit_bias": False}, choices=_HEADS, weight_optional=True,
)  # fmt: skip
GEMMA_QK_RMSNORM = Op(
    "gemma_qk_rmsnorm", QK_RMSNORM.computes, {"op": "rmsnorm", "pair": True, "unit_bias": True}, choices=_HEADS
)


def _two_sizes(second_size: int) -> Fields:
    return {"second_size": second_size}


Q_KV_RMSNORM = Op(
    "q_kv_rmsnorm", "the norm of MLA's latents, whose lengths differ, in one launch", {"op": "rmsnorm", "pair": True},
    _two_sizes, {"k": "kv", "k_weight": "kv_weight", "k_out": "kv_out"}, choices={**NORM, "second_size": 0},
)  # fmt: skip


def _rope_fields(is_neox: bool, rotary_size: int, unit_bias: bool, head_size: int | None) -> Fields:
    rope = "neox" if is_neox else "interleaved"
    return {"rope": rope, "rotary_size": rotary_size, "unit_bias": unit_bias, "head_size": head_size or 0}


def _rope_options(_: Choices, fields: Fields) -> dict[str, Any]:
    return {
        "is_neox": fields["rope"] == "neox", "unit_bias": fields["unit_bias"], "head_size": fields["head_size"] or None,
    }  # fmt: skip


_ROPE: dict[str, Any] = {
    "rope": "neox", "rotary_size": 0, "head_size": 0, "unit_bias": False, "angles": "float32", "positions": "int64",
}  # fmt: skip
QK_RMSNORM_ROPE = Op(
    "qk_rmsnorm_rope", "the norm and rotary position embedding of queries and keys, also in place",
    {"op": "rmsnorm", "pair": True}, _rope_fields, choices={**_HEADS, **_ROPE}, options=_rope_options,
)  # fmt: skip
QK_RMSNORM_ROPE_QUANT = Op(
    "qk_rmsnorm_rope_quant", "the same in FP8, with given scales", {"op": "rmsnorm", "pair": True, "quant": FP8_TENSOR},
    _rope_fields, choices={**_HEADS, **_ROPE}, options=_rope_options,
)  # fmt: skip


def _cache_fields(is_neox: bool, rotary_size: int, unit_bias: bool, keep_heads: bool) -> Fields:
    return {**_rope_fields(is_neox, rotary_size, unit_bias, None), "keep_heads": keep_heads}


def _cache_options(_: Choices, fields: Fields) -> dict[str, Any]:
    options = {"is_neox": fields["rope"] == "neox", "unit_bias": fields["unit_bias"]}
    return {**options, "keep_heads": fields["keep_heads"]}


_CACHE = {**_HEADS, **_ROPE, "keep_heads": False, "slots": "int64"}
del _CACHE["head_size"]
QK_RMSNORM_ROPE_CACHE = Op(
    "qk_rmsnorm_rope_cache", "`qk_rmsnorm_rope`, which also inserts keys and values into paged caches",
    {"op": "rmsnorm", "pair": True, "paged": True}, _cache_fields, choices=_CACHE, options=_cache_options,
)  # fmt: skip
QK_RMSNORM_ROPE_CACHE_QUANT = Op(
    "qk_rmsnorm_rope_cache_quant", "the same with caches in FP8, with given scales",
    {**QK_RMSNORM_ROPE_CACHE.fixed, "quant": FP8_TENSOR}, _cache_fields, choices=_CACHE, options=_cache_options,
)  # fmt: skip

OPS = (
    RMSNORM, GEMMA_RMSNORM, FUSED_ADD_RMSNORM, GEMMA_FUSED_ADD_RMSNORM, ADD_RMSNORM, GEMMA_ADD_RMSNORM, RMSNORM_BIAS,
    RMSNORM_SILU, RMSNORM_GATED, SANDWICH_RMSNORM, RMSNORM_MULTI, ADD_RMSNORM_MULTI, LAYERNORM,
    LAYERNORM_WITH_STATISTICS, QK_RMSNORM, GEMMA_QK_RMSNORM, QK_RMSNORM_ROPE, QK_RMSNORM_ROPE_QUANT,
    QK_RMSNORM_ROPE_CACHE, QK_RMSNORM_ROPE_CACHE_QUANT, Q_KV_RMSNORM,
    RMSNORM_BATCHED, FUSED_ADD_RMSNORM_BATCHED, ADD_RMSNORM_BATCHED,
)  # fmt: skip
