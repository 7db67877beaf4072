"""The rotation turns as exact arithmetic does, and step by step as torch does."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from frameworks import to_torch
from hypothesis import given, settings
from hypothesis import strategies as st
from inputs import ALL_DTYPES

from jitnorm.reference import angles_f32, rotate_f32, round_to

LAYOUTS = {True: lambda size: np.arange(size).reshape(2, -1).T, False: lambda size: np.arange(size).reshape(-1, 2)}


def table_of(size: int, positions: int = 5, dtype: Any = np.float32) -> Any:
    turns = np.random.default_rng(1).uniform(0, 2 * np.pi, (positions, size // 2))
    return np.hstack([np.cos(turns), np.sin(turns)]).astype(dtype)


def normal(rows: int, size: int, dtype: Any = np.float32) -> Any:
    return np.random.default_rng(2).standard_normal((rows, size)).astype(dtype)


@settings(deadline=None)
@given(st.integers(1, 20), st.integers(0, 9), st.booleans(), st.lists(st.integers(0, 4), min_size=1, max_size=6))
def test_pairs_are_turned_in_the_plane(pairs: int, rest: int, is_neox: bool, positions: list[int]) -> None:
    """Within two roundings of complex multiplication in float64; what is not turned stays."""
    size = 2 * pairs
    y, table = normal(len(positions), size + rest), table_of(size)
    found = rotate_f32(y, table, np.array(positions), is_neox=is_neox)
    cos, sin = (table[positions, :pairs].astype(float), table[positions, pairs:].astype(float))
    first, second = LAYOUTS[is_neox](size).T
    exact = (y[:, first].astype(float) + 1j * y[:, second]) * (cos + 1j * sin)
    bound = 2.0**-23 * (np.abs(y[:, first]) + np.abs(y[:, second]))
    assert (np.abs(found[:, first] - exact.real) <= bound).all()
    assert (np.abs(found[:, second] - exact.imag) <= bound).all()
    assert found[:, size:].tobytes() == y[:, size:].tobytes()


@settings(deadline=None)
@given(st.lists(st.integers(0, 2**63 - 1), min_size=1), st.lists(st.integers(0, 2**64 - 1), min_size=1))
def test_angles_are_within_a_float32_ulp_of_1(positions: list[int], frequencies: list[int]) -> None:
    """Integers leave whole turns out exactly, so that even the last position has as many bits as the first."""
    words = np.array([[f >> 32 for f in frequencies] + [f & 0xFFFFFFFF for f in frequencies]], np.uint32)
    found = angles_f32(np.array(positions), words.view(np.int32))
    for p, (cosines, sines) in zip(positions, found.reshape(len(positions), 2, -1), strict=True):
        turns = [2 * math.pi * (p * f % 2**64 / 2**64) for f in frequencies]
        np.testing.assert_allclose(cosines, np.cos(turns), rtol=0, atol=2**-23)
        np.testing.assert_allclose(sines, np.sin(turns), rtol=0, atol=2**-23)


def test_a_position_that_is_negative_has_no_angles() -> None:
    assert np.isnan(angles_f32(np.array([-1, 0]), np.ones((1, 4), np.int32))).tolist() == [[True] * 4, [False] * 4]


@pytest.mark.parametrize("is_neox", [True, False])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_hf_has_the_bits_of_torch_step_by_step(dtype: str, is_neox: bool) -> None:
    """Like the rotary embedding of Transformers and vLLM's native one: 16-bit cosines, sines, products and sums."""
    size, rows = 64, 100
    y, table = normal(rows, size, ALL_DTYPES[dtype]), table_of(size, rows, ALL_DTYPES[dtype])
    found = rotate_f32(y, table, np.arange(rows), is_neox=is_neox, rounding="hf", dtype=y.dtype)
    x, cos_sin = to_torch(y), to_torch(table)
    cos, sin = cos_sin.chunk(2, dim=-1)
    first, second = LAYOUTS[is_neox](size).T
    turned = torch.empty_like(x)
    turned[:, first] = x[:, first] * cos - x[:, second] * sin
    turned[:, second] = x[:, second] * cos + x[:, first] * sin
    assert torch.equal(to_torch(round_to(found, y.dtype)), turned)


def test_output_rounds_everything_and_once_nothing() -> None:
    y, table, positions = normal(7, 9), table_of(6), np.arange(7) % 5
    once = rotate_f32(y, table, positions)
    output = rotate_f32(y, table, positions, rounding="output", dtype=np.float16)
    assert output.tobytes() == round_to(once, np.float16).astype(np.float32).tobytes()
    assert (output != once).any()


def test_a_position_without_angles_gives_nan_where_it_would_turn() -> None:
    found = rotate_f32(normal(3, 5), table_of(4), np.array([-1, 2, 5]))
    assert np.isnan(found).tolist() == [[True] * 4 + [False], [False] * 5, [True] * 4 + [False]]


@pytest.mark.parametrize(
    ("y", "size", "positions", "message"),
    [
        ((2, 4), 3, 2, "cos_sin_cache has rows of 3; an even number from 2 to 4 is needed"),
        ((2, 4), 6, 2, "cos_sin_cache has rows of 6; an even number from 2 to 4 is needed"),
        ((2, 4), 4, 3, r"positions has shape \(3,\); it must be \(2,\)"),
    ],
)
def test_other_shapes_are_refused(y: tuple[int, int], size: int, positions: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rotate_f32(normal(*y), np.ones((5, size), np.float32), np.zeros(positions, int))
