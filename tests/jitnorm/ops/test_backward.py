"""The gradients of norms have the bytes of the reference, whatever the shape, the strides and the threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from expected import assert_same_bytes
from frameworks import CPU_FRAMEWORKS
from inputs import ALL_DTYPES, INPUT_KINDS, in_turn, make_input, make_weight

import jitnorm
from jitnorm.reference import (
    layernorm_backward_f32,
    layernorm_statistics_f32,
    rmsnorm_backward_f32,
    round_to,
    sum_rows_f32,
)

# Rows of a part of a warp, of one, of two chunks a lane, of several warps; most not of whole chunks.
SIZES = (1, 17, 128, 513, 1024, 1100)


def layernorm_backward(grad: Any, x: Any, weight: Any, **options: Any) -> tuple[Any, ...]:
    """The gradients with the statistics that the norm returns."""
    _, mean, rstd = jitnorm.layernorm_with_statistics(x, weight, weight)
    return jitnorm.layernorm_backward(grad, x, mean, rstd, weight, **options)


def expected_layernorm_backward(grad: Any, x: Any, weight: Any, **options: Any) -> tuple[Any, ...]:
    return layernorm_backward_f32(grad, x, *layernorm_statistics_f32(x), weight, **options)


FUNCTIONS = {
    "rmsnorm": (jitnorm.rmsnorm_backward, rmsnorm_backward_f32, 2),
    "gemma": (
        jitnorm.gemma_rmsnorm_backward,
        lambda *given, **options: rmsnorm_backward_f32(*given, weight_bias=1.0, **options),
        2,
    ),
    "bias": (jitnorm.rmsnorm_bias_backward, rmsnorm_backward_f32, 3),
    "layernorm": (layernorm_backward, expected_layernorm_backward, 3),
}


def given(kind: str, rows: int, size: int, dtype: str, name: str) -> tuple[Any, Any, Any]:
    """A gradient, an input and a weight."""
    wide = name == "layernorm" or size == 17
    x = make_input(kind, rows, size, dtype, seed=1)
    return make_input("random", rows, size, dtype), x, make_weight(size, "float32" if wide else dtype)


def assert_gradients(found: tuple[Any, ...], expected: tuple[Any, ...], weight: Any, what: str) -> None:
    """Check that the gradients are the reference's, rounded."""
    assert_same_bytes(found[0], round_to(expected[0], found[0].dtype), f"input of {what}")
    for each, exact in zip(found[1:], expected[1:], strict=False):
        assert each.dtype == weight.dtype
        assert_same_bytes(each, round_to(exact, weight.dtype), f"parameter of {what}")


@pytest.mark.parametrize(("size", "dtype", "name"), in_turn((*SIZES, 96, 16), list(ALL_DTYPES), list(FUNCTIONS)))
def test_they_have_the_reference_s_bytes(size: int, dtype: str, name: str) -> None:
    function, reference, count = FUNCTIONS[name]
    for kind in INPUT_KINDS:
        grad, x, weight = given(kind, 40, size, dtype, name)
        found = function(grad, x, weight)
        assert len(found) == count
        assert_gradients(found, reference(grad, x, weight), weight, kind)


# Fewer than a pack, one more; as many segments as there are at most, one row more in some.
ROWS_AND_SIZES = [(1, 40), (31, 128), (33, 128), (257, 1030), (700, 1030), (8200, 128), (130, 4100)]


@pytest.mark.parametrize(("shape", "name"), in_turn(2 * ROWS_AND_SIZES, list(FUNCTIONS)))
def test_rows_are_summed_along_the_same_tree_however_many_they_are(shape: tuple[int, int], name: str) -> None:
    """Two of the functions suffice for each shape, because all sum alike."""
    (rows, size), (function, reference, _) = shape, FUNCTIONS[name]
    grad, x, weight = given("random", rows, size, "float32", name)
    assert_gradients(function(grad, x, weight), reference(grad, x, weight), weight, f"{rows} rows")


def test_the_gradient_of_a_layernorm_takes_any_statistics() -> None:
    """They may come from other libraries, in torch's shape, and are not recomputed."""
    grad, x, weight = given("random", 40, 100, "float16", "layernorm")
    for kind in INPUT_KINDS:
        mean, rstd = make_input(kind, 2, 40, "float32", seed=2)
        found = jitnorm.layernorm_backward(grad, x, mean[:, None], rstd[:, None], weight)
        assert_gradients(found, layernorm_backward_f32(grad, x, mean, rstd, weight), weight, kind)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_another_gradient_is_added_before_the_only_rounding(name: str) -> None:
    function, reference, _ = FUNCTIONS[name]
    grad, x, weight = given("real", 9, 96, "bfloat16", name)
    other = make_input("random", 9, 96, "bfloat16", seed=5)
    found = function(grad, x, weight, residual_grad=other)
    assert_gradients(found, reference(grad, x, weight, residual_grad=other), weight, name)
    alone = reference(grad, x, weight)[0]
    assert (found[0] != round_to(alone, x.dtype) + other).any()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_gradient_of_the_input_is_the_same_without_those_of_parameters(name: str) -> None:
    function, _, count = FUNCTIONS[name]
    for rows, size in ((70, 96), (300, 1100)):
        grad, x, weight = given("random", rows, size, "bfloat16", name)
        found = function(grad, x, weight, residual_grad=x, weight_grad=False)
        assert found[1:] == (None,) * (count - 1)
        assert_same_bytes(found[0], function(grad, x, weight, residual_grad=x)[0])
    if name in ("rmsnorm", "layernorm"):
        assert jitnorm.rmsnorm_backward(grad, x, None, weight_grad=False)[1] is None


