"""rmsnorm on the CPU returns the bytes of the reference, wherever its tensors are."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from expected import assert_same_bytes, expected_rmsnorm
from hypothesis import given, settings
from hypothesis import strategies as st
from inputs import DTYPES, INPUT_KINDS, in_turn, make_input, make_weight
from jitnorm.kernels.config import KernelConfig
from placement import assert_written_exactly, place, placements

from jitnorm import rmsnorm

GOLDEN_SIZES = [1, 17, 384, 4096, 65536]
OTHER_SIZES = [2, 15, 16, 127, 511, 512, 513, 1000]
TYPES = [(dtype, weight) for dtype in DTYPES for weight in (dtype, "float32")]
SMALL = 40  # two chunks and a half


@pytest.mark.parametrize(
    ("hidden_size", "types"), [*product(GOLDEN_SIZES, TYPES), *in_turn(OTHER_SIZES, TYPES)], ids=str
)
def test_the_output_is_the_reference_s(hidden_size: int, types: tuple[str, str]) -> None:
    dtype, weight_dtype = types
    weight = make_weight(hidden_size, weight_dtype)
    for kind in INPUT_KINDS:
        x = make_input(kind, 8, hidden_size, dtype)
        assert_same_bytes(rmsnorm(x, weight), expected_rmsnorm(x, weight), kind)


@pytest.mark.parametrize("eps", [0.0, 1e-6, 1e-5, 1.0, 1e-45, 1e300, -1.0, float("nan")])
def test_any_eps_is_rounded_to_float32_and_added(eps: float) -> None:
    weight = make_weight(SMALL, "float16")
    for kind in ("random", "zeros", "tiny"):
        x = make_input(kind, 4, SMALL, "float16")
        with np.errstate(over="ignore"):
            assert_same_bytes(rmsnorm(x, weight, eps), expected_rmsnorm(x, weight, eps), kind)


@pytest.mark.parametrize("dtype", DTYPES)
def test_any_weight_pattern_is_taken(dtype: str) -> None:
    x = make_input("random", 3, 384, dtype)
    for kind in ("finite_patterns", "all_patterns"):
        weight = make_input(kind, 1, 384, dtype)[0]
        assert_same_bytes(rmsnorm(x, weight), expected_rmsnorm(x, weight), kind)


@pytest.mark.parametrize("shape", [(), (1,), (5,), (0,), (2, 3), (0, 3), (3, 0), (2, 1, 3), (1, 1, 1), (2, 2, 2, 2)])
def test_any_number_of_leading_dimensions(shape: tuple[int, ...]) -> None:
    x = make_input("random", int(np.prod(shape)), SMALL, "float16").reshape(*shape, SMALL)
    weight = make_weight(SMALL, "float16")
    assert_same_bytes(rmsnorm(x, weight), expected_rmsnorm(x, weight))


def test_a_vector_is_one_row() -> None:
    x, weight = make_input("random", 1, SMALL, "float16")[0], make_weight(SMALL, "float16")
    assert rmsnorm(x, weight).shape == (SMALL,)


@settings(deadline=None, max_examples=100)
@given(data=st.data())
def test_strides_and_alignment_change_nothing(data: st.DataObject) -> None:
    """Rows, gaps and offsets have odd numbers of elements; only the output's rows are written."""
    dtype = "float16"
    leading = tuple(data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=3)))
    gaps = (0, 1, 2, 4)
    places = {name: data.draw(placements(len(leading), gaps)) for name in ("input", "out")}
    shape = (*leading, SMALL)
    x = place(shape, DTYPES[dtype], places["input"])
    x.view[...] = make_input("random", int(np.prod(leading)), SMALL, dtype).reshape(shape)
    before = x.buffer.copy()
    out = place(shape, DTYPES[dtype], places["out"])
    weight = make_weight(SMALL, dtype)
    returned = rmsnorm(x.view, weight, out=out.view)
    assert returned is out.view
    assert_written_exactly(out, expected_rmsnorm(x.view, weight), places["out"])
    assert x.buffer.tobytes() == before.tobytes()


@pytest.mark.parametrize("offset", [1, 2, 3, 4])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_the_weight_may_lie_at_any_element(dtype: str, offset: int) -> None:
    x = make_input("random", 3, SMALL, "float16")
    weight = make_weight(SMALL + offset, dtype)[offset:]
    assert_same_bytes(rmsnorm(x, weight), expected_rmsnorm(x, weight))


