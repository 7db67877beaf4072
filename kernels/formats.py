"""The names of encodings."""

from __future__ import annotations

from dataclasses import replace

from .quant_spec import (
    CODE_BITS,
    FP8_BLOCK,
    FP8_GROUP,
    FP8_TENSOR,
    FP8_TOKEN,
    INT8_GROUP,
    INT8_TENSOR,
    INT8_TOKEN,
    MXFP4,
    MXFP8,
    NVFP4,
    QuantSpec,
)
from .spelling import did_you_mean

FORMATS = {
    "nvfp4": NVFP4,
    "mxfp4": MXFP4,
    "mxfp8": MXFP8,
    "fp8": FP8_TENSOR,
    "fp8_token": FP8_TOKEN,
    "fp8_group": FP8_GROUP,
    "fp8_block": FP8_BLOCK,
    "int8": INT8_TENSOR,
    "int8_token": INT8_TOKEN,
    "int8_group": INT8_GROUP,
    "fp8_e5m2": replace(FP8_TENSOR, element="e5m2"),
    "fp8_token_e5m2": replace(FP8_TOKEN, element="e5m2"),
    "fp8_group64": replace(FP8_GROUP, block_size=64),
    "fp8_group_ue8m0": replace(FP8_GROUP, scale_format="f32_ue8m0"),
    "fp8_block_ue8m0": replace(FP8_BLOCK, scale_format="f32_ue8m0"),
}


def read_format(text: str) -> QuantSpec:
    """Parse the name of an encoding, or the text form of a QuantSpec; ValueError if it is neither.

    Example:
        >>> str(read_format("nvfp4")), read_format("e2m1/32/e4m3").block_size
        ('e2m1/16/e4m3/linear/none', 32)
    """
    if text in FORMATS:
        return FORMATS[text]
    if "/" not in text and text not in CODE_BITS:
        raise ValueError(
            f"quant: {text!r} is not known; use one of {', '.join(FORMATS)}, or the text of a QuantSpec such as "
            f"e2m1/16/e4m3/128x4/given{did_you_mean(text, FORMATS)}"
        )
    return QuantSpec.parse(text)
