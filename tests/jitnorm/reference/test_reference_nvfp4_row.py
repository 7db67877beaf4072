"""NVFP4 with a global scale a row in the reference, against exact rational arithmetic."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from float32_oracle import F32, FLT_MAX, INF, NANS, bits, exact, nearest_float32, random_rows
from fp4_oracle import exact_e4m3_block, unpack
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from jitnorm.reference import decode_e2m1, decode_e4m3, quantize_fp4, quantize_nvfp4_row

every_block_size = pytest.mark.parametrize("block_size", [16, 32])


def exact_global_scale(amax: np.float32) -> np.float32:
    return min(nearest_float32(Fraction(2688) / exact(amax)), np.float32(FLT_MAX))


@every_block_size
@settings(deadline=None, max_examples=50)
@given(y=arrays(np.float32, (1, 64), elements=st.floats(-(2.0**30), 2.0**30, width=32)))
def test_blocks_round_after_every_operation(block_size: int, y: F32) -> None:
    y[0, 0] = 2.0**-30  # a row of zeros has no global scale
    codes, scales, row_scales = quantize_nvfp4_row(y, block_size)
    global_scale = exact_global_scale(np.abs(y).max())
    assert row_scales.tolist() == [nearest_float32(1 / exact(global_scale))]
    blocks = [exact_e4m3_block(block, float(global_scale)) for block in y.reshape(-1, block_size)]
    assert scales[0].tolist() == [byte for byte, _ in blocks]
    assert unpack(codes)[0].tolist() == [code for _, block in blocks for code in block]


def test_the_global_scale_is_one_division() -> None:
    y = random_rows(200, 16)
    amax = np.abs(y).max(axis=1)
    row_scales = quantize_nvfp4_row(y)[2]
    one = np.float32(1)
    assert row_scales.tolist() == [nearest_float32(1 / exact(exact_global_scale(a))) for a in amax]
    others = {
        "amax over 2688": amax / np.float32(2688),
        "448 over amax times 6": one / (np.float32(448) / amax * np.float32(6)),
        "one over amax times 2688": one / (one / amax * np.float32(2688)),
    }
    assert [name for name, other in others.items() if (other == row_scales).all()] == []


@every_block_size
def test_each_row_is_quantized_as_a_tensor_of_its_own(block_size: int) -> None:
    y = random_rows(9, 128) * np.ldexp(np.float32(1), np.arange(-100, 80, 20))[:, None].astype(np.float32)
    codes, scales, row_scales = quantize_nvfp4_row(y, block_size)
    assert row_scales.shape == (9,)
    for i, row in enumerate(y):
        gs = float(exact_global_scale(np.abs(row).max()))
        alone = quantize_fp4(row[None], block_size=block_size, scale_format="e4m3", global_scale=gs)
        assert [part.tobytes() for part in alone] == [codes[i].tobytes(), scales[i].tobytes()]


@settings(deadline=None, max_examples=50)
@given(y=arrays(np.float32, (2, 64), elements=st.floats(-(2.0**100), 2.0**100, width=32)))
def test_decoding_is_off_by_half_a_step(y: F32) -> None:
    y[:, 0] = 2.0**-100
    codes, scales, row_scales = quantize_nvfp4_row(y)
    step = np.repeat(decode_e4m3(scales), 16, axis=1).astype(np.float64) * row_scales[:, None]
    decoded = decode_e2m1(unpack(codes)) * step
    magnitude = np.abs(y.astype(np.float64))
    # A scale is off by 1/16 at most, or by half the least one, so an element may saturate by as much.
    least = 6 * 2.0**-10 * row_scales[:, None]
    bound = np.maximum(np.maximum(step / 4, magnitude / 5), np.maximum(magnitude - 6 * step, least))
    assert (np.abs(decoded - y) <= bound * (1 + 2.0**-20)).all()


def test_the_largest_element_of_a_row_takes_the_largest_scale_and_code() -> None:
    y = random_rows(300, 48)
    codes, scales, _ = quantize_nvfp4_row(y)
    place = np.abs(y).argmax(axis=1)
    rows = np.arange(300)
    assert (scales[rows, place // 16] == 0x7E).all()
    assert (unpack(codes)[rows, place] & 0x7 == 0x7).all()


def test_a_row_of_zeros_is_zero_without_a_sign() -> None:
    y = np.full((2, 32), -0.0, np.float32)
    y[1] = 1
    codes, scales, row_scales = quantize_nvfp4_row(y)
    assert not codes[0].any()
    assert not scales[0].any()
    assert bits(row_scales[:1]) == [0]
    assert row_scales[1] != 0


@pytest.mark.parametrize("nan", NANS)
def test_a_nan_takes_its_whole_row_and_no_other(nan: np.float32) -> None:
    y = np.ones((2, 48), np.float32)
    y[0, :16], y[0, 20], y[0, 21] = 0, nan, INF
    codes, scales, row_scales = quantize_nvfp4_row(y)
    assert (codes[0] == 0x77).all()
    assert (scales[0] == 0x7F).all()
    assert bits(row_scales[:1]) == [0x7FFFFFFF]
    assert (codes[1] == 0x77).all()
    assert (scales[1] == 0x7E).all()


def test_an_infinity_counts_as_the_largest_number() -> None:
    y = np.zeros((2, 32), np.float32)
    y[:, :3] = [[INF, -INF, -1], [FLT_MAX, -FLT_MAX, -1]]
    y[:, 16] = FLT_MAX / 2
    codes, scales, row_scales = quantize_nvfp4_row(y)
    assert codes[0].tobytes() == codes[1].tobytes()
    assert unpack(codes)[0, :4].tolist() == [0x7, 0xF, 0x8, 0x0]
    assert scales.tolist() == [[0x7E, 0x76]] * 2
    assert row_scales.tolist() == [nearest_float32(1 / exact(exact_global_scale(np.float32(FLT_MAX))))] * 2


@pytest.mark.parametrize(
    ("amax", "scale", "code"),
    [
        (2.0**-116, 0x7E, 0x7),  # the global scale is below the largest float32
        (2.0**-117, 0x7B, 0x7),  # from here on it is the largest: 2^11 / 6 lies nearest to 352
        (6 * 2.0**-128, 0x38, 0x7),  # 1
        (6 * 2.0**-130, 0x28, 0x3),  # 1/4; the encode scale is the largest float32 too, and 6 becomes 1.5
        (6 * 2.0**-138, 0x00, 0x0),  # 2^-10 is a tie, to the even zero
        (2.0**-149, 0x00, 0x0),
    ],
)
def test_the_global_scale_of_a_tiny_row_stays_finite(amax: float, scale: int, code: int) -> None:
    y = np.zeros((1, 16), np.float32)
    y[0, 3] = amax
    codes, scales, row_scales = quantize_nvfp4_row(y)
    global_scale = exact_global_scale(np.float32(amax))
    assert (scales[0, 0], unpack(codes)[0, 3]) == (scale, code)
    assert row_scales.tolist() == [nearest_float32(1 / exact(global_scale))]


def test_no_rows_give_no_codes() -> None:
    shapes = [part.shape for part in quantize_nvfp4_row(np.ones((0, 64), np.float32))]
    assert shapes == [(0, 32), (0, 4), (0,)]


ONES = np.ones((2, 64), np.float32)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: quantize_nvfp4_row(ONES.astype(np.float64)), TypeError, "y is float64"),
        (lambda: quantize_nvfp4_row(ONES, 8), ValueError, "block_size is 8"),
        (lambda: quantize_nvfp4_row(ONES[:, :24]), ValueError, "multiple of 16"),
        (lambda: quantize_nvfp4_row(ONES[:, :0]), ValueError, "at least one element"),
    ],
)
def test_what_is_not_defined_is_an_error(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
