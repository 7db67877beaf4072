"""The row statistic, rmsnorm and 16-bit outputs of the reference, against exact rational arithmetic."""

from __future__ import annotations

import doctest
import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from float32_oracle import F32, around, exact, exact_fma, nearest_float32, random_rows, same_bits
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from jitnorm import reference
from jitnorm.reference import quantize_fp4, rmsnorm_f32, round_to, sum_of_squares

FLT_MAX = float(np.finfo(np.float32).max)
INF, NAN = math.inf, math.nan


def scalar_butterfly(lanes: list[np.float32]) -> np.float32:
    k = len(lanes) // 2
    while k:
        lanes = [lanes[i] + lanes[i ^ k] for i in range(len(lanes))]
        k //= 2
    assert all(lane == lanes[0] or (np.isnan(lane) and np.isnan(lanes[0])) for lane in lanes)
    return lanes[0]


def scalar_sum_of_squares(row: F32, chunk: int) -> np.float32:
    """Follow the definition with no array operation at all."""
    chunk_sums = []
    for start in range(0, len(row), chunk):
        accumulator = np.float32(0)
        for h in row[start : start + chunk]:
            accumulator = exact_fma(h, h, accumulator)
        chunk_sums.append(accumulator)
    group_sums = []
    for start in range(0, len(chunk_sums), 32):
        group = chunk_sums[start : start + 32]
        group_sums.append(scalar_butterfly(group + [np.float32(0)] * (32 - len(group))))
    width = 1
    while width < len(group_sums):
        width *= 2
    return scalar_butterfly(group_sums + [np.float32(0)] * (width - len(group_sums)))


# ---- row statistic ---------------------------------------------------------------------------------------