@pytest.mark.parametrize(
    ("cut", "row_dims"),
    [
        (lambda qkv: qkv[:, :, 0, 0], 1),
        (lambda qkv: qkv[:, :, 0], 2),
        (lambda qkv: qkv[:, :, 0, :3], 2),
        (lambda qkv: qkv[:, :, 1].transpose(1, 2), 3),
        (lambda qkv: qkv[:, :, 2].transpose(0, 1), 3),
        (lambda qkv: qkv[::2, 1:, 1, ::2], 3),
        (lambda qkv: qkv[:, 3, 1], 2),
    ],
    ids=["one_head", "q", "heads", "transposed_k", "swapped_v", "every_second", "one_token"],
)
def test_views_cut_out_of_a_packed_qkv_tensor(cut: Any, row_dims: int, prepared: list[KernelConfig]) -> None:
    packed = torch.from_numpy(make_input("random", 3 * 5 * 3 * 4, 64, "float16").reshape(3, 5, 3, 4, 64))
    view = cut(packed)
    weight = make_weight(64, "float16")
    out = rmsnorm(view, torch.from_numpy(weight))
    assert [config.row_dims for config in prepared] == [row_dims]
    assert out.is_contiguous()
    assert_same_bytes(out, expected_rmsnorm(view.numpy(), weight))


def test_a_packed_tensor_is_normalized_in_place_part_by_part() -> None:
    packed = make_input("random", 15, 3 * 64, "float16")
    weight, before = make_weight(64, "float16"), packed.copy()
    q, k, v = (packed[:, i * 64 : (i + 1) * 64] for i in range(3))
    rmsnorm(q, weight, out=q)
    rmsnorm(k, weight, out=k)
    assert_same_bytes(q, expected_rmsnorm(before[:, :64], weight))
    assert_same_bytes(k, expected_rmsnorm(before[:, 64:128], weight))
    assert_same_bytes(v, before[:, 128:])


def test_one_part_of_a_packed_tensor_may_go_to_another() -> None:
    packed = make_input("random", 15, 3 * 64, "float16")
    weight, before = make_weight(64, "float16"), packed.copy()
    rmsnorm(packed[:, :64], weight, out=packed[:, 128:])
    assert_same_bytes(packed[:, :128], before[:, :128])
    assert_same_bytes(packed[:, 128:], expected_rmsnorm(before[:, :64], weight))


@pytest.mark.parametrize("batch", [1, 2])
def test_one_part_of_a_packed_batch_may_go_to_another(batch: int) -> None:
    """The parts interleave below the outermost dimension, but share no byte."""
    packed = make_input("random", batch * 5, 3 * 64, "float16").reshape(batch, 5, 3, 64)
    weight, before = make_weight(64, "float16"), packed.copy()
    rmsnorm(packed[:, :, 0], weight, out=packed[:, :, 1])
    assert_same_bytes(packed[:, :, 0], before[:, :, 0])
    assert_same_bytes(packed[:, :, 1], expected_rmsnorm(before[:, :, 0], weight))
    assert_same_bytes(packed[:, :, 2], before[:, :, 2])


def test_a_broadcast_input_is_read_as_it_looks() -> None:
    row = make_input("random", 1, SMALL, "float16")
    weight = make_weight(SMALL, "float16")
    x = np.broadcast_to(row, (3, 4, SMALL))
    assert_same_bytes(rmsnorm(x, weight), expected_rmsnorm(np.ascontiguousarray(x), weight))
    column = np.broadcast_to(make_input("random", 3, SMALL, "float16")[:, None], (3, 4, SMALL))
    assert_same_bytes(rmsnorm(column, weight), expected_rmsnorm(np.ascontiguousarray(column), weight))


def test_a_torch_tensor_may_be_expanded() -> None:
    x = torch.from_numpy(make_input("random", 2, SMALL, "float16")).unsqueeze(1).expand(2, 5, SMALL)
    weight = make_weight(SMALL, "float16")
    assert_same_bytes(rmsnorm(x, torch.from_numpy(weight)), expected_rmsnorm(x.numpy(), weight))


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_output_may_be_the_input(dtype: str) -> None:
    x, weight = make_input("real", 9, 384, dtype), make_weight(384, dtype)
    expected = expected_rmsnorm(x, weight)
    assert rmsnorm(x, weight, out=x) is x
    assert_same_bytes(x, expected)


def test_a_given_output_gets_what_an_allocated_one_gets() -> None:
    x, weight = make_input("real", 9, 384, "bfloat16"), make_weight(384, "bfloat16")
    out = np.empty_like(x)
    assert rmsnorm(x, weight, out=out) is out
    assert_same_bytes(out, rmsnorm(x, weight))


@pytest.mark.parametrize("kind", ["random", "real", "nan"])
def test_a_row_s_result_does_not_depend_on_its_batch(kind: str) -> None:
    x, weight = make_input(kind, 33, 384, "float16"), make_weight(384, "float16")
    batch = rmsnorm(x, weight)
    for i, row in enumerate(x):
        assert_same_bytes(rmsnorm(row, weight), batch[i], f"row {i}")


@settings(deadline=None, max_examples=60)
@given(exponent=st.integers(-8, 8), seed=st.integers(0, 2**32 - 1))
def test_without_eps_a_power_of_two_in_the_input_cancels(exponent: int, seed: int) -> None:
    x, weight = make_input("random", 4, 384, "bfloat16", seed), make_weight(384, "bfloat16")
    scaled = (x.astype(np.float32) * 2.0**exponent).astype(x.dtype)
    assert_same_bytes(rmsnorm(scaled, weight, eps=0.0), rmsnorm(x, weight, eps=0.0))
