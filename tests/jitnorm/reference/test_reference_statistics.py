"""The fused multiply-add and the row sums of the reference, against exact rational arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from float32_oracle import F32, FLT_MAX, INF, NAN, exact_fma, random_rows, same_bits
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from row_oracle import Accumulate, add, add_square, scalar_tree

from jitnorm.reference import CHUNK, row_sum, statistics, sum_of_squares
from jitnorm.reference.float32 import fma

SUMS: list[tuple[Any, Accumulate]] = [(sum_of_squares, add_square), (row_sum, add)]

both_sums = pytest.mark.parametrize(("total", "accumulate"), SUMS, ids=["squares", "elements"])


def test_fma_rounds_once_on_random_bit_patterns() -> None:
    generator = np.random.default_rng(1)
    a, b, c = generator.integers(0, 2**32, (3, 4000), dtype=np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        expected = np.array([exact_fma(*abc) for abc in zip(a, b, c, strict=True)], np.float32)
        assert same_bits(fma(a, b, c), expected)


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
        assert same_bits(fma(a, b, c), expected)
        rounded_twice = (a.astype(np.float64) * b + c).astype(np.float32)
    assert np.count_nonzero(rounded_twice != expected) > 1000, "the cases are not adversarial"


@both_sums
@pytest.mark.parametrize("chunk", [8, 16])
@pytest.mark.parametrize("length", [1, 7, 8, 17, 384, 511, 512, 513, 1040, 2700])
def test_a_row_sum_follows_the_definition(
    total: Any, accumulate: Accumulate, length: int, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statistics, "CHUNK", chunk)
    h = random_rows(1, length, seed=length) * np.float32(3)
    assert total(h).tobytes() == scalar_tree(h[0], accumulate, chunk).tobytes()


@both_sums
@settings(deadline=None, max_examples=50)
@given(h=arrays(np.float32, (1, 67), elements=st.floats(width=32)))
def test_a_row_sum_follows_the_definition_on_any_bits(total: Any, accumulate: Accumulate, h: F32) -> None:
    with np.errstate(all="ignore"):
        expected = np.array([scalar_tree(h[0], accumulate, CHUNK)])
    assert same_bits(total(h), expected)


def test_a_square_is_not_rounded_before_it_is_added() -> None:
    h = random_rows(8, 512)
    assert (sum_of_squares(h) != row_sum(h * h)).any()


@both_sums
def test_the_order_of_the_sum_depends_on_the_row_length_alone(total: Any, accumulate: Accumulate) -> None:
    h = random_rows(5, 3000)
    whole = total(h)
    assert all(total(h[i : i + 1])[0] == whole[i] for i in range(5))
    assert total(h[:0]).shape == (0,)


def test_a_sum_begins_at_positive_zero() -> None:
    h = np.full((1, 16), -0.0, np.float32)
    assert not np.signbit(row_sum(h)).any()


@both_sums
def test_what_has_no_sum_is_an_error(total: Any, accumulate: Accumulate) -> None:
    ones = np.ones((2, 64), np.float32)
    with pytest.raises(TypeError, match="h is float64"):
        total(ones.astype(np.float64))
    with pytest.raises(ValueError, match="h has shape"):
        total(ones[0])
    with pytest.raises(ValueError, match="at least one element"):
        total(ones[:, :0])
