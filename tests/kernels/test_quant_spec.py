"""QuantSpec: the named formats, their texts, and the properties of scale layouts."""

from __future__ import annotations

import dataclasses

import pytest
from jitnorm.kernels.quant_spec import (
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

import jitnorm


def test_the_named_formats_are_nvidia_s_and_ocp_s() -> None:
    assert str(NVFP4) == "e2m1/16/e4m3/linear/none"
    assert str(MXFP4) == "e2m1/32/ue8m0/linear/none"
    assert str(MXFP8) == "e4m3/32/ue8m0/linear/none"
    assert str(FP8_TENSOR) == "e4m3/tensor/f32/linear/none"
    assert str(FP8_TOKEN) == "e4m3/row/f32/linear/none"
    assert str(FP8_GROUP) == "e4m3/128/f32/linear/none"
    assert str(FP8_BLOCK) == "e4m3/128x128/f32/linear/none"
    assert str(INT8_TENSOR) == "int8/tensor/f32/linear/none"
    assert str(INT8_TOKEN) == "int8/row/f32/linear/none"
    assert str(INT8_GROUP) == "int8/128/f32/linear/none"
    for name in ("NVFP4", "MXFP4", "MXFP8", "FP8_TENSOR", "FP8_TOKEN", "FP8_GROUP", "FP8_BLOCK"):
        assert getattr(jitnorm, name) == globals()[name]
    for name in ("INT8_TENSOR", "INT8_TOKEN", "INT8_GROUP"):
        assert getattr(jitnorm, name) == globals()[name]


def test_options_of_a_spec_are_in_its_text_if_one_is_not_the_default() -> None:
    assert str(dataclasses.replace(MXFP4, scale_rounding="floor")) == "e2m1/32/ue8m0/linear/none/floor/false"
    assert str(dataclasses.replace(NVFP4, four_over_six=True)) == "e2m1/16/e4m3/linear/none/up/true"
    assert str(FP8_GROUP.with_scale_floor(2.0**-20)) == "e4m3/128/f32/linear/none/up/false/9.5367431640625e-07"


def test_another_layout_is_another_value() -> None:
    assert str(MXFP4.with_layout("128x4")) == "e2m1/32/ue8m0/128x4/none"
    assert MXFP4.scale_layout == "linear"


@pytest.mark.parametrize(
    ("layout", "swizzled", "both", "rows"),
    [
        ("linear", False, False, 1),
        ("128x4", True, False, 128),
        ("linear+128x4", True, True, 128),
        ("8x4", True, False, 8),
        ("linear+8x4", True, True, 8),
    ],
)
def test_a_layout_says_which_scales_are_written(layout: str, swizzled: bool, both: bool, rows: int) -> None:
    spec = NVFP4.with_layout(layout)
    assert (spec.is_swizzled, spec.both_layouts, spec.row_multiple) == (swizzled, both, rows)
    assert not spec.is_column_major


@pytest.mark.parametrize(("layout", "rows"), [("column", 1), ("column4", 4), ("packed", 4)])
def test_a_column_major_layout_rounds_the_rows_up(layout: str, rows: int) -> None:
    spec = QuantSpec("e4m3", 128, "f32_ue8m0", layout)
    assert (spec.is_column_major, spec.is_swizzled, spec.both_layouts) == (True, False, False)
    assert spec.row_multiple == rows
