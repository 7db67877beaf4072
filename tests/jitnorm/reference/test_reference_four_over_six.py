"""NVFP4 whose blocks choose between the scales of 6 and 4, against exact rational arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from float32_oracle import F32, FLT_MAX, INF, NANS, exact, exact_fma, nearest_float32, random_rows
from fp4_oracle import E2M1_VALUES, E4M3_VALUES, SIXTH, exact_e4m3_block, unpack
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from jitnorm.reference import (
    dequantize_fp4,
    quantize_fp4,
    quantize_nvfp4_row,
    quantize_nvfp4_tensor,
)

NVFP4: Any = {"block_size": 16, "scale_format": "e4m3"}
QUARTER = np.float32(0.25)


def exact_error(
    block: F32, encoded: tuple[int, list[int]], global_scale: float, choice: bool | str = True
) -> np.float32:
    """Sum the squared or absolute differences in order, rounding exact rationals where the definition does."""
    byte, codes = encoded
    step = exact(nearest_float32(E4M3_VALUES[byte] * exact(nearest_float32(1 / exact(global_scale)))))
    error = np.float32(0)
    for y, code in zip(block, codes, strict=True):
        value = E2M1_VALUES[code & 7] * (-1 if code & 8 else 1)
        difference = nearest_float32(exact(y) - exact(nearest_float32(value * step)))
        if choice == "mae":
            error = nearest_float32(exact(error) + abs(exact(difference)))
        else:
            error = exact_fma(difference, difference, error)
    return error


def exact_block(block: F32, global_scale: float, choice: bool | str = True) -> tuple[int, list[int]]:
    six, four = (exact_e4m3_block(block, global_scale, reciprocal) for reciprocal in (SIXTH, QUARTER))
    errors = [exact_error(block, each, global_scale, choice) for each in (six, four)]
    return four if errors[1] < errors[0] else six


CHOICES = pytest.mark.parametrize("choice", [True, "mae"])


@CHOICES
@settings(deadline=None, max_examples=100)
@given(
    y=arrays(np.float32, (1, 16), elements=st.floats(-8, 8, width=32) | st.sampled_from([6.0, 5.0, 4.0, -2.5, 0.0])),
    global_scale=st.floats(2.0**-8, 2.0**8, width=32),
)
def test_blocks_round_after_every_operation(choice: Any, y: F32, global_scale: float) -> None:
    codes, scales = quantize_fp4(y, **NVFP4, global_scale=global_scale, four_over_six=choice)
    assert (scales[0, 0], unpack(codes)[0].tolist()) == exact_block(y[0], global_scale, choice)


@CHOICES
def test_random_blocks_take_either_scale(choice: Any) -> None:
    y = random_rows(40, 16)
    codes, scales = quantize_fp4(y, **NVFP4, global_scale=3.7, four_over_six=choice)
    expected = [exact_block(block, np.float32(3.7), choice) for block in y]
    assert [(s, c.tolist()) for s, c in zip(scales[:, 0], unpack(codes), strict=True)] == expected
    is_six = scales == quantize_fp4(y, **NVFP4, global_scale=3.7)[1]
    assert 5 < is_six.sum() < 35


def takes_six(y: F32, global_scale: float) -> NDArray[np.bool_]:
    chosen, six = (quantize_fp4(y, **NVFP4, global_scale=global_scale, four_over_six=f)[1] for f in (True, False))
    equal: NDArray[np.bool_] = (chosen == six)[:, 0]
    return equal


def test_the_errors_round_after_every_operation_where_they_are_all_but_equal() -> None:
    global_scale = np.float32(0.7)
    y = np.abs(random_rows(600, 16)) + np.float32(0.25)
    low, high = y.copy(), y.copy()
    low[:, 15], high[:, 15] = 0.25, np.abs(y).max(axis=1) * np.float32(0.9)
    at_low = takes_six(low, global_scale)
    turns = at_low != takes_six(high, global_scale)
    low, high, at_low = low[turns], high[turns], at_low[turns]
    for _ in range(26):  # until the two are neighbours: the last element decides there
        middle = (low.view(np.int32) + (high.view(np.int32) - low.view(np.int32)) // 2).view(np.float32)
        is_low = (takes_six(middle, global_scale) == at_low)[:, None]
        low, high = np.where(is_low, middle, low), np.where(is_low, high, middle)
    assert len(low) > 40
    for block in np.concatenate([low, high]):
        codes, scales = quantize_fp4(block[None], **NVFP4, global_scale=global_scale, four_over_six=True)
        assert (scales[0, 0], unpack(codes)[0].tolist()) == exact_block(block, global_scale)


def test_no_block_gets_worse() -> None:
    y = random_rows(50, 64)
    errors = []
    for four_over_six in (False, True):
        codes, scales = quantize_fp4(y, **NVFP4, four_over_six=four_over_six)
        difference = dequantize_fp4(codes, scales, **NVFP4).astype(np.float64) - y
        errors.append((difference.reshape(50, 4, 16) ** 2).sum(axis=-1))
    assert (errors[1] <= errors[0] * (1 + 1e-6)).all()
    assert errors[1].sum() < 0.95 * errors[0].sum()


@pytest.mark.parametrize(
    ("elements", "scale", "codes"),
    [
        ([6, 4, 3, 2], 0x38, [7, 6, 5, 4]),  # nothing is lost with 6
        ([4, 3, 2, 1], 0x38, [6, 5, 4, 2]),  # nothing is lost with 4
        ([0, 0, 0, 0], 0x00, [0, 0, 0, 0]),  # a tie, to 6
    ],
)
def test_the_scale_that_loses_less_wins_and_6_wins_a_tie(elements: list[int], scale: int, codes: list[int]) -> None:
    y = np.zeros((1, 16), np.float32)
    y[0, :4] = elements
    packed, scales = quantize_fp4(y, **NVFP4, four_over_six=True)
    assert scales.tolist() == [[scale]]
    assert unpack(packed)[0, :4].tolist() == codes


def test_the_scale_of_4_saturates() -> None:
    y = np.full((1, 16), 448 * 3, np.float32)
    y[0, 0] = 448 * 4.2
    packed, scales = quantize_fp4(y, **NVFP4, four_over_six=True)
    assert scales.tolist() == [[0x7E]]
    assert unpack(packed)[0].tolist() == [0x6] + [0x5] * 15


@pytest.mark.parametrize("special", [*NANS, INF, FLT_MAX])
def test_a_block_without_a_finite_error_takes_the_scale_of_6(special: float) -> None:
    y = np.ones((1, 32), np.float32)
    y[0, 3] = special
    usual = quantize_fp4(y[:, :16], **NVFP4)
    codes, scales = quantize_fp4(y, **NVFP4, four_over_six=True)
    assert codes[:, :8].tobytes() == usual[0].tobytes()
    assert scales[:, :1].tobytes() == usual[1].tobytes()


def test_every_kind_of_global_scale_takes_it() -> None:
    y = random_rows(6, 64)
    codes, scales, row_scales = quantize_nvfp4_row(y, four_over_six=True)
    for i, row in enumerate(y):
        gs = np.float32(2688) / np.abs(row).max()
        alone = quantize_fp4(row[None], **NVFP4, global_scale=gs, four_over_six=True)
        assert [part.tobytes() for part in alone] == [codes[i].tobytes(), scales[i].tobytes()]
        assert row_scales[i] == np.float32(1) / gs
    gs = np.float32(2688) / np.abs(y).max()
    whole = quantize_nvfp4_tensor(y, four_over_six=True)
    given_scale = quantize_fp4(y, **NVFP4, global_scale=gs, four_over_six=True)
    assert [part.tobytes() for part in whole[:2]] == [part.tobytes() for part in given_scale]


def test_a_global_scale_that_is_found_may_leave_room_for_the_scale_of_4() -> None:
    y = random_rows(6, 64)
    gs = np.float32(1536) / np.abs(y).max(axis=1)
    codes, scales, row_scales = quantize_nvfp4_row(y, four_over_six="mae", e4m3_max=256)
    for i, row in enumerate(y):
        alone = quantize_fp4(row[None], **NVFP4, global_scale=gs[i], four_over_six="mae")
        assert [part.tobytes() for part in alone] == [codes[i].tobytes(), scales[i].tobytes()]
    np.testing.assert_array_equal(row_scales, np.float32(1) / gs)
    tensor_scale = quantize_nvfp4_tensor(y, e4m3_max=256)[2]
    np.testing.assert_array_equal(tensor_scale, [np.float32(1) / (np.float32(1536) / np.abs(y).max())])


ONES = np.ones((2, 64), np.float32)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: quantize_fp4(ONES, block_size=32, scale_format="e4m3", four_over_six=True), "block_size is 32"),
        (lambda: quantize_fp4(ONES, block_size=32, scale_format="ue8m0", four_over_six=True), "four_over_six is True"),
        (lambda: quantize_nvfp4_row(ONES, 32, four_over_six=True), "block_size is 32"),
        (lambda: quantize_nvfp4_tensor(ONES, 32, four_over_six=True), "block_size is 32"),
    ],
)
def test_other_formats_do_not_know_it(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
