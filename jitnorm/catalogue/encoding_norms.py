"""Norms fused with encoding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jitnorm.catalogue.encodings import (
    ANY_ENCODING,
    BATCH,
    FP4,
    FP8_ELEMENTS,
    GENERAL_OUTPUTS,
    GIVEN_OR_NONE,
    KEEP_NORM,
    NORM,
    ONE_LAYOUT,
    ONE_OR_BOTH,
    encoding_options,
    given_or_none,
    norm_layout,
)
from jitnorm.catalogue.gates import GATE, gated, gated_options
from jitnorm.catalogue.op import WITHOUT_WEIGHT, Allocated, Choices, Fields, Op
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.extents import ROWS, shape
from jitnorm.kernels.formats import FORMATS
from jitnorm.kernels.quant_spec import FP8_GROUP, MXFP8, NVFP4, QuantSpec

_NORM_IN_FP8 = "the norm in FP8, with a given scale"


def _fp4(
    block_size: int, scale_format: str | None, swizzled: bool, both: bool, has_global: bool, keep_norm: bool
) -> Fields:
    scale_format = scale_format or ("e4m3" if block_size == 16 else "ue8m0")
    quant = QuantSpec("e2m1", block_size, scale_format, norm_layout(swizzled, both), given_or_none(has_global))
    return {"quant": quant, "keep_norm": keep_norm}


def _layout_flags(quant: QuantSpec) -> dict[str, Any]:
    return {"is_sf_swizzled_layout": quant.is_swizzled, "output_both_sf_layouts": quant.both_layouts}


def _fp4_options(_: Choices, fields: Fields) -> dict[str, Any]:
    quant = fields["quant"]
    return {"block_size": quant.block_size, "scale_format": quant.scale_format, **_layout_flags(quant)}


def _fp4_norm(name: str, computes: str, fixed: Fields, choices: Fields) -> Op:
    encoding = {"quant": "nvfp4", "layout": "linear", "global_scale": "none"}
    return Op(
        name, computes, {"op": "rmsnorm", **fixed}, _fp4, choices={**NORM, **encoding, **choices},
        formats=FP4, layouts=ONE_OR_BOTH, global_scales=GIVEN_OR_NONE, options=_fp4_options,
    )  # fmt: skip


RMSNORM_FP4QUANT = _fp4_norm("rmsnorm_fp4quant", "the norm in FP4", {}, {})
ADD_RMSNORM_FP4QUANT = _fp4_norm(
    "add_rmsnorm_fp4quant", "residual += input; the norm of the sum in FP4, also unquantized on request",
    {"residual": True}, KEEP_NORM,
)  # fmt: skip


def _mxfp8(swizzled: bool, both: bool, keep_norm: bool) -> Fields:
    return {"quant": MXFP8.with_layout(norm_layout(swizzled, both)), "keep_norm": keep_norm}


def _mxfp8_options(_: Choices, fields: Fields) -> dict[str, Any]:
    return _layout_flags(fields["quant"])


def _mxfp8_norm(name: str, fixed: Fields, choices: Fields) -> Op:
    return Op(
        name, "the norm in MXFP8", {"op": "rmsnorm", **fixed}, _mxfp8, {"out": "y_fp8"},
        choices={**NORM, "quant": "mxfp8", "layout": "linear", **choices},
        formats=(MXFP8,), layouts=ONE_OR_BOTH, global_scales=("none",), options=_mxfp8_options,
    )  # fmt: skip


RMSNORM_MXFP8QUANT = _mxfp8_norm("rmsnorm_mxfp8quant", {}, {})
ADD_RMSNORM_MXFP8QUANT = _mxfp8_norm("add_rmsnorm_mxfp8quant", {"residual": True}, KEEP_NORM)


def _fp8(out_dtype: str) -> Fields:
    if out_dtype not in FP8_ELEMENTS:
        raise ValueError(f"out: dtype is {out_dtype}, expected {' or '.join(FP8_ELEMENTS)}")
    return {"quant": QuantSpec(FP8_ELEMENTS[out_dtype], "tensor", "f32")}


def _fp8_norm(name: str, computes: str, aliases: Mapping[str, str] | None = None, **fixed: bool) -> Op:
    return Op(
        name, computes, {"op": "rmsnorm", **fixed}, _fp8, aliases or {}, choices={**NORM, "quant": "fp8"},
        formats=(FORMATS["fp8"], FORMATS["fp8_e5m2"]), layouts=("linear",), global_scales=("none",),
    )  # fmt: skip


_IN_VLLM = f"{_NORM_IN_FP8} (vLLM's names)"
RMSNORM_QUANT = _fp8_norm("rmsnorm_quant", _NORM_IN_FP8)
GEMMA_RMSNORM_QUANT = _fp8_norm("gemma_rmsnorm_quant", _NORM_IN_FP8, unit_bias=True)
FUSED_ADD_RMSNORM_QUANT = _fp8_norm("fused_add_rmsnorm_quant", _NORM_IN_FP8, residual=True)
GEMMA_FUSED_ADD_RMSNORM_QUANT = _fp8_norm("gemma_fused_add_rmsnorm_quant", _NORM_IN_FP8, residual=True, unit_bias=True)
RMS_NORM_STATIC_FP8_QUANT = _fp8_norm("rms_norm_static_fp8_quant", _IN_VLLM, {"out": "result", "eps": "epsilon"})
FUSED_ADD_RMS_NORM_STATIC_FP8_QUANT = _fp8_norm(
    "fused_add_rms_norm_static_fp8_quant", _IN_VLLM, {"out": "result", "eps": "epsilon"}, residual=True
)


def _scales_of_rows(config: KernelConfig) -> Allocated:
    """Scales with two dimensions, regardless of the input's."""
    allocated: Allocated = {"row_scale": (shape(ROWS, 1), "float32")}
    if config.quant is not None and config.quant.scale_layout == "linear":
        allocated["block_scale"] = (shape(ROWS, config.hidden_size // config.block_size), "float32")
    return allocated


def _block(keep_norm: bool) -> Fields:
    return {"quant": FP8_GROUP.with_layout("column4"), "keep_norm": keep_norm}


def _token(quant_dtype: Any, residual: bool, scale_ub: bool) -> Fields:
    quant = QuantSpec(_element(quant_dtype, tuple(FP8_ELEMENTS)), "row", "f32")
    return {"quant": quant, "residual": residual, "scale_ub": scale_ub}


def _group(quant_dtype: Any, group: int, layout: str, residual: bool, scale_ub: bool) -> Fields:
    quant = QuantSpec(_element(quant_dtype, ("float8_e4m3fn",)), group, "f32", layout)
    return {"quant": quant, "residual": residual, "scale_ub": scale_ub}


def _token_options(_: Choices, fields: Fields) -> dict[str, Any]:
    return {"quant_dtype": {element: dtype for dtype, element in FP8_ELEMENTS.items()}[fields["quant"].element]}


def _group_options(choices: Choices, fields: Fields) -> dict[str, Any]:
    quant = fields["quant"]
    return {
        **_token_options(choices, fields),
        "group_size": [1, quant.block_size],
        "is_scale_transposed": quant.is_column_major,
        "has_tma_aligned_scales": quant.scale_layout == "column4",
    }


def _element(quant_dtype: Any, allowed: tuple[str, ...]) -> str:
    """The element format of a dtype: a name, or an object of torch, NumPy, ml_dtypes or JAX."""
    found = getattr(quant_dtype, "name", None) or getattr(quant_dtype, "__name__", None) or str(quant_dtype)
    name = found.removeprefix("torch.")
    if name not in allowed:
        raise ValueError(f"quant_dtype: is {name}; allowed are {', '.join(allowed)}")
    return FP8_ELEMENTS[name]


_WRITTEN = {"residual_out": "residual"}
_IN_VLLM_TOO = {**_WRITTEN, "eps": "epsilon"}
_BOUNDED = {"residual": False, "scale_ub": False}
FUSED_ADD_RMSNORM_FP8_BLOCK_QUANT = Op(
    "fused_add_rmsnorm_fp8_block_quant", "residual += input; the norm of the sum in FP8 groups, and unquantized",
    {"op": "rmsnorm", "residual": True}, _block, {**_WRITTEN, "y_out": "normed_out"},
    choices={**NORM, "quant": "fp8_group", "layout": "column4", **KEEP_NORM},
    formats=(FP8_GROUP,), layouts=("column4",), global_scales=("none",),
)  # fmt: skip
RMS_NORM_DYNAMIC_PER_TOKEN_QUANT = Op(
    "rms_norm_dynamic_per_token_quant", "the norm in FP8 rows (vLLM's name)", {"op": "rmsnorm"}, _token, _IN_VLLM_TOO,
    _scales_of_rows, choices={**NORM, "quant": "fp8_token", **_BOUNDED},
    formats=(FORMATS["fp8_token"], FORMATS["fp8_token_e5m2"]), layouts=("linear",), global_scales=("none",),
    options=_token_options,
)  # fmt: skip
RMS_NORM_PER_BLOCK_QUANT = Op(
    "rms_norm_per_block_quant", "the norm in FP8 groups (vLLM's name)", {"op": "rmsnorm"}, _group, _IN_VLLM_TOO,
    _scales_of_rows, choices={**NORM, "quant": "fp8_group", "layout": "linear", **_BOUNDED},
    formats=(FP8_GROUP, FORMATS["fp8_group64"]), layouts=("linear", "column", "column4"), global_scales=("none",),
    options=_group_options,
)  # fmt: skip


def _general(
    quant: QuantSpec, residual: bool, unit_bias: bool, bias: bool, keep_norm: bool, scale_ub: bool,
    batch: tuple[bool, bool, bool], has_weight: bool = True, activation: str = "",
) -> Fields:  # fmt: skip
    return {
        "quant": quant, "residual": residual, "unit_bias": unit_bias, "bias": bias, "keep_norm": keep_norm,
        "scale_ub": scale_ub, **_activated(activation), **dict(zip(BATCH, batch, strict=True)),
        **({} if has_weight else WITHOUT_WEIGHT),
    }  # fmt: skip


def _activated(activation: str) -> Fields:
    return {"activation": activation, "activates_norm": bool(activation)}


def _general_fields(_: Choices, fields: Fields) -> Fields:
    return {**fields, **_activated(fields["activation"])}


def _general_options(choices: Choices, fields: Fields) -> dict[str, Any]:
    activation = {"activation": fields["activation"]} if fields["activation"] else {}
    return {
        **encoding_options(fields["quant"]), "unit_bias": fields["unit_bias"], "batched": fields["batched"],
        **activation,
    }  # fmt: skip


_GENERAL: Fields = {
    **NORM, **ANY_ENCODING, **BATCH, "unit_bias": False, "bias": False, "keep_norm": False, "scale_ub": False,
    "activation": "",
}  # fmt: skip
NORM_QUANTIZE = Op(
    "norm_quantize", "the norm or its activation, with or without residual, bias or Gemma's weight + 1, in any format",
    {"op": "rmsnorm"}, _general, GENERAL_OUTPUTS, finds_amax=True,
    choices={**_GENERAL, "residual": False}, as_called=_general_fields, options=_general_options,
    weight_optional=True,
)  # fmt: skip


def _add_general(
    quant: QuantSpec, unit_bias: bool, bias: bool, keep_norm: bool, scale_ub: bool, batch: tuple[bool, bool, bool],
    has_weight: bool = True, activation: str = "",
) -> Fields:  # fmt: skip
    return _general(quant, True, unit_bias, bias, keep_norm, scale_ub, batch, has_weight, activation)


def _add_general_options(choices: Choices, fields: Fields) -> dict[str, Any]:
    return {**_general_options(choices, fields), "keep_norm": fields["keep_norm"]}


ADD_NORM_QUANTIZE = Op(
    "add_norm_quantize", "the norm of input + residual in any format, and that sum; no input is written",
    {"op": "rmsnorm", "residual": True}, _add_general, finds_amax=True,
    choices=_GENERAL, as_called=_general_fields, options=_add_general_options, weight_optional=True,
)  # fmt: skip


def _gated(quant: QuantSpec, scale_ub: bool, *gate: Any) -> Fields:
    return {"quant": quant, "scale_ub": scale_ub, **gated(*gate)}


def _gated_options(choices: Choices, fields: Fields) -> dict[str, Any]:
    return {**encoding_options(fields["quant"]), **gated_options(choices, fields)}


RMSNORM_GATED_QUANTIZE = Op(
    "rmsnorm_gated_quantize", "`rmsnorm_gated` in any format", {"op": "rmsnorm"}, _gated, GENERAL_OUTPUTS,
    finds_amax=True, choices={**NORM, **ANY_ENCODING, **GATE, "scale_ub": False}, options=_gated_options,
    weight_optional=True,
)  # fmt: skip


def _sandwich(quant: QuantSpec, unit_bias: bool, keep_norm: bool, scale_ub: bool) -> Fields:
    return {"quant": quant, "unit_bias": unit_bias, "keep_norm": keep_norm, "scale_ub": scale_ub}


def _sandwich_options(_: Choices, fields: Fields) -> dict[str, Any]:
    names = ("unit_bias", "keep_norm")
    return {**encoding_options(fields["quant"]), **{name: fields[name] for name in names}}


SANDWICH_NORM_QUANTIZE = Op(
    "sandwich_norm_quantize", "`sandwich_rmsnorm` with the norm of the sum in any format",
    {"op": "rmsnorm", "residual": True, "sandwich": True}, _sandwich, finds_amax=True,
    choices={**NORM, **ANY_ENCODING, "unit_bias": False, "keep_norm": False, "scale_ub": False},
    options=_sandwich_options,
)  # fmt: skip


def _layernorm(
    quant: QuantSpec, keep_norm: bool, scale_ub: bool, batch: tuple[bool, bool, bool], has_weight: bool = True
) -> Fields:
    return {
        "quant": quant, "keep_norm": keep_norm, "scale_ub": scale_ub, **dict(zip(BATCH, batch, strict=True)),
        **({} if has_weight else WITHOUT_WEIGHT),
    }  # fmt: skip


def _layernorm_options(_: Choices, fields: Fields) -> dict[str, Any]:
    return {**encoding_options(fields["quant"]), "batched": fields["batched"]}


LAYERNORM_QUANTIZE = Op(
    "layernorm_quantize", "LayerNorm in any format", {"op": "layernorm"}, _layernorm, GENERAL_OUTPUTS,
    finds_amax=True, choices={**NORM, **ANY_ENCODING, **BATCH, "keep_norm": False, "scale_ub": False},
    options=_layernorm_options, weight_optional=True,
)  # fmt: skip


def _row_options(_: Choices, fields: Fields) -> dict[str, Any]:
    return {"scale_layout": fields["quant"].scale_layout}


def _row_fp4(scale_layout: str, streams: int) -> Fields:
    return {"quant": NVFP4.with_layout(scale_layout).with_global_scale("row"), "streams": streams}


_ROW_FP4 = {**NORM, "quant": "nvfp4", "layout": "linear", "global_scale": "row"}
RMSNORM_QUANTIZE = Op(
    "rmsnorm_quantize", "the norm of a row or of mixed streams in NVFP4, with a global scale for each row",
    {"op": "rmsnorm", "streams": 0, "keep_rstd": True}, _row_fp4, {"input": "x"},
    choices=_ROW_FP4, formats=(NVFP4,), layouts=ONE_LAYOUT, global_scales=("row",), options=_row_options,
)  # fmt: skip
MHC_RMSNORM_QUANTIZE = Op(
    "mhc_rmsnorm_quantize", RMSNORM_QUANTIZE.computes, {"op": "rmsnorm", "keep_rstd": True}, _row_fp4,
    choices={**_ROW_FP4, "streams": 4}, formats=(NVFP4,), layouts=ONE_LAYOUT, global_scales=("row",),
    options=_row_options,
)  # fmt: skip

OPS = (
    RMSNORM_FP4QUANT, ADD_RMSNORM_FP4QUANT, RMSNORM_QUANT, GEMMA_RMSNORM_QUANT, FUSED_ADD_RMSNORM_QUANT,
    GEMMA_FUSED_ADD_RMSNORM_QUANT, FUSED_ADD_RMSNORM_FP8_BLOCK_QUANT, RMS_NORM_DYNAMIC_PER_TOKEN_QUANT,
    RMS_NORM_PER_BLOCK_QUANT, RMS_NORM_STATIC_FP8_QUANT, FUSED_ADD_RMS_NORM_STATIC_FP8_QUANT, RMSNORM_MXFP8QUANT,
    ADD_RMSNORM_MXFP8QUANT, NORM_QUANTIZE, ADD_NORM_QUANTIZE, RMSNORM_GATED_QUANTIZE, SANDWICH_NORM_QUANTIZE,
    LAYERNORM_QUANTIZE, RMSNORM_QUANTIZE, MHC_RMSNORM_QUANTIZE,
)  # fmt: skip
