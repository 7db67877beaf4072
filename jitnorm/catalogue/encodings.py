"""Formats of ops on encoded values, and the encodings that their arguments select."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from jitnorm.catalogue.four_over_six import FourOverSix
from jitnorm.catalogue.op import Allocated
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.extents import ROWS, shape
from jitnorm.kernels.numerics import round_up
from jitnorm.kernels.quant_spec import MXFP4, NVFP4, QuantSpec, require_one_of
from jitnorm.kernels.row_counts import padded_rows

FP4 = (NVFP4, MXFP4, replace(NVFP4, block_size=32), replace(MXFP4, block_size=16))
FP4_E4M3 = (NVFP4, replace(NVFP4, block_size=32))
ONE_LAYOUT = ("linear", "128x4", "8x4")
ONE_OR_BOTH = ("linear", "128x4", "linear+128x4")
GIVEN_OR_NONE = ("none", "given")
FP8_ELEMENTS = {"float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2"}

# The outputs of general ops under their callers' names.
GENERAL_OUTPUTS = {
    "y_fp4": "out", "block_scale": "out_scale", "row_scale": "out_scale", "tensor_scale": "out_scale",
}  # fmt: skip

# Choices that several ops share, with the defaults of calls that omit them.
ROUNDING: dict[str, Any] = {"rounding": "once"}
NORM: dict[str, Any] = {"weight": "", **ROUNDING}
KEEP_NORM: dict[str, Any] = {"keep_norm": False}
FOUR_OVER_SIX: dict[str, Any] = {"four_over_six": False}
BATCH: dict[str, Any] = {"batched": False, "masked": False, "scale_per_matrix": False}
ANY_ENCODING: dict[str, Any] = {
    "quant": None, "layout": None, "global_scale": None, "scale_rounding": None, "four_over_six": None,
    "e4m3_max": None,
}  # fmt: skip


def encoding_options(quant: QuantSpec) -> dict[str, Any]:
    """The arguments of a general op for an encoding, besides given scales."""
    options: dict[str, Any] = {"spec": quant if quant.has_given_scales else replace(quant, global_scale="none")}
    if quant.needs_tensor_amax and not quant.has_blocks:
        options["scale"] = "tensor"
    elif quant.global_scale in ("row", "tensor"):
        options["global_scale"] = quant.global_scale
    return options


def given_or_none(is_given: bool) -> str:
    """The kind of global scale for an op that accepts one."""
    return "given" if is_given else "none"


def norm_layout(is_swizzled: bool, both: bool) -> str:
    """The scale layout that a norm's flags select."""
    return "linear+128x4" if both else "128x4" if is_swizzled else "linear"


def fp4_spec(
    block_size: int, scale_format: str, layout: str, global_scale: str, recipe: FourOverSix | None = None
) -> QuantSpec:
    """The encoding that FlashInfer's arguments select; `block_size` is `sf_vec_size`, the others are as in QuantSpec.

    Raises:
        ValueError: a value that is not allowed.
    """
    require_one_of("sf_vec_size", block_size, (16, 32))
    better_of_two = recipe.fields(global_scale) if recipe else {}
    return QuantSpec("e2m1", block_size, scale_format, layout, global_scale, **better_of_two)


def byte_outputs(config: KernelConfig) -> Allocated:
    """Codes and scales as bytes, and scales with two dimensions, as FlashInfer allocates them."""
    columns = config.hidden_size // config.block_size
    swizzled = config.quant is not None and config.quant.is_swizzled
    scales = shape(padded_rows(config), round_up(columns, 4)) if swizzled else shape(ROWS, columns)
    return {"y_fp4": (None, "uint8"), "block_scale": (scales, "uint8")}
