"""The FP4 blocks and scales of the reference, against ml_dtypes and exact rational arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from float32_oracle import F32, FLT_MAX, INF, NAN, around, bits, exact, nearest_float32
from fp4_oracle import E4M3_VALUES, SIXTH, exact_e2m1_code, exact_e4m3_block, unpack
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from jitnorm.reference import (
    ScaleFormat,
    ScaleRounding,
    decode_e4m3,
    dequantize_fp4,
    quantize_fp4,
)

FORMATS: list[tuple[int, ScaleFormat]] = [(16, "e4m3"), (32, "e4m3"), (16, "ue8m0"), (32, "ue8m0")]

every_format = pytest.mark.parametrize(("block_size", "scale_format"), FORMATS)
finite_float32 = st.floats(width=32, allow_nan=False, allow_infinity=False)


def one_block(block_size: int, **elements: float) -> F32:
    """Return one block of ones with the named elements (e0, e1, ...) replaced."""
    block = np.ones((1, block_size), np.float32)
    for name, value in elements.items():
        block[0, int(name[1:])] = value
    return block


def test_element_2i_lies_in_the_low_nibble() -> None:
    y = np.array([[6, 4, -1, 0.5] + [0] * 12], np.float32)
    codes, scales = quantize_fp4(y, block_size=16, scale_format="e4m3")
    assert codes.tolist() == [[0x67, 0x1A, 0, 0, 0, 0, 0, 0]]
    assert scales.tolist() == [[0x38]]


@pytest.mark.parametrize(
    ("amax", "up", "floor", "even"),
    [
        (6.0, 127, 127, 127),
        (np.nextafter(np.float32(6), np.float32(7)), 128, 127, 127),
        (np.nextafter(np.float32(7), np.float32(6)), 128, 127, 127),
        (7.0, 128, 127, 128),
        (4.0, 127, 127, 127),
        (np.nextafter(np.float32(3), np.float32(4)), 127, 126, 126),
        (3.0, 126, 126, 126),
        (8.0, 128, 128, 128),
        (9.0, 128, 128, 128),
        (2.0**-148, 0, 0, 0),  # a sixth of it is zero
        (3 * 2.0**-149, 1, 0, 0),  # a sixth would be a tie to zero; the float32 factor lies above a sixth
        (2.0**-130, 1, 0, 0),
        (2.0**-125, 1, 0, 0),
        (FLT_MAX, 253, 252, 253),
        (INF, 254, 253, 253),
        (0.0, 0, 0, 0),
        (NAN, 0xFF, 0xFF, 0xFF),
    ],
)
def test_a_ue8m0_scale_is_a_power_of_two(amax: float, up: int, floor: int, even: int) -> None:
    y = np.zeros((1, 32), np.float32)
    y[0, 7] = -amax
    options: Any = {"block_size": 32, "scale_format": "ue8m0"}
    assert quantize_fp4(y, **options)[1].tolist() == [[up]]
    assert quantize_fp4(y, **options, scale_rounding="floor")[1].tolist() == [[floor]]
    assert quantize_fp4(y, **options, scale_rounding="even")[1].tolist() == [[even]]


positive_normal = st.floats(2.0**-20, 2.0**20, width=32)


@settings(deadline=None, max_examples=50)
@given(
    y=arrays(np.float32, (1, 16), elements=st.floats(-(2.0**20), 2.0**20, width=32)),
    global_scale=positive_normal,
)
def test_e4m3_blocks_round_after_every_operation(y: F32, global_scale: float) -> None:
    codes, scales = quantize_fp4(y, block_size=16, scale_format="e4m3", global_scale=global_scale)
    assert (scales[0, 0], unpack(codes)[0].tolist()) == exact_e4m3_block(y[0], global_scale)


@pytest.mark.parametrize("global_scale", [1.0, 0.7, 1.1, 1.3, 100.0])
def test_e4m3_blocks_round_after_every_operation_next_to_a_boundary(global_scale: float) -> None:
    # An element next to a tie of e2m1 and a maximum next to a tie of e4m3: one wrong bit on the way shows.
    gs = np.float32(global_scale)
    scales = np.array(E4M3_VALUES[56:73], np.float32)
    maxima = around(np.float32(3) * (scales[:-1] + scales[1:]) / gs)
    ties = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0], np.float32)
    ties = np.concatenate([ties, -ties])
    y = np.zeros((len(maxima), 16), np.float32)
    y[:, 0] = maxima
    decoded_scale = quantize_fp4(y, block_size=16, scale_format="e4m3", global_scale=gs)[1]
    y[:, 1:15] = ties * (decode_e4m3(decoded_scale) / gs)
    codes, bytes_ = quantize_fp4(y, block_size=16, scale_format="e4m3", global_scale=gs)
    for block, block_codes, byte in zip(y, unpack(codes), bytes_[:, 0], strict=True):
        assert (byte, block_codes.tolist()) == exact_e4m3_block(block, gs)


@settings(deadline=None, max_examples=50)
@given(arrays(np.float32, (1, 32), elements=finite_float32))
def test_ue8m0_blocks_scale_by_an_exact_power_of_two(y: F32) -> None:
    codes, scales = quantize_fp4(y, block_size=32, scale_format="ue8m0")
    sixth = nearest_float32(exact(np.abs(y).max()) * exact(SIXTH))
    mantissa, exponent = math.frexp(sixth)  # sixth = mantissa * 2^exponent, mantissa in [0.5, 1)
    biased = exponent + 126 + (mantissa != 0.5)
    if sixth < 2.0**-126:  # a denormal has the field 0
        biased = int(sixth != 0)
    assert scales.tolist() == [[biased]]
    if not y.any():
        assert not codes.any()
        return
    scaled = [nearest_float32(exact(v) * Fraction(2) ** (127 - biased)) for v in y[0]]
    expected = [exact_e2m1_code(exact(s), bool(np.signbit(v))) for s, v in zip(scaled, y[0], strict=True)]
    assert unpack(codes)[0].tolist() == expected


@every_format
@pytest.mark.parametrize("scale_rounding", ["up", "floor", "even"])
@settings(deadline=None, max_examples=50)
@given(data=st.data())
def test_decoding_is_off_by_half_a_step_or_by_saturation(
    block_size: int, scale_format: ScaleFormat, scale_rounding: ScaleRounding, data: st.DataObject
) -> None:
    if scale_format == "e4m3":
        scale_rounding, limit = "up", 1e6
    else:
        limit = 2.0**127
    y = data.draw(arrays(np.float32, (2, 64), elements=st.floats(-limit, limit, width=32)))
    options: Any = {"block_size": block_size, "scale_format": scale_format}
    codes, scales = quantize_fp4(y, **options, scale_rounding=scale_rounding)
    decoded = dequantize_fp4(codes, scales, **options).astype(np.float64)
    step = decode_e4m3(scales) if scale_format == "e4m3" else np.ldexp(1.0, scales.astype(int) - 127)
    step = np.repeat(step, block_size, axis=1).astype(np.float64)
    magnitude = np.abs(y.astype(np.float64))
    bound = np.maximum(np.maximum(step / 4, magnitude / 5), magnitude - 6 * step)
    assert (np.abs(decoded - y) <= bound * (1 + 2.0**-20)).all()


@settings(deadline=None, max_examples=30)
@given(
    arrays(np.float32, (2, 64), elements=st.just(0.0) | positive_normal | positive_normal.map(lambda v: -v)),
    st.integers(-60, 60),
)
def test_a_power_of_two_moves_ue8m0_scales_and_keeps_the_codes(y: F32, exponent: int) -> None:
    codes, scales = quantize_fp4(y, block_size=32, scale_format="ue8m0")
    moved_codes, moved_scales = quantize_fp4(y * np.float32(2.0**exponent), block_size=32, scale_format="ue8m0")
    is_zero = ~y.reshape(2, 2, 32).any(axis=-1)
    assert (moved_codes == codes).all()
    assert (moved_scales == np.where(is_zero, 0, scales.astype(int) + exponent)).all()


@every_format
def test_a_nan_takes_its_whole_block_and_no_other(block_size: int, scale_format: ScaleFormat) -> None:
    y = np.concatenate([one_block(block_size, e3=NAN, e4=-2, e5=INF), one_block(block_size)], axis=1)
    codes, scales = quantize_fp4(y, block_size=block_size, scale_format=scale_format)
    assert (unpack(codes)[0, :block_size] == 0x7).all()
    assert scales[0, 0] == (0x7F if scale_format == "e4m3" else 0xFF)
    decoded = dequantize_fp4(codes, scales, block_size=block_size, scale_format=scale_format)
    assert np.isnan(decoded[0, :block_size]).all()
    assert np.isfinite(decoded[0, block_size:]).all()


@every_format
def test_an_infinity_saturates_its_block(block_size: int, scale_format: ScaleFormat) -> None:
    y = one_block(block_size, e0=INF, e1=-INF, e2=-1)
    codes, scales = quantize_fp4(y, block_size=block_size, scale_format=scale_format)
    assert scales[0, 0] == (0x7E if scale_format == "e4m3" else 254)
    assert unpack(codes)[0, :4].tolist() == [0x7, 0xF, 0x8, 0x0]


@every_format
def test_a_block_of_zeros_has_codes_without_a_sign(block_size: int, scale_format: ScaleFormat) -> None:
    codes, scales = quantize_fp4(
        np.full((1, block_size), -0.0, np.float32), block_size=block_size, scale_format=scale_format
    )
    assert not codes.any()
    assert not scales.any()


def test_an_e4m3_scale_that_rounds_to_zero_clears_its_block() -> None:
    limit = np.float32(6 * 2.0**-10)  # a sixth of it is the tie between zero and the least e4m3 number
    at, above = (
        quantize_fp4(np.full((1, 16), -v), block_size=16, scale_format="e4m3")
        for v in (limit, np.nextafter(limit, np.float32(1)))
    )
    assert not at[1].any()
    assert not at[0].any()
    assert (above[1][0, 0], above[0][0, 0]) == (1, 0xDD)


@pytest.mark.parametrize(
    ("global_scale", "scale", "codes"),
    [
        (2.0, 0x40, 0x67),  # 2, and the elements 6 and 4
        (448.0, 0x7E, 0x67),
        (2.0**-10, 0x00, 0x00),  # 2^-10 is a tie, to the even zero
        (0.0, 0x00, 0x00),
        (INF, 0x7E, 0x77),  # the encode scale is FLT_MAX
        (1e-40, 0x00, 0x00),
        (NAN, 0x7F, 0x77),
    ],
)
def test_a_global_scale_multiplies_the_e4m3_scale(global_scale: float, scale: int, codes: int) -> None:
    y = np.array([[6, 4] + [0] * 14], np.float32)
    packed, scales = quantize_fp4(y, block_size=16, scale_format="e4m3", global_scale=global_scale)
    assert (scales[0, 0], packed[0, 0]) == (scale, codes)


def test_the_encode_scale_stays_finite() -> None:
    y = np.zeros((1, 16), np.float32)
    y[0, 0] = 6 * 2.0**-137  # the scale is 2^-9, and 1 / (2^-9 / FLT_MAX) is infinite
    codes, scales = quantize_fp4(y, block_size=16, scale_format="e4m3", global_scale=FLT_MAX)
    assert scales[0, 0] == 1
    assert not codes.any(), "zero times infinity would be NaN"


def test_decoding_divides_by_the_global_scale_last() -> None:
    codes, scales = np.full((1, 8), 0x53, np.uint8), np.array([[0x39]], np.uint8)
    decoded = dequantize_fp4(codes, scales, block_size=16, scale_format="e4m3", global_scale=0.3)
    divisor = exact(np.float32(0.3))
    expected = [nearest_float32(Fraction(q) * Fraction(9, 8) / divisor) for q in (1.5, 3)]
    assert decoded[0, :2].tolist() == expected


def test_decoding_by_a_global_scale_of_zero_is_the_nan_of_jitnorm() -> None:
    codes, scales = np.zeros((1, 8), np.uint8), np.array([[0x38]], np.uint8)
    decoded = dequantize_fp4(codes, scales, block_size=16, scale_format="e4m3", global_scale=0.0)
    assert bits(decoded) == [0x7FFFFFFF] * 16


def test_the_top_of_float32_decodes_to_infinity_under_a_ue8m0_scale() -> None:
    y = np.array([[1.75 * 2.0**127, 1.7 * 2.0**127] + [0] * 30], np.float32)
    codes, scales = quantize_fp4(y, block_size=32, scale_format="ue8m0")
    decoded = dequantize_fp4(codes, scales, block_size=32, scale_format="ue8m0")
    assert decoded[0, :2].tolist() == [INF, 1.5 * 2.0**127]  # 3.5 rounds to 4, and 4 * 2^126 overflows


def test_decoding_keeps_the_smallest_and_marks_the_nan_ue8m0_scale() -> None:
    codes = np.full((1, 48), 0x91, np.uint8)
    scales = np.array([[0, 254, 255]], np.uint8)
    decoded = dequantize_fp4(codes, scales, block_size=32, scale_format="ue8m0")
    assert decoded[0, [0, 1, 32, 33]].tolist() == [2.0**-128, -(2.0**-128), 2.0**126, -(2.0**126)]
    assert np.isnan(decoded[0, 64:]).all()


# ---- errors ----------------------------------------------------------------------------------------------

ONES = np.ones((2, 64), np.float32)
BYTES = np.ones((2, 4), np.uint8)
# Typed so that the type checker lets these mistakes through to the checks at run time.
DOUBLES: Any = ONES.astype(np.float64)
E5M2: Any = "e5m2"


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: quantize_fp4(DOUBLES, block_size=16, scale_format="e4m3"), TypeError, "y is float64"),
        (lambda: quantize_fp4(ONES, block_size=8, scale_format="e4m3"), ValueError, "block_size is 8"),
        (
            lambda: quantize_fp4(ONES, block_size=16, scale_format=E5M2),
            ValueError,
            "scale_format is 'e5m2'",
        ),
        (
            lambda: quantize_fp4(ONES[:, :20], block_size=16, scale_format="e4m3"),
            ValueError,
            "multiple of 16",
        ),
        (
            lambda: quantize_fp4(ONES, block_size=32, scale_format="ue8m0", global_scale=1.0),
            ValueError,
            "global_scale is 1.0",
        ),
        (
            lambda: quantize_fp4(ONES, block_size=16, scale_format="e4m3", scale_rounding="floor"),
            ValueError,
            "scale_rounding is 'floor'",
        ),
        (
            lambda: dequantize_fp4(BYTES, BYTES, block_size=32, scale_format="ue8m0", global_scale=1.0),
            ValueError,
            "global_scale is 1.0",
        ),
        (
            lambda: dequantize_fp4(BYTES, BYTES, block_size=32, scale_format="ue8m0"),
            ValueError,
            "codes has shape",
        ),
    ],
)
def test_what_is_not_defined_is_an_error(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
