"""Shapes by name and as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitnorm.bench.shapes import NAMED, parse_shapes, shape_text


@given(st.lists(st.tuples(st.integers(1, 10**6), st.integers(1, 262144)), min_size=1))
def test_what_is_written_is_read(shapes: list[tuple[int, int]]) -> None:
    found = parse_shapes(",".join(map(shape_text, shapes)))
    assert found.usual == found.large == tuple(shapes)


@pytest.mark.parametrize(
    "text", ["", "4096", "0x4096", "16x", "16x4096,", "16 x 4096", "16x-1", "huge", "random:", "random:x"]
)
def test_anything_else_is_an_error_that_says_what_is_allowed(text: str) -> None:
    with pytest.raises(
        ValueError, match=r"shapes: is .*; allowed are small, quick, anchors, few, grid, random:SEED, or M x H such as"
    ):
        parse_shapes(text)


@given(st.integers(0, 10**9))
def test_a_seed_draws_shapes_that_every_format_has(seed: int) -> None:
    drawn = parse_shapes(f"random:{seed}")
    assert drawn == parse_shapes(f"random:{seed}") != parse_shapes(f"random:{seed + 1}")
    for rows, hidden_size in drawn.usual:
        assert hidden_size % 128 == 0
        assert 256 <= hidden_size <= 32768
        assert 2**19 < rows * hidden_size < 2**28


def test_the_grid_has_19_numbers_of_rows_and_6_hidden_sizes() -> None:
    shapes = set(NAMED["grid"].usual)
    ms, hs = ({shape[axis] for shape in shapes} for axis in (0, 1))
    assert (len(ms), len(hs), len(shapes)) == (19, 6, 19 * 6)
    assert (min(ms), max(ms), min(hs), max(hs)) == (1000, 65536, 1536, 32768)


def test_the_quick_shapes_are_some_of_the_anchors_so_that_both_can_be_compared() -> None:
    assert set(NAMED["quick"].usual) < set(NAMED["anchors"].usual)
    assert NAMED["quick"].large == NAMED["anchors"].large
