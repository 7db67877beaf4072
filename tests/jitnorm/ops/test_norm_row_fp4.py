"""rmsnorm_quantize and mhc_rmsnorm_quantize return the bytes of the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from expected import assert_same_bytes
from frameworks import CPU_FRAMEWORKS
from inputs import ALL_DTYPES, INPUT_KINDS, in_turn, make_input, make_weight
from jitnorm.kernels.quant_spec import NVFP4

from jitnorm import mhc_rmsnorm_quantize, norm_quantize, rmsnorm_quantize
from jitnorm.reference import inv_rms_f32, mhc_mix_f32, quantize_nvfp4_row, rmsnorm_f32, swizzle_scales

NAMES = ("codes", "scales", "row_scale", "inv_rms")


def expected_outputs(h: Any, weight: Any) -> tuple[Any, ...]:
    return (*quantize_nvfp4_row(rmsnorm_f32(h, weight)), inv_rms_f32(h))


def assert_outputs(got: tuple[Any, ...], expected: tuple[Any, ...], what: str) -> None:
    for name, value, wanted in zip(NAMES, got, expected, strict=True):
        assert_same_bytes(value, wanted, f"{name} of {what}")


def make_streams(kind: str, rows: int, streams: int, size: int, dtype: str) -> Any:
    return make_input(kind, rows * streams, size, dtype).reshape(rows, streams, size)


def make_factors(rows: int, streams: int) -> Any:
    return np.random.default_rng(5).standard_normal((rows, streams)).astype(np.float32)


@pytest.mark.parametrize("dtype", ALL_DTYPES)
def test_rmsnorm_quantize_gives_the_reference_s_bytes(dtype: str) -> None:
    weight = make_weight(96, "float32")
    for kind in INPUT_KINDS:
        x = make_input(kind, 5, 96, dtype)
        assert_outputs(rmsnorm_quantize(x, weight), expected_outputs(x, weight), kind)


@pytest.mark.parametrize(("streams", "dtype"), in_turn([1, 2, 3, 4], list(ALL_DTYPES)))
def test_mixed_streams_give_the_reference_s_bytes(streams: int, dtype: str) -> None:
    weight, factors = make_weight(112, "float32"), make_factors(5, streams)
    for kind in INPUT_KINDS:
        x = make_streams(kind, 5, streams, 112, dtype)
        expected = expected_outputs(mhc_mix_f32(x, factors), weight)
        assert_outputs(mhc_rmsnorm_quantize(x, factors, weight), expected, f"{kind}, {streams} streams")


def test_one_stream_with_the_factor_1_is_no_mix() -> None:
    x, weight = make_input("real", 5, 96, "bfloat16"), make_weight(96, "bfloat16")
    mixed = mhc_rmsnorm_quantize(x[:, None], np.ones((5, 1), np.float32), weight)
    assert_outputs(mixed, rmsnorm_quantize(x, weight), "one stream")


def test_the_codes_are_those_of_norm_quantize() -> None:
    x, weight = make_input("real", 130, 96, "bfloat16"), make_weight(96, "bfloat16")
    q = norm_quantize(x, weight, spec=NVFP4.with_layout("128x4"), global_scale="row")
    got = rmsnorm_quantize(x, weight, scale_layout="128x4")
    assert_outputs(got, (q.data, q.scale, q.row_scale, inv_rms_f32(x)), "norm_quantize")


@pytest.mark.parametrize("framework", CPU_FRAMEWORKS)
def test_every_framework_gets_the_same_bytes(framework: str) -> None:
    make = CPU_FRAMEWORKS[framework]
    x, factors, weight = make_streams("real", 6, 2, 64, "bfloat16"), make_factors(6, 2), make_weight(64, "float32")
    expected = expected_outputs(mhc_mix_f32(x, factors), weight)
    assert_outputs(mhc_rmsnorm_quantize(make(x), make(factors), make(weight)), expected, framework)


def test_swizzled_scales_are_the_linear_ones_rearranged() -> None:
    x, factors, weight = make_streams("real", 9, 2, 64, "bfloat16"), make_factors(9, 2), make_weight(64, "float32")
    codes, scales, row_scale, inv_rms = mhc_rmsnorm_quantize(x, factors, weight)
    swizzled = mhc_rmsnorm_quantize(x, factors, weight, scale_layout="128x4")
    expected = (codes, swizzle_scales(scales.view(np.uint8), "128x4"), row_scale, inv_rms)
    assert_outputs(swizzled, expected, "128x4")


def test_no_rows_give_empty_outputs() -> None:
    weight = make_weight(64, "float32")
    got = mhc_rmsnorm_quantize(np.zeros((0, 2, 64), np.float16), np.zeros((0, 2), np.float32), weight)
    assert [output.shape for output in got] == [(0, 32), (0, 4), (0,), (0,)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"X": np.ones((4, 5, 64), np.float16)}, r"X: shape is \(\.\.\., 5, 64\); expected .* n of 1 to 4"),
        ({"X": np.ones(64, np.float16)}, r"X: shape is \(64,\); expected"),
        ({"A": np.ones((4, 3), np.float32)}, r"A: shape is \(4, 3\), expected \(4, 2\)"),
        ({"A": np.ones((4, 2), np.float16)}, "A: dtype is float16, expected float32"),
        ({"X": np.ones((4, 2, 72), np.float16)}, "is 72, not a multiple of block_size 16"),
    ],
)
def test_bad_input_is_refused(change: dict[str, Any], message: str) -> None:
    call = {"X": np.ones((4, 2, 64), np.float16), "A": np.ones((4, 2), np.float32), "weight": np.ones(64, np.float32)}
    with pytest.raises(ValueError, match=message):
        mhc_rmsnorm_quantize(**(call | change))
