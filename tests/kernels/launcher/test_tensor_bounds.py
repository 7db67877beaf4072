"""Tensors without memory, or with impossible sizes, are rejected before anything is read or written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from dlpack_by_hand import tensor_by_hand
from expected import assert_same_bytes, expected_rmsnorm
from inputs import make_input, make_weight
from placement import poisoned

import jitnorm
from jitnorm.launcher import launcher

ROWS, SIZE = 4, 64
NAMES = ("input", "weight", "out")
Run = Callable[..., object]


def arrays() -> dict[str, Any]:
    """The arrays of a valid call of rmsnorm."""
    out = poisoned(ROWS * SIZE * 2).view(np.float16).reshape(ROWS, SIZE)
    return {"input": make_input("random", ROWS, SIZE, "float16"), "weight": make_weight(SIZE, "float16"), "out": out}


def by_hand(array: Any, **changes: Any) -> Any:
    """The description of an array, with changes."""
    description = {"data": array.ctypes.data, "shape": array.shape, "dtype": array.dtype.name}
    return tensor_by_hand(**(description | changes))


def by_op(tensors: dict[str, Any]) -> None:
    jitnorm.rmsnorm(**tensors)


def by_kernel(tensors: dict[str, Any]) -> None:
    jitnorm.get_kernel(f"rmsnorm:hidden_size={SIZE},input=float16")(*tensors.values(), 1e-6)


def assert_works(run: Run) -> None:
    call = arrays()
    run({name: by_hand(array) for name, array in call.items()})
    assert_same_bytes(call["out"], expected_rmsnorm(call["input"], call["weight"]))


def assert_refused(run: Run, name: str, message: str, **changes: Any) -> None:
    """Check that the call fails without writing anything, and that the next one works."""
    call = arrays()
    before = call["out"].tobytes()
    tensors = {each: by_hand(array, **(changes if each == name else {})) for each, array in call.items()}
    with pytest.raises(ValueError, match=f"^{name}: {message}"):
        run(tensors)
    assert call["out"].tobytes() == before
    assert_works(run)


@pytest.fixture(params=[by_op, by_kernel])
def run(request: pytest.FixtureRequest) -> Run:
    return request.param  # type: ignore[no-any-return]


@pytest.mark.parametrize("is_repeated", [False, True], ids=["first_call", "like_the_last"])
@pytest.mark.parametrize("name", NAMES)
def test_a_null_pointer_is_no_memory(name: str, is_repeated: bool, run: Run) -> None:
    if is_repeated:  # null is aligned as well as an address can be
        assert_works(run)
    assert_refused(run, name, r"has no memory \(its data pointer is null\), but its shape is ", data=None)


@pytest.mark.parametrize(("data", "byte_offset"), [(None, 4096), (None, 1 << 40), (4096, 0), (16, 64)])
def test_an_offset_does_not_make_memory_of_a_null_pointer(data: int | None, byte_offset: int, run: Run) -> None:
    assert_refused(run, "input", r"has no memory \(its data pointer is ", data=data, byte_offset=byte_offset)


def test_a_tensor_without_elements_needs_no_memory(run: Run) -> None:
    call = arrays()
    run(
        {
            "input": tensor_by_hand(None, (0, SIZE)),
            "weight": by_hand(call["weight"]),
            "out": tensor_by_hand(None, (0, SIZE)),
        }
    )
    assert_works(run)


@pytest.mark.parametrize(
    "shape", [(1 << 32, 1 << 32), (1 << 61, SIZE), (1 << 58, 1), (1 << 62, 4, SIZE), (1 << 40, 1 << 40, 0)], ids=str
)
@pytest.mark.parametrize("name", NAMES)
def test_shapes_beyond_all_addresses_are_refused(name: str, shape: tuple[int, ...], run: Run) -> None:
    assert_refused(run, name, r"shape is \(\d+, .*at most 144115188075855872 bytes have addresses", shape=shape)


@pytest.mark.parametrize("shape", [(-1, SIZE), (ROWS, -SIZE), (-(1 << 63), SIZE), (-2, -2, SIZE)], ids=str)
def test_negative_extents_are_refused(shape: tuple[int, ...], run: Run) -> None:
    assert_refused(run, "input", r"shape is \(.*; extents must not be negative", shape=shape)


@pytest.mark.parametrize("stride", [1 << 60, -(1 << 60), (1 << 63) - 1, -(1 << 63), 1 << 55])
def test_strides_beyond_all_addresses_are_refused(stride: int, run: Run) -> None:
    for name in ("input", "out"):
        assert_refused(run, name, f"strides are .{stride}, 1.*bytes have addresses", strides=(stride, 1))


def test_strides_that_together_lead_beyond_all_addresses_are_refused(run: Run) -> None:
    shape, strides = (2, 2, SIZE), (1 << 55, 1 << 55, 1)  # either stride alone leads to the last address
    assert_refused(run, "input", "strides are .*bytes have addresses", shape=shape, strides=strides)


def test_a_stride_that_is_not_walked_may_be_anything(run: Run) -> None:
    call = arrays()
    one_row = {name: array[:1] for name, array in call.items() if name != "weight"}
    tensors = {name: by_hand(array, strides=((1 << 63) - 1, 1)) for name, array in one_row.items()}
    run({"input": tensors["input"], "weight": by_hand(call["weight"]), "out": tensors["out"]})
    assert_same_bytes(one_row["out"], expected_rmsnorm(one_row["input"], call["weight"]))


def test_byte_offsets_beyond_all_addresses_are_refused(run: Run) -> None:
    assert_works(run)
    assert_refused(run, "input", r"has no memory \(its data pointer is no address\)", byte_offset=1 << 63)


@pytest.mark.parametrize("shape", [(1 << 32, 1 << 32, SIZE), (1 << 61, SIZE), (-1, SIZE)], ids=str)
def test_outputs_are_not_allocated_for_an_input_that_cannot_be(shape: tuple[int, ...]) -> None:
    call = arrays()
    with pytest.raises(ValueError, match=r"^input: shape is "):
        jitnorm.rmsnorm(by_hand(call["input"], shape=shape), by_hand(call["weight"]))


@pytest.mark.parametrize("shape", [(1 << 32, 1 << 32), (1 << 61, 8), (-1, SIZE)], ids=str)
def test_the_launcher_makes_no_tensor_of_an_impossible_shape(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"^shape: shape is "):
        launcher().allocate(shape, "float32", -1)
    with pytest.raises(ValueError, match=r"^shape: shape is "):
        launcher().stand_in(shape, "float32", -1, 0)
    with pytest.raises(ValueError, match=r"^tensor: shape is "):
        launcher().merge_last_two(by_hand(arrays()["input"], shape=(1, *shape)))


def test_rows_with_several_strides_are_divided_by_32_bits() -> None:
    call = arrays()
    kernel = jitnorm.get_kernel(f"rmsnorm:hidden_size={SIZE},input=float16,row_dims=2")
    shape, strides = (1 << 16, 1 << 16, SIZE), (1 << 24, SIZE, 1)
    many = {name: by_hand(call[name], shape=shape, strides=strides) for name in ("input", "out")}
    with pytest.raises(ValueError, match=r"^input: there are 4294967296 rows, whose strides .* up to 4294967295;"):
        kernel(many["input"], by_hand(call["weight"]), many["out"], 1e-6)
    rows = {name: by_hand(call[name], shape=(2, 2, SIZE)) for name in ("input", "out")}
    kernel(rows["input"], by_hand(call["weight"]), rows["out"], 1e-6)
    assert_same_bytes(call["out"], expected_rmsnorm(call["input"], call["weight"]))
