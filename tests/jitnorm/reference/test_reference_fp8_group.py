"""FP8 with a float32 scale for each group in the reference, against exact rational arithmetic."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from float32_oracle import (
    FLT_MAX,
    INF,
    NANS,
    around,
    bits,
    exact,
    nearest_float32,
    random_rows,
)
from fp8_oracle import exact_codes, ties
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from jitnorm.reference import (
    GroupScaleFormat,
    encode_e4m3,
    quantize_fp8_group,
)

every_group = pytest.mark.parametrize("group_size", [16, 32, 48, 64, 96, 128, 256])
every_scale_format = pytest.mark.parametrize("scale_format", ["f32", "ue8m0_f32"])
finite_float32 = st.floats(width=32, allow_nan=False, allow_infinity=False)


def exact_group_scale(amax: np.float32, scale_format: str) -> np.float32:
    scale = nearest_float32(max(exact(amax), exact(np.float32(1e-4))) / 448)
    if scale_format == "f32":
        return scale
    power = Fraction(1, 2**30)
    while power < exact(scale):
        power *= 2
    return nearest_float32(power)


@every_group
@every_scale_format
@settings(deadline=None, max_examples=30)
@given(data=st.data())
def test_a_group_rounds_after_every_operation(
    group_size: int, scale_format: GroupScaleFormat, data: st.DataObject
) -> None:
    elements = finite_float32 | st.floats(-4, 4, width=32)
    y = data.draw(arrays(np.float32, (1, 2 * group_size), elements=elements))
    codes, scales = quantize_fp8_group(y, group_size, scale_format)
    groups = y.reshape(-1, group_size)
    expected = [exact_group_scale(np.abs(group).max(), scale_format) for group in groups]
    assert scales.tolist() == [expected]
    exact_groups = [exact_codes(group, s, "e4m3") for group, s in zip(groups, expected, strict=True)]
    assert codes[0].tolist() == [code for group in exact_groups for code in group]


@every_scale_format
def test_a_group_rounds_after_every_operation_next_to_a_boundary(scale_format: GroupScaleFormat) -> None:
    amax = np.abs(random_rows(10, 1)) + np.float32(1)
    scale = np.array([[exact_group_scale(a, scale_format)] for a in amax[:, 0]])
    y = np.concatenate([amax, around(ties("e4m3"))[:127] * scale], axis=1)
    y[:, 1:] = np.clip(y[:, 1:], -amax, amax)
    codes, scales = quantize_fp8_group(y, 128, scale_format)
    assert scales.tolist() == scale.tolist()
    for row, row_codes, row_scale in zip(y, codes, scales[:, 0], strict=True):
        assert row_codes.tolist() == exact_codes(row, row_scale, "e4m3")


def test_a_group_multiplies_by_the_rounded_inverse_of_its_divided_scale() -> None:
    y = random_rows(300, 128)
    codes, scales = quantize_fp8_group(y)
    amax = np.abs(y).max(axis=1, keepdims=True)
    assert (scales == amax / np.float32(448)).all()
    assert (scales != amax * (np.float32(1) / np.float32(448))).any()
    tie = ties("e4m3")[60:124]
    y[:, 1:65] = np.clip(tie * scales, -amax, amax)
    y[:, 0] = amax[:, 0]
    codes, scales = quantize_fp8_group(y)
    assert (codes != encode_e4m3(y / scales)).any(), "the cases do not tell a division from a multiplication"


@pytest.mark.parametrize(
    ("amax", "power"),
    [
        (448.0, 1.0),
        (np.nextafter(np.float32(448), INF), 2.0),
        (np.nextafter(np.float32(448), np.float32(0)), 1.0),
        (672.0, 2.0),
        (224.0, 0.5),
        (1e-4, 2.0**-22),
        (0.0, 2.0**-22),
        (FLT_MAX, 2.0**120),
        (INF, INF),
    ],
)
def test_a_power_of_two_scale_is_the_least_one_not_below(amax: float, power: float) -> None:
    y = np.zeros((1, 64), np.float32)
    y[0, 9] = -amax
    assert quantize_fp8_group(y, 64, "ue8m0_f32")[1].tolist() == [[power]]


@every_scale_format
def test_a_small_group_has_the_least_scale_and_keeps_its_signs(scale_format: GroupScaleFormat) -> None:
    y = np.full((1, 64), -0.0, np.float32)
    y[0, 0] = 2.0**-149
    codes, scales = quantize_fp8_group(y, 64, scale_format)
    assert scales.tolist() == [[exact_group_scale(np.float32(0), scale_format)]]
    assert codes[0].tolist() == [0x00] + [0x80] * 63


@every_group
@every_scale_format
@pytest.mark.parametrize("nan", NANS)
def test_a_nan_takes_its_whole_group_and_no_other(
    group_size: int, scale_format: GroupScaleFormat, nan: np.float32
) -> None:
    y = np.ones((1, 2 * group_size), np.float32)
    y[0, 3:5] = nan, INF
    codes, scales = quantize_fp8_group(y, group_size, scale_format)
    assert bits(scales[0, :1]) == [0x7FFFFFFF]
    assert (codes[0, :group_size] == 0x7F).all()
    assert scales[0, 1] == exact_group_scale(np.float32(1), scale_format)
    assert (codes[0, group_size:] & 0x7F != 0x7F).all()


@every_scale_format
def test_an_infinity_makes_the_scale_of_its_group_infinite(scale_format: GroupScaleFormat) -> None:
    y = np.ones((1, 64), np.float32)
    y[0, :3] = INF, -INF, -3
    codes, scales = quantize_fp8_group(y, 64, scale_format)
    assert scales.tolist() == [[INF]]
    assert codes[0, :4].tolist() == [0x7F, 0x7F, 0x80, 0x00], "zero times infinity is NaN"
