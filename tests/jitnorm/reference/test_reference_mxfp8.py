"""MXFP8 in the reference, against exact rational arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from float32_oracle import F32, FLT_MAX, INF, NAN, NANS, around, bits, exact, nearest_code, nearest_float32
from fp4_oracle import E4M3_VALUES
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from jitnorm.reference import ScaleRounding, decode_e4m3, dequantize_mxfp8, quantize_mxfp8

every_rounding = pytest.mark.parametrize("scale_rounding", ["up", "floor"])
finite_float32 = st.floats(width=32, allow_nan=False, allow_infinity=False)


def exact_scale_byte(amax: np.float32, scale_rounding: str) -> int:
    """Return 127 plus the exponent of the scale, of a finite block that is not zero."""
    if scale_rounding == "floor":
        return max(math.frexp(amax)[1] - 1 - 8 + 127, 0)
    quotient = nearest_float32(exact(amax) * exact(nearest_float32(Fraction(1, 448))))
    mantissa, exponent = math.frexp(quotient)  # quotient = mantissa * 2^exponent, mantissa in [0.5, 1)
    if quotient < 2.0**-126:  # a denormal has the exponent field 0
        return int(quotient != 0)
    return exponent + 126 + (mantissa != 0.5)


def exact_block(block: F32, scale_rounding: str) -> tuple[int, list[int]]:
    if not block.any():
        return 0, [0] * len(block)
    byte = exact_scale_byte(np.abs(block).max(), scale_rounding)
    scaled = [exact(nearest_float32(exact(v) * Fraction(2) ** (127 - byte))) for v in block]
    signs = np.signbit(block).tolist()
    return byte, [nearest_code(abs(v), E4M3_VALUES) | 0x80 * s for v, s in zip(scaled, signs, strict=True)]


@pytest.mark.parametrize(
    ("amax", "up", "floor"),
    [
        (448.0, 127, 127),
        (np.nextafter(np.float32(448), INF), 128, 127),
        (256.0, 127, 127),
        (np.nextafter(np.float32(256), np.float32(0)), 127, 126),
        (512.0, 128, 128),
        (672.0, 128, 128),
        (2.0**-117, 2, 2),
        (2.0**-120, 1, 0),
        (223 * 2.0**-149, 0, 0),  # a 448th of it is zero
        (224 * 2.0**-149, 1, 0),  # a 448th would be a tie to zero; the float32 factor lies above a 448th
        (2.0**-149, 0, 0),
        (FLT_MAX, 247, 246),
        (INF, 254, 247),
        (0.0, 0, 0),
        (NAN, 0xFF, 0xFF),
    ],
)
def test_a_scale_is_a_power_of_two(amax: float, up: int, floor: int) -> None:
    y = np.zeros((1, 32), np.float32)
    y[0, 7] = -amax
    assert quantize_mxfp8(y)[1].tolist() == [[up]]
    assert quantize_mxfp8(y, scale_rounding="floor")[1].tolist() == [[floor]]


@every_rounding
@settings(deadline=None, max_examples=50)
@given(y=arrays(np.float32, (1, 64), elements=finite_float32))
def test_blocks_scale_by_an_exact_power_of_two(scale_rounding: ScaleRounding, y: F32) -> None:
    codes, scales = quantize_mxfp8(y, scale_rounding)
    expected = [exact_block(block, scale_rounding) for block in y.reshape(2, 32)]
    assert [(s, c.tolist()) for s, c in zip(scales[0], codes.reshape(2, 32), strict=True)] == expected


@every_rounding
@pytest.mark.parametrize("exponent", [-125, 0, 100])
def test_elements_next_to_every_boundary_round_to_nearest_even(scale_rounding: ScaleRounding, exponent: int) -> None:
    values = decode_e4m3(np.arange(127, dtype=np.uint8))
    elements = around((values[:-1] + values[1:]) * np.float32(0.5))
    y = np.zeros((-(-len(elements) // 31), 32), np.float32)
    y[:, 1:] = np.resize(elements, (len(y), 31))
    y[:, 0] = 448
    y = np.ldexp(y, exponent)
    codes, scales = quantize_mxfp8(y, scale_rounding)
    expected = [exact_block(block, scale_rounding) for block in y]
    assert [(s, c.tolist()) for s, c in zip(scales[:, 0], codes, strict=True)] == expected


@every_rounding
@settings(deadline=None, max_examples=50)
@given(y=arrays(np.float32, (2, 64), elements=st.floats(-(2.0**127), 2.0**127, width=32)))
def test_decoding_is_off_by_half_a_step_or_by_saturation(scale_rounding: ScaleRounding, y: F32) -> None:
    codes, scales = quantize_mxfp8(y, scale_rounding)
    decoded = dequantize_mxfp8(codes, scales).astype(np.float64)
    step = np.repeat(np.ldexp(1.0, scales.astype(int) - 127), 32, axis=1)
    magnitude = np.abs(y.astype(np.float64))
    bound = np.maximum(np.maximum(step * 2.0**-10, magnitude / 16), magnitude - 448 * step)
    assert (np.abs(decoded - y) <= bound * (1 + 2.0**-20)).all()


@every_rounding
@settings(deadline=None, max_examples=50)
@given(codes=arrays(np.uint8, (1, 32)), scale=st.integers(10, 230))
def test_what_was_decoded_encodes_again(scale_rounding: ScaleRounding, codes: Any, scale: int) -> None:
    codes[(codes & 0x7F) == 0x7F] = 0x7E
    codes[0, 0] = 0x7E  # 448 fixes the scale, under either rule
    scales = np.array([[scale]], np.uint8)
    again = quantize_mxfp8(dequantize_mxfp8(codes, scales), scale_rounding)
    assert (again[0] == codes).all()
    assert (again[1] == scales).all()


@every_rounding
@pytest.mark.parametrize("nan", NANS)
def test_a_nan_takes_its_whole_block_and_no_other(scale_rounding: ScaleRounding, nan: np.float32) -> None:
    y = np.ones((1, 64), np.float32)
    y[0, 3:5] = nan, INF
    codes, scales = quantize_mxfp8(y, scale_rounding)
    assert (codes[0, :32] == 0x7F).all()
    assert scales[0, 0] == 0xFF
    decoded = dequantize_mxfp8(codes, scales)
    assert set(bits(decoded[0, :32])) == {0x7FFFFFFF}
    assert (decoded[0, 32:] == 1).all()


def test_an_infinity_saturates() -> None:
    y = np.ones((1, 32), np.float32)
    y[0, :3] = INF, -INF, -1
    codes, scales = quantize_mxfp8(y)
    assert scales[0, 0] == 254
    assert codes[0, :4].tolist() == [0x7E, 0xFE, 0x80, 0x00]


def test_only_a_block_of_zeros_loses_the_signs_of_its_zeros() -> None:
    y = np.full((1, 64), -0.0, np.float32)
    y[0, 40] = -(2.0**-149)  # below the least code of the least scale
    codes, scales = quantize_mxfp8(y)
    assert (codes[0, :32] == 0x00).all()
    assert (codes[0, 32:] == 0x80).all()
    assert scales.tolist() == [[0, 0]]


def test_decoding_keeps_the_smallest_scale_and_the_nan_code() -> None:
    codes = np.full((1, 96), 0xB8, np.uint8)  # -1
    codes[0, 1] = 0x7F
    decoded = dequantize_mxfp8(codes, np.array([[0, 254, 255]], np.uint8))
    assert decoded[0, [0, 32]].tolist() == [-(2.0**-127), -(2.0**127)]
    assert bits(decoded[0, [1, 64]]) == [0x7FFFFFFF] * 2


def test_no_rows_give_no_codes() -> None:
    codes, scales = quantize_mxfp8(np.ones((0, 64), np.float32))
    assert codes.shape == (0, 64)
    assert scales.shape == (0, 2)
    assert dequantize_mxfp8(codes, scales).shape == (0, 64)


ONES = np.ones((2, 64), np.float32)
BYTES = np.ones((2, 4), np.uint8)
NEAREST: Any = "nearest"


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: quantize_mxfp8(ONES.astype(np.float64)), TypeError, "y is float64"),
        (lambda: quantize_mxfp8(ONES[0]), ValueError, "y has shape"),
        (lambda: quantize_mxfp8(ONES[:, :48]), ValueError, "multiple of 32"),
        (lambda: quantize_mxfp8(ONES, NEAREST), ValueError, "scale_rounding is 'nearest'"),
        (lambda: dequantize_mxfp8(BYTES, BYTES), ValueError, "codes has shape"),
    ],
)
def test_what_is_not_defined_is_an_error(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