def test_the_gradient_may_take_the_place_of_the_output_s() -> None:
    grad, x, weight = given("random", 70, 96, "float16", "rmsnorm")
    expected = jitnorm.rmsnorm_backward(grad.copy(), x, weight)
    found = jitnorm.rmsnorm_backward(grad, x, weight, input_grad=grad)
    assert found[0] is grad
    for each, same in zip(found, expected, strict=True):
        assert_same_bytes(each, same)


def test_rows_may_stand_at_any_stride() -> None:
    grad, x, weight = given("random", 24, 96, "bfloat16", "rmsnorm")
    wide = np.zeros((24, 2, 100), x.dtype)
    wide[:, 0, :96], wide[:, 1, :96] = grad, x
    found = jitnorm.rmsnorm_backward(wide[:, 0, :96], wide[:, 1, :96], weight)
    shaped = jitnorm.rmsnorm_backward(grad.reshape(4, 6, 96), x.reshape(4, 6, 96), weight)
    assert shaped[0].shape == (4, 6, 96)
    for one, other, expected in zip(found, shaped, jitnorm.rmsnorm_backward(grad, x, weight), strict=True):
        assert_same_bytes(one, expected)
        assert_same_bytes(other.reshape(expected.shape), expected)


def test_threads_change_no_byte() -> None:
    grad, x, weight = given("random", 3000, 512, "bfloat16", "layernorm")
    found = layernorm_backward(grad, x, weight)  # enough elements for several threads
    assert_gradients(found, expected_layernorm_backward(grad, x, weight), weight, "threads")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_rows_give_parameters_a_gradient_of_zero(name: str) -> None:
    grad, x, weight = given("random", 0, 96, "bfloat16", name)
    found = FUNCTIONS[name][0](grad, x, weight)
    assert found[0].shape == (0, 96)
    for each in found[1:]:
        assert not each.astype(np.float32).any()


@pytest.mark.parametrize("framework", CPU_FRAMEWORKS)
def test_every_framework_gets_the_same_bytes(framework: str) -> None:
    make = CPU_FRAMEWORKS[framework]
    grad, x, weight = given("real", 6, 96, "bfloat16", "rmsnorm")
    found = jitnorm.rmsnorm_backward(*map(make, (grad, x, weight)))
    for each, expected in zip(found, jitnorm.rmsnorm_backward(grad, x, weight), strict=True):
        assert_same_bytes(each, expected, framework)


@pytest.mark.parametrize("dtype", ALL_DTYPES)
@pytest.mark.parametrize("rows", [0, 1, 2, 255, 256, 257, 700])
def test_rows_of_a_matrix_are_summed_along_the_reference_s_tree(rows: int, dtype: str) -> None:
    matrix = make_input("finite_patterns" if rows == 2 else "random", rows, 70, "float32")
    expected = round_to(sum_rows_f32(matrix), ALL_DTYPES[dtype])
    assert_same_bytes(jitnorm.sum_rows(matrix, dtype), expected)


def test_a_wrong_argument_is_named() -> None:
    grad, x, weight = given("random", 4, 96, "float32", "rmsnorm")
    mean, rstd = np.zeros(4, np.float32), np.ones(4, np.float32)
    with pytest.raises(ValueError, match=r"^grad: "):
        jitnorm.rmsnorm_backward(grad[:3], x, weight)
    with pytest.raises(ValueError, match=r"^grad: "):
        jitnorm.rmsnorm_backward(grad.astype(np.float16), x, weight)
    with pytest.raises(ValueError, match=r"^residual_grad: "):
        jitnorm.rmsnorm_backward(grad, x, weight, residual_grad=grad[:, :95])
    with pytest.raises(ValueError, match=r"^gemma dtype: is 'float16'"):
        jitnorm.layernorm_backward(grad, x, mean, rstd, weight.astype(np.float16))
    with pytest.raises(ValueError, match=r"^mean: shape is \(3,\), expected \(4,\)"):
        jitnorm.layernorm_backward(grad, x, mean[:3], rstd, weight)
    with pytest.raises(ValueError, match=r"^rstd: dtype is float64, expected float32"):
        jitnorm.layernorm_backward(grad, x, mean, rstd.astype(np.float64), weight)
    with pytest.raises(ValueError, match=r"^input: "):
        jitnorm.sum_rows(x.astype(np.float16))
    with pytest.raises(ValueError, match=r"^dtype: is 'int8'; allowed are"):
        jitnorm.sum_rows(x, "int8")


# Their dtypes also choose the second launch, whose names the caller does not know.
@pytest.mark.parametrize(
    ("name", "wrong", "error"),
    [
        ("weight", [1.0], TypeError("weight: is a list")),
        ("input", "text", TypeError("input: is a str")),
        ("weight", np.ones(96), ValueError("weight dtype: is 'float64'")),
        ("input", np.ones((4, 96)), ValueError("input dtype: is 'float64'")),
    ],
)
def test_an_argument_of_a_wrong_type_is_named(name: str, wrong: object, error: Exception) -> None:
    grad, x, weight = given("random", 4, 96, "float32", "rmsnorm")
    with pytest.raises(type(error), match=f"^{error}"):
        jitnorm.rmsnorm_backward(**{"grad": grad, "input": x, "weight": weight, name: wrong})
