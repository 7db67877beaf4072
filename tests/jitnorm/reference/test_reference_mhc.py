"""The mix of residual streams in the reference, against exact rational arithmetic."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from float32_oracle import INF, NAN, bits, exact_fma, random_rows

from jitnorm.reference import mhc_mix_f32


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32])
@pytest.mark.parametrize("mix_dtype", [ml_dtypes.bfloat16, np.float32])
@pytest.mark.parametrize("count", [1, 2, 4, 7])
def test_streams_are_accumulated_in_order(dtype: Any, mix_dtype: Any, count: int) -> None:
    streams = random_rows(3, count * 20).reshape(3, count, 20).astype(dtype)
    mix = random_rows(3, count, seed=1).astype(mix_dtype)
    h = mhc_mix_f32(streams, mix)
    for m in range(3):
        for j in range(20):
            accumulator = np.float32(0)
            for i in range(count):
                accumulator = exact_fma(np.float32(mix[m, i]), np.float32(streams[m, i, j]), accumulator)
            assert h[m, j] == accumulator


def test_the_order_of_the_streams_matters() -> None:
    streams, mix = random_rows(4, 80).reshape(4, 4, 20), random_rows(4, 4, seed=1)
    assert (mhc_mix_f32(streams, mix) != mhc_mix_f32(streams[:, ::-1], mix[:, ::-1])).any()


def test_a_mix_begins_at_positive_zero() -> None:
    assert bits(mhc_mix_f32(np.full((1, 2, 1), -0.0, np.float32), np.ones((1, 2), np.float32))) == [0]


def test_what_is_not_finite_follows_ieee() -> None:
    streams = np.array([[[INF, INF, NAN, 1], [INF, -INF, 1, 1]]], np.float32)
    h = mhc_mix_f32(streams, np.ones((1, 2), np.float32))
    assert h[0, [0, 3]].tolist() == [INF, 2]
    assert bits(h[0, 1:3]) == [0x7FFFFFFF] * 2


def test_no_rows_and_no_streams_are_defined() -> None:
    assert mhc_mix_f32(np.ones((0, 4, 16), np.float32), np.ones((0, 4), np.float32)).shape == (0, 16)
    assert bits(mhc_mix_f32(np.ones((1, 0, 2), np.float32), np.ones((1, 0), np.float32))) == [0, 0]


ONES = np.ones((2, 4, 16), np.float32)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: mhc_mix_f32(ONES.astype(np.float64), ONES[:, :, 0]), TypeError, "streams is float64"),
        (lambda: mhc_mix_f32(ONES, ONES[:, :, 0].astype(np.float64)), TypeError, "mix is float64"),
        (lambda: mhc_mix_f32(ONES[0], ONES[:, :, 0]), ValueError, "streams has shape"),
        (lambda: mhc_mix_f32(ONES, ONES[:, 0]), ValueError, r"mix has shape \(2, 16\); it must be \(2, 4\)"),
    ],
)
def test_what_is_not_defined_is_an_error(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
