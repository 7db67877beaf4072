"""The scale layouts of the reference, byte by byte from their definition."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jitnorm.reference import ScaleLayout, column_major_scales, swizzle_scales, unswizzle_scales

LAYOUTS: list[ScaleLayout] = ["linear", "128x4", "8x4"]


def scalar_offset(m: int, k: int, columns: int, layout: str) -> int:
    tiles = math.ceil(columns / 4)
    if layout == "linear":
        return m * columns + k
    if layout == "128x4":
        return (m // 128) * tiles * 512 + (k // 4) * 512 + (m % 32) * 16 + ((m % 128) // 32) * 4 + k % 4
    return (m // 8) * tiles * 32 + (k // 4) * 32 + (m % 8) * 4 + k % 4


@pytest.mark.parametrize("layout", LAYOUTS)
@settings(deadline=None)
@given(rows=st.integers(0, 300), columns=st.integers(1, 13))
def test_swizzling_is_a_bijection_with_zero_padding(rows: int, columns: int, layout: ScaleLayout) -> None:
    scales = (np.arange(rows * columns, dtype=np.int64) % 255 + 1).astype(np.uint8).reshape(rows, columns)
    laid_out = swizzle_scales(scales, layout)
    unit, width = {"linear": (1, 1), "128x4": (128, 4), "8x4": (8, 4)}[layout]
    assert laid_out.size == math.ceil(rows / unit) * unit * math.ceil(columns / width) * width
    assert laid_out.shape == ((rows, columns) if layout == "linear" else (laid_out.size,))
    expected = [0] * laid_out.size
    for m in range(rows):
        for k in range(columns):
            expected[scalar_offset(m, k, columns, layout)] = int(scales[m, k])
    assert laid_out.ravel().tolist() == expected
    assert np.count_nonzero(laid_out) == scales.size
    assert (unswizzle_scales(laid_out, rows, columns, layout) == scales).all()


def test_an_unknown_layout_is_an_error() -> None:
    unknown: Any = "64x4"
    with pytest.raises(ValueError, match="layout is '64x4'; use one of 'linear', '128x4', '8x4'"):
        swizzle_scales(np.ones((2, 4), np.uint8), unknown)


def test_bytes_that_do_not_fill_the_layout_are_an_error() -> None:
    with pytest.raises(ValueError, match="flat has 8 bytes"):
        unswizzle_scales(np.ones(8, np.uint8), 2, 4, "8x4")


def test_scales_must_be_bytes_in_two_dimensions() -> None:
    with pytest.raises(TypeError, match="scales is float32"):
        swizzle_scales(np.ones((2, 4), np.float32), "8x4")
    with pytest.raises(ValueError, match="it must be 2-D"):
        swizzle_scales(np.ones(8, np.uint8), "8x4")


@pytest.mark.parametrize("tma_aligned", [False, True])
@settings(deadline=None)
@given(rows=st.integers(0, 70), groups=st.integers(0, 9))
def test_column_major_scales_lie_one_column_after_the_other(rows: int, groups: int, tma_aligned: bool) -> None:
    scales = np.arange(1, rows * groups + 1, dtype=np.float32).reshape(rows, groups)
    flat = column_major_scales(scales, tma_aligned)
    column_size = math.ceil(rows / 4) * 4 if tma_aligned else rows
    expected = [0.0] * (groups * column_size)
    for m in range(rows):
        for g in range(groups):
            expected[g * column_size + m] = float(scales[m, g])
    assert flat.dtype == np.float32
    assert flat.tolist() == expected


def test_column_major_scales_must_be_float32_in_two_dimensions() -> None:
    with pytest.raises(TypeError, match="scales is uint8"):
        column_major_scales(np.ones((2, 4), np.uint8), True)
    with pytest.raises(ValueError, match="it must be 2-D"):
        column_major_scales(np.ones(8, np.float32), True)
