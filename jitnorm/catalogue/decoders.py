"""Decoding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

from jitnorm.catalogue.encodings import ANY_ENCODING, FP4, ONE_LAYOUT, fp4_spec
from jitnorm.catalogue.op import Choices, Fields, Op
from jitnorm.catalogue.sf_layout import layout_name, layout_of_flags, sf_layout_of
from jitnorm.kernels.config_rules import FLOAT_DTYPES
from jitnorm.kernels.quant_spec import MXFP4, MXFP8, QuantSpec, require_one_of

_LIKE_FLASHINFER = "the same under FlashInfer's names, in float32"


@cache
def decoded_spec(spec: QuantSpec) -> QuantSpec:
    """Reduce an encoding to what decoding needs: a single layout, and nothing about where its scales came from."""
    return replace(
        spec,
        scale_layout="linear" if spec.both_layouts else spec.scale_layout,
        global_scale="none" if spec.needs_tensor_amax or spec.may_be_found else spec.global_scale,
        scale_rounding="up",
        four_over_six=False,
        scale_floor=None,
        e4m3_max=448,
    )


def has_tensor_scale(spec: QuantSpec) -> bool:
    """Whether the encoded result includes a decode scale for the tensor."""
    return spec.has_blocks and spec.needs_tensor_amax


def _general(quant: QuantSpec, dtype: str, axis: int, tensor_scale: bool, batch: tuple[bool, bool, bool]) -> Fields:
    require_one_of("dtype", dtype, FLOAT_DTYPES)
    batched, _, scale_per_matrix = batch
    options = {"batched": batched, "scale_per_matrix": scale_per_matrix, "tensor_scale": tensor_scale}
    return {"quant": quant, "input": dtype, "axis": axis, **options}


def _as_called(choices: Choices, fields: Fields) -> Fields:
    quant = fields["quant"]
    if quant is None:
        raise ValueError("quant: is not given for dequantize; name the encoding that is decoded")
    found = {"tensor_scale": True} if has_tensor_scale(quant) else {}
    return {**fields, "input": choices["input"], "quant": decoded_spec(quant), **found}


# Under the kernel op's name, it offers all that kernels can do.
DEQUANTIZE = Op(
    "dequantize", "values of any of these encodings, in float32, float16 or bfloat16", {"op": "dequantize"}, _general,
    choices={**ANY_ENCODING, "batched": False, "scale_per_matrix": False, "axis": -1, "tensor_scale": False},
    as_called=_as_called,
)  # fmt: skip


def _flashinfers(
    name: str,
    fields: Callable[..., Fields],
    options: Callable[[Choices, Fields], dict[str, Any]],
    aliases: dict[str, str],
    quant: str,
    formats: tuple[QuantSpec, ...],
    choices: dict[str, Any] | None = None,
) -> Op:
    return Op(
        name, _LIKE_FLASHINFER, {"op": "dequantize", "input": "float32"}, fields, aliases,
        choices={"quant": quant, "layout": "128x4", "input": "float32", **(choices or {})},
        formats=formats, layouts=ONE_LAYOUT, global_scales=("none",), as_called=_as_called, options=options,
    )  # fmt: skip


def _fp4(block_size: int, ufp8_type: int, is_swizzled: bool, is_8x4: bool, has_scale: bool) -> Fields:
    require_one_of("ufp8_type", ufp8_type, (0, 1))
    if is_8x4 and not is_swizzled:
        raise ValueError("is_sf_8x4_layout: is True, but is_sf_swizzled_layout is False; pass True for both, or False")
    quant = fp4_spec(block_size, "e4m3" if ufp8_type else "ue8m0", layout_of_flags(is_swizzled, is_8x4), "none")
    return {"quant": quant, "tensor_scale": has_scale}


def _mxfp4(sf_layout: Any) -> Fields:
    return {"quant": MXFP4.with_layout(layout_name("sfLayout", sf_layout))}


def _mxfp8(is_swizzled: bool, sf_layout: Any) -> Fields:
    layout = "128x4" if is_swizzled else "linear"
    return {"quant": MXFP8.with_layout(layout if sf_layout is None else layout_name("sf_swizzle_layout", sf_layout))}


def _fp4_options(_: Choices, fields: Fields) -> dict[str, Any]:
    quant = fields["quant"]
    return {
        "sf_vec_size": quant.block_size,
        "ufp8_type": int(quant.scale_format == "e4m3"),
        "is_sf_swizzled_layout": quant.is_swizzled,
        "is_sf_8x4_layout": quant.scale_layout == "8x4",
    }


def _mxfp4_options(_: Choices, fields: Fields) -> dict[str, Any]:
    return {"sfLayout": sf_layout_of(fields["quant"].scale_layout)}


def _mxfp8_options(_: Choices, fields: Fields) -> dict[str, Any]:
    return {"sf_swizzle_layout": sf_layout_of(fields["quant"].scale_layout)}


E2M1_AND_UFP8SF_SCALE_TO_FLOAT = _flashinfers(
    "e2m1_and_ufp8sf_scale_to_float", _fp4, _fp4_options,
    {"data": "e2m1_tensor", "scale": "ufp8_scale_tensor", "tensor_scale": "global_scale_tensor"},
    "nvfp4", FP4, {"tensor_scale": False},
)  # fmt: skip
MXFP4_DEQUANTIZE = _flashinfers(
    "mxfp4_dequantize", _mxfp4, _mxfp4_options, {"data": "a_fp4", "scale": "a_sf"}, "mxfp4", (MXFP4,)
)
MXFP8_DEQUANTIZE_HOST = _flashinfers(
    "mxfp8_dequantize_host", _mxfp8, _mxfp8_options, {"data": "input", "scale": "scale_tensor"}, "mxfp8", (MXFP8,)
)

OPS = (DEQUANTIZE, E2M1_AND_UFP8SF_SCALE_TO_FLOAT, MXFP4_DEQUANTIZE, MXFP8_DEQUANTIZE_HOST)
