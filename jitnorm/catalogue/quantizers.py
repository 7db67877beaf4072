"""Quantization without a norm: of plain tensors, activations, batches and weights; the largest magnitude."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from jitnorm.catalogue.activations import granularity_of
from jitnorm.catalogue.encodings import (
    ANY_ENCODING,
    BATCH,
    FOUR_OVER_SIX,
    FP4,
    FP4_E4M3,
    GENERAL_OUTPUTS,
    GIVEN_OR_NONE,
    ONE_LAYOUT,
    ROUNDING,
    byte_outputs,
    encoding_options,
    fp4_spec,
    given_or_none,
)
from jitnorm.catalogue.four_over_six import FourOverSix
from jitnorm.catalogue.moves import interleave_launch, shuffle_launch
from jitnorm.catalogue.op import Allocated, Choices, Fields, Launch, Op
from jitnorm.catalogue.sf_layout import layout_name, layout_of_flags, sf_layout_of
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.extents import shape
from jitnorm.kernels.numerics import AMAX_PARTS, round_up
from jitnorm.kernels.quant_spec import MXFP4, MXFP8, NVFP4, QuantSpec, require_one_of
from jitnorm.kernels.row_counts import padded_rows

# All of FlashInfer's backends are the same kernel here.
_BACKENDS = ("cuda", "cute-dsl")
_LIKE_FLASHINFER = "quantization alone, as in FlashInfer"


def _parts(amax_parts: int) -> Fields:
    return {"amax_parts": amax_parts}


def _of_parts(_: Choices, launch: Launch) -> list[Launch]:
    one = {**launch.options, **_parts(1)}
    return [] if launch.options == one else [Launch(one, AMAX_PARTS, "float32", enable_pdl=launch.enable_pdl)]


COMPUTE_AMAX = Op(
    "compute_amax", "the largest magnitude of a tensor", {"op": "quantize"}, _parts,
    aliases={"input": "x", "amax": "out"}, choices={"amax_parts": AMAX_PARTS}, also=_of_parts,
)  # fmt: skip


def _general(
    quant: QuantSpec, activation: str, scale_ub: bool, batch: tuple[bool, bool, bool], gathers: bool = False
) -> Fields:
    of_batch = dict(zip(BATCH, batch, strict=True))
    return {"quant": quant, "activation": activation, "scale_ub": scale_ub, "gathers": gathers, **of_batch}


def _general_options(_: Choices, fields: Fields) -> dict[str, Any]:
    options = {**encoding_options(fields["quant"]), "batched": fields["batched"]}
    return {**options, "activation": fields["activation"]} if fields["activation"] else options


# Under the kernel op's name, it offers all that kernels can do.
QUANTIZE = Op(
    "quantize", "quantization, alone or of an activation, in any format", {"op": "quantize"}, _general,
    {**GENERAL_OUTPUTS, "gathers": "input_rows"}, finds_amax=True,
    choices={
        **ANY_ENCODING, **BATCH, **ROUNDING, "gate_columns": 0, "activation": "", "values_first": False, "streams": 0,
        "scale_ub": False, "inverse_global_scale": False, "amax_parts": 0, "axis": -1, "alignment": 1,
        "gathers": False,
    },
    options=_general_options,
)  # fmt: skip


def _fp4(
    block_size: int, is_ue8m0: bool, is_swizzled: bool, is_8x4: bool, is_inverse: bool, backend: str,
    recipe: FourOverSix | None, has_global: bool,
) -> Fields:  # fmt: skip
    require_one_of("backend", backend, _BACKENDS)
    scale_format, layout = "ue8m0" if is_ue8m0 else "e4m3", layout_of_flags(is_swizzled, is_8x4)
    quant = fp4_spec(block_size, scale_format, layout, given_or_none(has_global), recipe)
    return {"quant": quant, "inverse_global_scale": is_inverse and has_global}


def _layout_flags(quant: QuantSpec) -> dict[str, Any]:
    return {
        "sf_vec_size": quant.block_size,
        "is_sf_swizzled_layout": quant.is_swizzled,
        "is_sf_8x4_layout": quant.scale_layout == "8x4",
        **_better_of_two(quant),
    }


def _better_of_two(quant: QuantSpec) -> dict[str, Any]:
    return {"nvfp4_4over6": recipe} if (recipe := FourOverSix.of(quant)) else {}


def _fp4_options(_: Choices, fields: Fields) -> dict[str, Any]:
    quant = fields["quant"]
    is_inverse = fields["inverse_global_scale"]
    return {
        **_layout_flags(quant), "sf_use_ue8m0": quant.scale_format == "ue8m0", "is_global_scale_inversed": is_inverse,
    }  # fmt: skip


FP4_QUANTIZE = Op(
    "fp4_quantize", _LIKE_FLASHINFER, {"op": "quantize"}, _fp4, allocated=byte_outputs,
    choices={
        "quant": "nvfp4", "layout": "128x4", "global_scale": "none", "inverse_global_scale": False, **FOUR_OVER_SIX,
    },
    formats=FP4, layouts=ONE_LAYOUT, global_scales=GIVEN_OR_NONE, options=_fp4_options,
)  # fmt: skip


def _nvfp4(
    sf_layout: Any, is_shuffled: bool, block_size: int, backend: str, global_scale: str, recipe: FourOverSix | None,
    e4m3_max: float | None,
) -> Fields:  # fmt: skip
    require_one_of("backend", backend, (*_BACKENDS, "cake"))
    layout = layout_name("sfLayout", sf_layout)
    if is_shuffled and layout != "128x4":
        raise ValueError(f"sfLayout: is {layout}; with do_shuffle only layout_128x4 is allowed")
    quant = fp4_spec(block_size, "e4m3", "linear" if is_shuffled else layout, global_scale, recipe)
    return {"quant": quant if e4m3_max is None else replace(quant, e4m3_max=e4m3_max)}


def _linear_if_shuffled(choices: Choices, fields: Fields) -> Fields:
    quant = fields["quant"]
    if not choices["shuffled"]:
        return fields
    if quant.scale_layout != "128x4":
        raise ValueError(f"layout: is {quant.scale_layout!r}; nvfp4_quantize shuffles only 128x4")
    return {**fields, "quant": quant.with_layout("linear")}


def _shuffles(choices: Choices, launch: Launch) -> list[Launch]:
    """The subsequent launches, if the rows are permuted for the epilogue of a GEMM."""
    if not choices["shuffled"]:
        return []
    quant = launch.options["quant"]
    bytes_of_codes, scales = launch.hidden_size // 2, launch.hidden_size // quant.block_size
    moved = [(bytes_of_codes, "uint8"), (scales, "uint8"), *([(1, "float32")] if quant.global_scale == "row" else [])]
    return [*(shuffle_launch(size, dtype) for size, dtype in moved), interleave_launch(scales, "uint8")]


def _nvfp4_options(choices: Choices, fields: Fields) -> dict[str, Any]:
    quant = fields["quant"]
    return {
        "sfLayout": sf_layout_of("128x4" if choices["shuffled"] else quant.scale_layout),
        "sf_vec_size": quant.block_size,
        "do_shuffle": choices["shuffled"],
        "per_token_activation": quant.global_scale == "row",
        **({"a_global_sf": 1 / (6 * quant.e4m3_max)} if quant.global_scale == "row" else {}),
        **_better_of_two(quant),
    }


NVFP4_QUANTIZE = Op(
    "nvfp4_quantize", _LIKE_FLASHINFER, {"op": "quantize"}, _nvfp4, {"input": "a", "global_scale": "a_global_sf"},
    byte_outputs,
    choices={
        "quant": "nvfp4", "layout": "128x4", "global_scale": "given", "shuffled": False, **FOUR_OVER_SIX,
        "e4m3_max": 448,
    },
    formats=FP4_E4M3, layouts=ONE_LAYOUT, global_scales=(*GIVEN_OR_NONE, "row"),
    as_called=_linear_if_shuffled, also=_shuffles, options=_nvfp4_options,
    row_multiple=lambda choices: 128 if choices["shuffled"] else 1,
)  # fmt: skip


def _mxfp4(backend: str, sf_layout: Any) -> Fields:
    require_one_of("backend", backend, _BACKENDS)
    return {"quant": fp4_spec(32, "ue8m0", layout_name("sfLayout", sf_layout), "none")}


def _mxfp4_options(_: Choices, fields: Fields) -> dict[str, Any]:
    return {"sfLayout": sf_layout_of(fields["quant"].scale_layout)}


MXFP4_QUANTIZE = Op(
    "mxfp4_quantize", _LIKE_FLASHINFER, {"op": "quantize"}, _mxfp4, {"input": "a"}, byte_outputs,
    choices={"quant": "mxfp4", "layout": "128x4"}, formats=(MXFP4,), layouts=ONE_LAYOUT, global_scales=("none",),
    options=_mxfp4_options,
)  # fmt: skip


def _mxfp8(is_swizzled: bool, alignment: int, backend: str, sf_layout: Any) -> Fields:
    require_one_of("backend", backend, _BACKENDS)
    layout = "128x4" if is_swizzled else "linear"
    quant = MXFP8.with_layout(layout if sf_layout is None else layout_name("sf_swizzle_layout", sf_layout))
    return {"quant": quant, "alignment": alignment}


def _flat_scales(config: KernelConfig) -> Allocated:
    columns = config.encoded_size // config.block_size
    swizzled = config.quant is not None and config.quant.is_swizzled
    return {"block_scale": (shape(padded_rows(config) * (round_up(columns, 4) if swizzled else columns)), "uint8")}


def _mxfp8_options(_: Choices, fields: Fields) -> dict[str, Any]:
    return {"sf_swizzle_layout": sf_layout_of(fields["quant"].scale_layout), "alignment": fields["alignment"]}


MXFP8_QUANTIZE = Op(
    "mxfp8_quantize", _LIKE_FLASHINFER, {"op": "quantize"}, _mxfp8, allocated=_flat_scales,
    choices={"quant": "mxfp8", "layout": "128x4", "alignment": 32},
    formats=(MXFP8,), layouts=ONE_LAYOUT, global_scales=("none",), options=_mxfp8_options,
)  # fmt: skip


def _weight(quant: QuantSpec) -> Fields:
    return {"quant": quant}


def _weight_options(_: Choices, fields: Fields) -> dict[str, Any]:
    return encoding_options(fields["quant"])


QUANTIZE_WEIGHT = Op(
    "quantize_weight", "a weight (K, N) in NVFP4 or MXFP4 along K", {"op": "quantize", "axis": 0}, _weight,
    choices={"quant": "nvfp4", "global_scale": "none"},
    formats=FP4, layouts=("linear",), global_scales=GIVEN_OR_NONE, options=_weight_options,
)  # fmt: skip


def _gated(
    quant: QuantSpec, gate_columns: int, activation: str, values_first: bool, scale_ub: bool,
    batch: tuple[bool, bool, bool],
) -> Fields:  # fmt: skip
    gates = {"gate_columns": gate_columns, "activation": activation, "values_first": values_first}
    return {"quant": quant, **gates, "scale_ub": scale_ub, **dict(zip(BATCH, batch, strict=True))}


def _gated_options(choices: Choices, fields: Fields) -> dict[str, Any]:
    options = {"granularity": granularity_of(choices), "values_first": choices["values_first"]}
    return {**_general_options(choices, fields), **options}


SILU_AND_MUL_QUANTIZE = Op(
    "silu_and_mul_quantize", "SwiGLU or another gated activation, of halves or of interleaved columns, in any format",
    {"op": "quantize"}, _gated, GENERAL_OUTPUTS, finds_amax=True,
    choices={
        **ANY_ENCODING, **BATCH, **ROUNDING, "gate_columns": -1, "activation": "silu", "values_first": False,
        "scale_ub": False,
    },
    options=_gated_options,
)  # fmt: skip


def _gated_nvfp4(
    block_size: int, is_swizzled: bool, is_8x4: bool, recipe: FourOverSix | None, has_global: bool
) -> Fields:
    layout = layout_of_flags(is_swizzled, is_8x4)
    return {"quant": fp4_spec(block_size, "e4m3", layout, given_or_none(has_global), recipe)}


def _gated_nvfp4_options(_: Choices, fields: Fields) -> dict[str, Any]:
    return _layout_flags(fields["quant"])


SILU_AND_MUL_NVFP4_QUANTIZE = Op(
    "silu_and_mul_nvfp4_quantize", "SwiGLU in NVFP4, as in FlashInfer", {"op": "quantize", "gate_columns": -1},
    _gated_nvfp4, allocated=byte_outputs,
    choices={"quant": "nvfp4", "layout": "128x4", "global_scale": "given", **FOUR_OVER_SIX, **ROUNDING},
    formats=FP4_E4M3, layouts=ONE_LAYOUT, global_scales=GIVEN_OR_NONE, options=_gated_nvfp4_options,
)  # fmt: skip


def _batch_nvfp4(block_size: int, recipe: FourOverSix | None, has_global: bool, scale_per_matrix: bool) -> Fields:
    quant = fp4_spec(block_size, "e4m3", "128x4", given_or_none(has_global), recipe)
    return {"quant": quant, "scale_per_matrix": scale_per_matrix}


def _codes_and_scales_as_bytes(_: KernelConfig) -> Allocated:
    return {"y_fp4": (None, "uint8"), "block_scale": (None, "uint8")}


def _codes_as_bytes(_: KernelConfig) -> Allocated:
    return {"y_fp4": (None, "uint8")}


def _batch_options(_: Choices, fields: Fields) -> dict[str, Any]:
    return {"sf_vec_size": fields["quant"].block_size, **_better_of_two(fields["quant"])}


def _grouped_options(_: Choices, fields: Fields) -> dict[str, Any]:
    return _better_of_two(fields["quant"])


_BATCH_ALIASES = {"input": "a", "global_scale": "a_global_sf"}
_BATCH_CHOICES = {
    "quant": "nvfp4", "layout": "128x4", "global_scale": "given", "scale_per_matrix": False, **FOUR_OVER_SIX,
}  # fmt: skip
_GROUPED = "the rows counted by a mask, optionally after SwiGLU, for grouped GEMMs"
NVFP4_BATCHED_QUANTIZE = Op(
    "nvfp4_batched_quantize", "NVFP4 of a batch of matrices, each padded separately",
    {"op": "quantize", "batched": True}, _batch_nvfp4, _BATCH_ALIASES, _codes_and_scales_as_bytes,
    choices=_BATCH_CHOICES, formats=FP4_E4M3, layouts=("128x4",), global_scales=GIVEN_OR_NONE,
    options=_batch_options,
)  # fmt: skip
SCALED_FP4_GROUPED_QUANTIZE = Op(
    "scaled_fp4_grouped_quantize", _GROUPED, {"op": "quantize", "batched": True, "masked": True},
    _batch_nvfp4, _BATCH_ALIASES, _codes_as_bytes,
    choices=_BATCH_CHOICES, formats=(NVFP4,), layouts=("128x4",), global_scales=GIVEN_OR_NONE,
    options=_grouped_options,
)  # fmt: skip
SILU_AND_MUL_SCALED_NVFP4_EXPERTS_QUANTIZE = Op(
    "silu_and_mul_scaled_nvfp4_experts_quantize", _GROUPED,
    {"op": "quantize", "batched": True, "masked": True, "gate_columns": -1}, _batch_nvfp4, _BATCH_ALIASES,
    _codes_as_bytes, choices={**_BATCH_CHOICES, **ROUNDING}, formats=(NVFP4,), layouts=("128x4",),
    global_scales=GIVEN_OR_NONE, options=_grouped_options,
)  # fmt: skip


def _grouped_mxfp8(backend: str) -> Fields:
    require_one_of("backend", backend, ("cutile", "cake"))
    return {"quant": MXFP8.with_layout("128x4")}


MXFP8_GROUPED_QUANTIZE = Op(
    "mxfp8_grouped_quantize", "the rows counted by a mask in MXFP8, for grouped GEMMs",
    {"op": "quantize", "batched": True, "masked": True, "alignment": 128}, _grouped_mxfp8, {"input": "a"},
    choices={"quant": "mxfp8", "layout": "128x4"}, formats=(MXFP8,), layouts=("128x4",), global_scales=("none",),
)  # fmt: skip

OPS = (
    FP4_QUANTIZE, NVFP4_QUANTIZE, MXFP4_QUANTIZE, MXFP8_QUANTIZE, COMPUTE_AMAX, QUANTIZE, SILU_AND_MUL_QUANTIZE,
    SILU_AND_MUL_NVFP4_QUANTIZE, NVFP4_BATCHED_QUANTIZE, SCALED_FP4_GROUPED_QUANTIZE,
    SILU_AND_MUL_SCALED_NVFP4_EXPERTS_QUANTIZE, MXFP8_GROUPED_QUANTIZE, QUANTIZE_WEIGHT,
)  # fmt: skip
