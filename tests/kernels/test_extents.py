"""Extents have the same value whether evaluated by Python, as C++, or from JSON."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jitnorm.kernels.extents import LEADING, MATRICES, ROWS, SECOND_ROWS, Extent, extent, shape, sizes_of
from recipe_extents import evaluate, extents

COUNTS = st.integers(0, 5000)


@given(extents(), COUNTS, COUNTS, COUNTS)
def test_an_extent_and_its_json_have_one_value(any_extent: Extent, rows: int, matrices: int, second: int) -> None:
    found = any_extent.evaluate(rows, matrices, second)
    assert found == evaluate(any_extent.to_json(), rows, matrices, second)


@given(COUNTS, st.integers(1, 1000), st.integers(1, 1000))
def test_an_extent_of_rows_and_its_cxx_have_one_value(rows: int, a: int, b: int) -> None:
    for of_rows in (
        ROWS * a + b,
        ROWS % a * b,
        ROWS.ceil_div(a) * b,
        ROWS.round_up(a) + extent(b),
        (ROWS + a).ceil_div(b),
    ):
        text = of_rows.expression().replace("a.rows", str(rows)).replace("/", "//")
        assert eval(text) == of_rows.evaluate(rows)
    assert ROWS.at_most(a).expression() == f"(a.rows < {a} ? a.rows : {a})"


def test_the_json_is_that_of_recipes() -> None:
    assert shape(LEADING, 4096)[0].to_json() == "..."
    assert [each.to_json() for each in shape(MATRICES, ROWS, 1)] == ["B", "M", 1]
    padded = MATRICES * (ROWS.round_up(128) * 4)
    assert padded.to_json() == ["*", "B", ["*", ["round_up", "M", 128], 4]]
    assert (ROWS.ceil_div(16) + SECOND_ROWS.ceil_div(16)).at_most(8).to_json() == [
        "min",
        ["+", ["ceil_div", "M", 16], ["ceil_div", "M2", 16]],
        8,
    ]


@given(COUNTS)
def test_a_multiple_of_one_is_the_extent_itself(rows: int) -> None:
    assert ROWS.round_up(1) == ROWS.ceil_div(1) == ROWS
    assert ROWS.round_up(2).evaluate(rows) == rows + rows % 2


def test_a_shape_has_its_leading_dimensions_first() -> None:
    assert sizes_of(shape(LEADING, 64), (2, 3), rows=6) == (2, 3, 64)
    assert sizes_of(shape(MATRICES, ROWS.round_up(4)), (2, 3), rows=3, matrices=2) == (2, 4)


def test_leading_dimensions_and_matrices_are_no_numbers_in_a_kernel() -> None:
    with pytest.raises(KeyError):
        LEADING.evaluate(1)
    with pytest.raises(KeyError):
        MATRICES.expression()
