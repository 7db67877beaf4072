"""FP8 with a float32 scale for each block of 128 x 128 in the reference: the groups' numerics over other elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from float32_oracle import INF, NANS, bits, random_rows
from fp8_oracle import exact_codes

from jitnorm.reference import GroupScaleFormat, dequantize_fp8_block, quantize_fp8_block, quantize_fp8_group

every_scale_format = pytest.mark.parametrize("scale_format", ["f32", "ue8m0_f32"])
UNKNOWN: Any = "e3m4"


@every_scale_format
def test_a_block_has_the_scale_and_codes_of_a_group_with_its_amax(scale_format: GroupScaleFormat) -> None:
    """A row beside the block's largest magnitude is a group that has it."""
    y = random_rows(128, 128)
    codes, scales = quantize_fp8_block(y, scale_format)
    y[:, 0] = np.abs(y).max()
    group_codes, group_scales = quantize_fp8_group(y, 128, scale_format)
    assert (group_scales == scales).all()
    np.testing.assert_array_equal(codes[:, 1:], group_codes[:, 1:])


@pytest.mark.parametrize("shape", [(1, 1), (127, 129), (128, 256), (300, 200)])
def test_each_block_is_encoded_for_itself_and_the_last_ones_may_be_smaller(shape: tuple[int, int]) -> None:
    y = random_rows(*shape)
    codes, scales = quantize_fp8_block(y)
    assert scales.shape == (-(-shape[0] // 128), -(-shape[1] // 128))
    for (i, j), scale in np.ndenumerate(scales):
        block = (slice(128 * i, 128 * i + 128), slice(128 * j, 128 * j + 128))
        assert scale == np.abs(y[block]).max() / np.float32(448)
        alone, own = quantize_fp8_block(y[block])
        np.testing.assert_array_equal(alone, codes[block])
        assert own.tolist() == [[scale]]
        assert codes[block][0].tolist() == exact_codes(y[block][0], scale, "e4m3")


@every_scale_format
@pytest.mark.parametrize("nan", NANS)
def test_a_nan_takes_its_whole_block_and_no_other(scale_format: GroupScaleFormat, nan: np.float32) -> None:
    y = np.ones((130, 256), np.float32)
    y[7, 130:132] = nan, INF
    codes, scales = quantize_fp8_block(y, scale_format)
    assert bits(scales[0, 1:]) == [0x7FFFFFFF]
    is_nan = codes == 0x7F
    assert is_nan[:128, 128:].all()
    assert not is_nan[:, :128].any()
    assert not is_nan[128:].any()


@every_scale_format
def test_an_infinity_makes_the_scale_of_its_block_infinite(scale_format: GroupScaleFormat) -> None:
    y = np.ones((2, 3), np.float32)
    y[0, 1], y[1, 1] = -INF, -3
    codes, scales = quantize_fp8_block(y, scale_format)
    assert scales.tolist() == [[INF]]
    assert codes.tolist() == [[0x00, 0x7F, 0x00], [0x00, 0x80, 0x00]]


def test_decoding_multiplies_each_code_by_the_scale_of_its_block() -> None:
    y = random_rows(130, 260)
    codes, scales = quantize_fp8_block(y)
    decoded = dequantize_fp8_block(codes, scales)
    spread = np.kron(scales, np.ones((128, 128), np.float32))[:130, :260]
    assert (np.abs(decoded - y) <= np.abs(y) / 16 + spread * 2**-10).all()
    scales[1, 2] = np.nan
    assert (
        np.isnan(dequantize_fp8_block(codes, scales)) == (np.indices(y.shape) // 128 == [[[1]], [[2]]]).all(0)
    ).all()


def test_a_matrix_without_rows_has_no_blocks() -> None:
    assert [part.shape for part in quantize_fp8_block(np.ones((0, 200), np.float32))] == [(0, 200), (0, 2)]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: quantize_fp8_block(np.ones((2, 2))), TypeError, "y is float64"),
        (lambda: quantize_fp8_block(np.ones(2, np.float32)), ValueError, "must be 2-D"),
        (lambda: quantize_fp8_block(np.ones((2, 2), np.float32), UNKNOWN), ValueError, "scale_format is 'e3m4'"),
        (
            lambda: dequantize_fp8_block(np.ones((2, 129), np.uint8), np.ones((1, 1), np.float32)),
            ValueError,
            r"must be \(1, 2\)",
        ),
    ],
)
def test_other_arguments_are_refused(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
