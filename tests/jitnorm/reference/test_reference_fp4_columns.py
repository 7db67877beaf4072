"""FP4 of a weight along its first dimension: a column at a time, it is FP4 of a row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from float32_oracle import F32, NAN, random_rows
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from jitnorm.reference import dequantize_fp4, quantize_fp4, quantize_fp4_columns

FORMATS: list[dict[str, Any]] = [
    {"block_size": 16, "scale_format": "e4m3"},
    {"block_size": 16, "scale_format": "e4m3", "global_scale": 37.5},
    {"block_size": 32, "scale_format": "ue8m0"},
    {"block_size": 32, "scale_format": "ue8m0", "scale_rounding": "floor"},
    {"block_size": 32, "scale_format": "e4m3"},
    {"block_size": 16, "scale_format": "ue8m0"},
]
every_format = pytest.mark.parametrize("options", FORMATS, ids=lambda o: "-".join(map(str, o.values())))


@every_format
@settings(deadline=None, max_examples=20)
@given(weight=arrays(np.float32, (64, 3), elements=st.floats(width=32) | st.floats(-9, 9, width=32)))
def test_each_column_is_quantized_as_a_row(options: dict[str, Any], weight: F32) -> None:
    codes, scales = quantize_fp4_columns(weight, **options)
    assert (codes.shape, scales.shape) == ((32, 3), (64 // options["block_size"], 3))
    for n in range(3):
        row_codes, row_scales = quantize_fp4(weight[None, :, n], **options)
        assert codes[:, n].tolist() == row_codes[0].tolist()
        assert scales[:, n].tolist() == row_scales[0].tolist()


def test_a_byte_holds_two_elements_of_a_column() -> None:
    weight = np.zeros((16, 2), np.float32)
    weight[:4, 0], weight[14:, 1] = [6, 4, -1, 0.5], [3, -6]
    codes, scales = quantize_fp4_columns(weight, block_size=16, scale_format="e4m3")
    assert codes[:, 0].tolist() == [0x67, 0x1A, 0, 0, 0, 0, 0, 0]
    assert codes[:, 1].tolist() == [0, 0, 0, 0, 0, 0, 0, 0xF5]
    assert scales.tolist() == [[0x38, 0x38]]


def test_a_nan_takes_its_block_of_its_column_alone() -> None:
    weight = np.ones((32, 3), np.float32)
    weight[20, 1] = NAN
    codes, scales = quantize_fp4_columns(weight, block_size=16, scale_format="e4m3")
    assert scales.tolist() == [[0x23] * 3, [0x23, 0x7F, 0x23]]
    assert (codes == 0x77).all(), "1 takes the code of 6, as a NaN does"


@every_format
def test_decoding_is_transposed(options: dict[str, Any]) -> None:
    weight = random_rows(64, 5)
    codes, scales = quantize_fp4_columns(weight, **options)
    decode_options = {name: value for name, value in options.items() if name != "scale_rounding"}
    decoded = dequantize_fp4(codes.T, scales.T, **decode_options).T
    assert decoded.shape == weight.shape
    assert np.abs(decoded - weight).max() < 0.8


def test_a_weight_without_columns_or_rows_gives_no_codes() -> None:
    for shape in ((64, 0), (0, 3)):
        codes, scales = quantize_fp4_columns(np.ones(shape, np.float32), block_size=16, scale_format="e4m3")
        assert (codes.shape, scales.shape) == ((shape[0] // 2, shape[1]), (shape[0] // 16, shape[1]))


ONES = np.ones((48, 2), np.float32)


@pytest.mark.parametrize(
    ("weight", "block_size", "error", "message"),
    [
        (ONES.astype(np.float64), 16, TypeError, "weight is float64"),
        (ONES[0], 16, ValueError, "weight has shape"),
        (ONES, 32, ValueError, "columns of 48 elements; their number must be a multiple of 32"),
        (ONES, 8, ValueError, "block_size is 8"),
    ],
)
def test_what_is_not_defined_is_an_error(weight: Any, block_size: int, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        quantize_fp4_columns(weight, block_size=block_size, scale_format="e4m3")
