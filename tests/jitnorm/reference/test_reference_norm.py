"""The normalizations of the reference, against exact rational arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from float32_oracle import (
    F32,
    FLT_MAX,
    INF,
    NAN,
    NANS,
    bits,
    exact,
    nearest_float32,
    random_rows,
    same_bits,
)
from row_oracle import add, add_square, scalar_tree

from jitnorm.reference import (
    inv_rms_f32,
    layernorm_f32,
    quantize_fp4,
    rmsnorm_f32,
    row_sum,
    stored_residual,
    sum_of_squares,
)

every_dtype = pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32])


def exact_rstd(h: F32, eps: np.float32) -> Fraction:
    mean_square = nearest_float32(exact(scalar_tree(h, add_square)) / len(h))
    # A square root rounded to 53 bits and then to 24 is correctly rounded.
    root = np.float32(math.sqrt(nearest_float32(exact(mean_square) + exact(eps))))
    return exact(nearest_float32(1 / exact(root)))


@every_dtype
@pytest.mark.parametrize("weight_bias", [0.0, 1.0])
def test_rmsnorm_rounds_after_every_operation(dtype: Any, weight_bias: float) -> None:
    length, eps = 100, np.float32(1e-5)
    x, residual = random_rows(2, length).astype(dtype), random_rows(2, length, seed=1).astype(dtype)
    weight = random_rows(1, length, seed=2)[0].astype(dtype)
    y = rmsnorm_f32(x, weight, float(eps), residual=residual, weight_bias=weight_bias)
    for i in range(2):
        h = np.array([nearest_float32(exact(a) + exact(b)) for a, b in zip(x[i], residual[i], strict=True)])
        rstd = exact_rstd(h, eps)
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


# ---- layernorm -------------------------------------------------------------------------------------------


def layernorm_inputs(length: int) -> tuple[F32, F32, F32]:
    x = random_rows(2, length) + np.float32(0.5)
    gamma, beta = random_rows(2, length, seed=2)
    return x, gamma, beta


@every_dtype
def test_layernorm_rounds_after_every_operation(dtype: Any) -> None:
    length, eps = 100, np.float32(1e-5)
    x, gamma, beta = layernorm_inputs(length)
    x = x.astype(dtype)
    y = layernorm_f32(x, gamma, beta, float(eps))
    for i in range(2):
        h = x[i].astype(np.float32)
        mean = exact(nearest_float32(exact(scalar_tree(h, add)) / length))
        d = np.array([nearest_float32(exact(v) - mean) for v in h])
        rstd = exact_rstd(d, eps)
        for j in range(length):
            normalized = exact(nearest_float32(exact(d[j]) * rstd))
            scaled = exact(nearest_float32(normalized * exact(gamma[j])))
            assert y[i, j] == nearest_float32(scaled + exact(beta[j]))


def test_layernorm_differs_from_every_other_association() -> None:
    x, gamma, beta = layernorm_inputs(100)
    h, length = x, np.float32(100)
    mean = (row_sum(h) / length)[:, None]
    d = h - mean
    variance = (sum_of_squares(d) / length)[:, None]
    one_pass = (sum_of_squares(h) / length)[:, None] - mean * mean
    rstd = np.float32(1) / np.sqrt(variance)
    fused = ((d * rstd).astype(np.float64) * gamma + beta).astype(np.float32)
    y = layernorm_f32(x, gamma, beta, eps=0.0)
    assert (y == (d * rstd) * gamma + beta).all()
    others = {
        "gamma first": d * (rstd * gamma) + beta,
        "mean times rstd first": (h * rstd - mean * rstd) * gamma + beta,
        "a division": (d / np.sqrt(variance)) * gamma + beta,
        "one pass": (d * (np.float32(1) / np.sqrt(one_pass))) * gamma + beta,
        "a fused beta": fused,
    }
    assert [name for name, other in others.items() if (other == y).all()] == []


def test_layernorm_keeps_what_is_left_next_to_a_large_mean() -> None:
    x = np.array([[2**20, 2**20 + 1] * 16], np.float32)
    y = layernorm_f32(x, np.ones(32, np.float32), np.zeros(32, np.float32), eps=0.0)
    assert y[0, :2].tolist() == [-1.0, 1.0]


def test_layernorm_of_a_constant_row_is_beta() -> None:
    x, gamma, beta = np.full((1, 48), 3.0, np.float16), np.ones(48, np.float32), random_rows(1, 48)[0]
    assert (layernorm_f32(x, gamma, beta) == beta).all()
    assert set(bits(layernorm_f32(x, gamma, beta, eps=0.0))) == {0x7FFFFFFF}, "zero times infinity"


@pytest.mark.parametrize("special", [INF, -INF, NAN])
def test_layernorm_of_what_is_not_finite_is_nan_throughout_its_row(special: float) -> None:
    x = random_rows(2, 48)
    x[0, 17] = special
    y = layernorm_f32(x, np.ones(48, np.float32), np.zeros(48, np.float32))
    assert set(bits(y[0])) == {0x7FFFFFFF}
    assert np.isfinite(y[1]).all()


# ---- the stored residual ---------------------------------------------------------------------------------


@every_dtype
@pytest.mark.parametrize("residual_dtype", [np.float16, ml_dtypes.bfloat16, np.float32])
def test_the_stored_residual_is_the_rounded_sum(dtype: Any, residual_dtype: Any) -> None:
    x, residual = random_rows(3, 40).astype(dtype), random_rows(3, 40, seed=1).astype(residual_dtype)
    pairs = zip(x.ravel(), residual.ravel(), strict=True)
    sums = np.array([nearest_float32(exact(a) + exact(b)) for a, b in pairs]).reshape(x.shape)
    stored = stored_residual(x, residual)
    assert stored.dtype == x.dtype
    assert same_bits(stored, sums.astype(dtype))


def test_the_stored_residual_is_rounded_to_float32_first() -> None:
    # 2^-34 breaks the tie between 1 and the next float16, and is lost in float32.
    x, residual = np.ones((1, 1), np.float16), np.array([[2.0**-11 + 2.0**-34]], np.float32)
    assert exact(residual[0, 0]) == Fraction(1, 2**11) + Fraction(1, 2**34)
    assert stored_residual(x, residual).tolist() == [[1.0]]


@every_dtype
def test_every_nan_of_a_stored_residual_has_one_code(dtype: Any) -> None:
    x = np.array([[NAN, -NAN, INF, 1.0]], np.float32).astype(dtype)
    residual = np.array([[1.0, 1.0, -INF, NAN]], np.float32)
    unsigned, code = (np.uint32, 0x7FFFFFFF) if dtype == np.float32 else (np.uint16, 0x7FFF)
    assert stored_residual(x, residual).view(unsigned).tolist() == [[code] * 4]


def test_a_stored_residual_overflows_to_infinity() -> None:
    for dtype, x, residual in ((np.float16, 65504, 16), (np.float32, FLT_MAX, FLT_MAX)):
        assert stored_residual(np.array([[x]], dtype), np.array([[residual]], dtype)).tolist() == [[INF]]


# ---- nans and errors -------------------------------------------------------------------------------------


def test_every_float32_nan_has_one_code() -> None:
    x, weight = np.repeat(NANS[:, None], 16, axis=1), np.ones(16, np.float32)
    for y in (rmsnorm_f32(x, weight), layernorm_f32(x, weight, weight), row_sum(x), sum_of_squares(x)):
        assert set(bits(y)) == {0x7FFFFFFF}


ONES = np.ones((2, 64), np.float32)
HALVES: Any = ONES.astype(np.float16)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: rmsnorm_f32(ONES, ONES[0, :32]), ValueError, "weight has shape"),
        (lambda: rmsnorm_f32(ONES, HALVES[0]), TypeError, "weight is float16"),
        (lambda: rmsnorm_f32(ONES, ONES[0], residual=ONES[:1]), ValueError, "residual has shape"),
        (lambda: rmsnorm_f32(ONES[:, :0], ONES[0, :0]), ValueError, "at least one element"),
        (lambda: layernorm_f32(HALVES, HALVES[0], ONES[0]), TypeError, "gamma is float16"),
        (lambda: layernorm_f32(HALVES, ONES[0], HALVES[0]), TypeError, "beta is float16"),
        (lambda: layernorm_f32(ONES, ONES[0, :32], ONES[0]), ValueError, "gamma has shape"),
        (lambda: layernorm_f32(ONES, ONES[0], ONES), ValueError, "beta has shape"),
        (lambda: layernorm_f32(ONES[0], ONES[0], ONES[0]), ValueError, "x has shape"),
        (lambda: stored_residual(ONES, ONES[:1]), ValueError, "residual has shape"),
        (lambda: stored_residual(ONES.astype(np.float64), ONES), TypeError, "x is float64"),
    ],
)
def test_what_is_not_defined_is_an_error(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


# ---- the statistic ---------------------------------------------------------------------------------------


@every_dtype
def test_the_statistic_is_what_rmsnorm_multiplies_by(dtype: Any) -> None:
    x = random_rows(4, 100).astype(dtype)
    inv_rms = inv_rms_f32(x, 1e-5)
    assert inv_rms.tolist() == [nearest_float32(exact_rstd(row.astype(np.float32), np.float32(1e-5))) for row in x]
    assert bits(rmsnorm_f32(x, np.ones(100, dtype), 1e-5)) == bits(x.astype(np.float32) * inv_rms[:, None])


def test_the_statistic_of_a_nan_is_the_nan_of_jitnorm() -> None:
    assert bits(inv_rms_f32(NANS[:, None])) == [0x7FFFFFFF] * len(NANS)