def test_fma_rounds_once_on_random_bit_patterns() -> None:
    generator = np.random.default_rng(1)
    a, b, c = generator.integers(0, 2**32, (3, 4000), dtype=np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        expected = np.array([exact_fma(*abc) for abc in zip(a, b, c, strict=True)], np.float32)
        assert same_bits(reference._fma(a, b, c), expected)


def test_fma_rounds_once_where_rounding_twice_goes_wrong() -> None:
    # A product of two odd numbers with 25 bits is a tie of float32, and n * n has an even number below it,
    # n * (n + 2) an odd one. The addend breaks the tie: by less than the last bit of float64 or by 3/4 of it.
    odd_numbers = [float(n) for n in range(4097, 5700, 2)]
    addends = [sign * addend for addend in (2.0**-40, 2.0**-149, 0.75 * 2.0**-28) for sign in (1, -1)]
    cases = [(n, n + gap, addend) for n in odd_numbers for gap in (0, 2) for addend in addends]
    # Results at the ends: denormals, the least normal, the overflow threshold.
    cases += [(2.0**-63, scale * 2.0**-63, 2.0**-149) for scale in (1.0, 1.5, 2.0, 3.0)]
    cases += [(2.0**-75, scale * 2.0**-75, 0.0) for scale in (1.0, 1.0000001, 1.5, 3.0)]
    cases += [(2.0**64, 2.0**64, -(2.0**-149)), (FLT_MAX, 1.0, 2.0**103), (FLT_MAX, 1.0, 2.0**102)]
    cases += [(INF, 1.0, -INF), (INF, 0.0, 1.0), (NAN, 1.0, 1.0), (1.0, 1.0, INF), (-0.0, 1.0, -0.0)]
    a, b, c = np.array(cases, np.float32).T.copy()
    with np.errstate(all="ignore"):
        expected = np.array([exact_fma(*abc) for abc in zip(a, b, c, strict=True)], np.float32)
        assert same_bits(reference._fma(a, b, c), expected)
        rounded_twice = (a.astype(np.float64) * b + c).astype(np.float32)
    assert np.count_nonzero(rounded_twice != expected) > 1000, "the cases are not adversarial"


@pytest.mark.parametrize("chunk", [8, 16])
@pytest.mark.parametrize("length", [1, 7, 8, 17, 384, 511, 512, 513, 1040, 2700])
def test_sum_of_squares_follows_the_definition(length: int, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "CHUNK", chunk)
    h = random_rows(2, length, seed=length) * np.float32(3)
    expected = np.array([scalar_sum_of_squares(row, chunk) for row in h])
    assert sum_of_squares(h).tobytes() == expected.tobytes()


@settings(deadline=None)
@given(arrays(np.float32, (1, 67), elements=st.floats(width=32)))
def test_sum_of_squares_follows_the_definition_on_any_bits(h: F32) -> None:
    with np.errstate(all="ignore"):
        expected = np.array([scalar_sum_of_squares(h[0], reference.CHUNK)])
    assert same_bits(sum_of_squares(h), expected)


def test_the_order_of_the_sum_depends_on_the_row_length_alone() -> None:
    h = random_rows(5, 3000)
    whole = sum_of_squares(h)
    assert all(sum_of_squares(h[i : i + 1])[0] == whole[i] for i in range(5))
    assert sum_of_squares(h[:0]).shape == (0,)


# ---- rmsnorm ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32])
@pytest.mark.parametrize("weight_bias", [0.0, 1.0])
def test_rmsnorm_rounds_after_every_operation(dtype: Any, weight_bias: float) -> None:
    length, eps = 100, np.float32(1e-5)
    x, residual = random_rows(2, length).astype(dtype), random_rows(2, length, seed=1).astype(dtype)
    weight = random_rows(1, length, seed=2)[0].astype(dtype)
    y = rmsnorm_f32(x, weight, float(eps), residual=residual, weight_bias=weight_bias)
    for i in range(2):
        h = np.array([nearest_float32(exact(a) + exact(b)) for a, b in zip(x[i], residual[i], strict=True)])
        mean = nearest_float32(exact(scalar_sum_of_squares(h, reference.CHUNK)) / length)
        # A square root rounded to 53 bits and then to 24 is correctly rounded.
        root = np.float32(math.sqrt(nearest_float32(exact(mean) + exact(eps))))
        rstd = exact(nearest_float32(1 / exact(root)))
        for j in range(length):
            factor = exact(nearest_float32(exact(weight[j]) + exact(weight_bias)))
            assert y[i, j] == nearest_float32(exact(nearest_float32(exact(h[j]) * rstd)) * factor)


def test_the_sign_of_a_zero_weight_survives_only_without_a_bias() -> None:
    x, weight = np.ones((1, 16), np.float16), np.full(16, -0.0, np.float16)
    assert np.signbit(rmsnorm_f32(x, weight)).all()
    assert np.signbit(rmsnorm_f32(x, weight, weight_bias=-0.0)).all()
    one_minus_one = rmsnorm_f32(x, np.full(16, -1.0, np.float16), weight_bias=1.0)
    assert not one_minus_one.any()
    assert not np.signbit(one_minus_one).any()


def test_a_float32_weight_is_not_rounded_to_the_input_dtype() -> None:
    x, weight = np.ones((1, 16), np.float16), np.full(16, 1 + 2.0**-20, np.float32)
    assert (rmsnorm_f32(x, weight, eps=0.0) == weight).all()


def test_rows_of_zeros_infinities_and_nans_follow_ieee() -> None:
    x = np.ones((4, 32), np.float32)
    x[0], x[1, 3], x[2, 5], x[3] = 0.0, INF, NAN, 2.0**100
    y = rmsnorm_f32(x, np.ones(32, np.float32))
    assert (y[0] == 0).all()
    assert np.isnan(y[1, 3])
    assert (np.delete(y[1], 3) == 0).all()
    assert np.isnan(y[2]).all()
    assert (y[3] == 0).all(), "the sum of squares overflows to inf, so rstd is 0"
    assert np.isnan(rmsnorm_f32(x[:1], np.ones(32, np.float32), eps=0.0)).all()


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_a_row_does_not_depend_on_its_batch(dtype: Any) -> None:
    x, weight = random_rows(7, 640).astype(dtype), random_rows(1, 640, seed=1)[0].astype(dtype)
    whole = rmsnorm_f32(x, weight)
    codes, scales = quantize_fp4(whole, block_size=16, scale_format="e4m3")
    for i in range(7):
        alone = rmsnorm_f32(x[i : i + 1], weight)
        assert alone.tobytes() == whole[i].tobytes()
        parts = quantize_fp4(alone, block_size=16, scale_format="e4m3")
        assert [part.tobytes() for part in parts] == [codes[i].tobytes(), scales[i].tobytes()]


@pytest.mark.parametrize(("dtype", "mantissa", "least"), [(np.float16, 10, -14), (ml_dtypes.bfloat16, 7, -126)])
def test_16_bit_outputs_are_rounded_to_nearest_even(dtype: Any, mantissa: int, least: int) -> None:
    infinity = int(np.array(INF, dtype).view(np.uint16))
    values = np.arange(infinity, dtype=np.uint16).view(dtype).astype(np.float64)
    ties = (values[:-1] + values[1:]) / 2
    y = around(ties.astype(np.float32))
    quantum = np.ldexp(1.0, np.maximum(np.frexp(y.astype(np.float64))[1] - 1, least) - mantissa)
    expected = np.rint(y / quantum) * quantum  # np.rint rounds halves to even
    assert same_bits(round_to(y, dtype).astype(np.float64), expected)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_every_nan_is_written_as_7fff_and_infinities_stay(dtype: Any) -> None:
    nans = np.array([0x7FC00000, 0xFFC00000, 0x7F800001, 0xFFFFFFFF], np.uint32).view(np.float32)
    assert round_to(nans, dtype).view(np.uint16).tolist() == [0x7FFF] * 4
    assert round_to(np.array([INF, -INF, FLT_MAX], np.float32), dtype).tolist() == [INF, -INF, INF]


ONES = np.ones((2, 64), np.float32)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: sum_of_squares(ONES.astype(np.float64)), TypeError, "h is float64"),
        (lambda: sum_of_squares(ONES[0]), ValueError, "h has shape"),
        (lambda: sum_of_squares(ONES[:, :0]), ValueError, "at least one element"),
        (lambda: rmsnorm_f32(ONES, ONES[0, :32]), ValueError, "weight has shape"),
        (lambda: rmsnorm_f32(ONES, ONES[0].astype(np.float16)), TypeError, "weight is float16"),
        (lambda: rmsnorm_f32(ONES, ONES[0], residual=ONES[:1]), ValueError, "residual has shape"),
        (lambda: round_to(ONES, np.float32), TypeError, "dtype is float32"),
    ],
)
def test_what_is_not_defined_is_an_error(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_the_examples_in_the_documentation_run() -> None:
    result = doctest.testmod(reference)
    assert result.attempted > 0
    assert result.failed == 0
