"""The reference's gradients are those of calculus, and its sums follow the tree that docs/numerics.md defines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from inputs import make_input, make_weight

from jitnorm.reference import (
    layernorm_backward_f32,
    layernorm_statistics_f32,
    rmsnorm_backward_f32,
    sum_rows_f32,
)
from jitnorm.reference.gradients import rows_of_pack

EPS = 1e-3


def by_autograd(function: Any, x: Any, *parameters: Any, grad: Any) -> list[Any]:
    """Gradients in float64."""
    tensors = [torch.tensor(each.astype(np.float64), requires_grad=True) for each in (x, *parameters)]
    function(*tensors).backward(torch.tensor(grad.astype(np.float64)))
    return [tensor.grad.numpy() for tensor in tensors]


def values(rows: int, size: int) -> tuple[Any, Any, Any, Any]:
    x, grad = make_input("random", rows, size, "float32"), make_input("random", rows, size, "float32", seed=3)
    return x, grad, make_weight(size, "float32"), make_weight(size, "float32", seed=7)


@pytest.mark.parametrize("weight_bias", [0.0, 1.0])
@pytest.mark.parametrize(("rows", "size"), [(1, 1), (37, 50), (300, 24), (3, 2000)])
def test_rmsnorm_s_are_those_of_autograd_in_float64(rows: int, size: int, weight_bias: float) -> None:
    def norm(h: Any, weight: Any, bias: Any) -> Any:
        return h * torch.rsqrt(h.square().mean(-1, keepdim=True) + EPS) * (weight + weight_bias) + bias

    x, grad, weight, bias = values(rows, size)
    found = rmsnorm_backward_f32(grad, x, weight, EPS, weight_bias=weight_bias)
    for each, exact in zip(found, by_autograd(norm, x, weight, bias, grad=grad), strict=True):
        np.testing.assert_allclose(each, exact, rtol=1e-5, atol=1e-5 * np.sqrt(rows))


@pytest.mark.parametrize(("rows", "size"), [(37, 50), (300, 24), (3, 2000)])
def test_layernorm_s_are_those_of_autograd_in_float64(rows: int, size: int) -> None:
    def norm(h: Any, gamma: Any, beta: Any) -> Any:
        return torch.nn.functional.layer_norm(h, (size,), gamma, beta, EPS)

    x, grad, gamma, beta = values(rows, size)
    found = layernorm_backward_f32(grad, x, *layernorm_statistics_f32(x, EPS), gamma)
    for each, exact in zip(found, by_autograd(norm, x, gamma, beta, grad=grad), strict=True):
        np.testing.assert_allclose(each, exact, rtol=1e-5, atol=2e-5 * np.sqrt(rows))


def test_another_gradient_is_added() -> None:
    x, grad, weight, _ = values(4, 40)
    alone, other = rmsnorm_backward_f32(grad, x, weight)[0], make_input("random", 4, 40, "float16")
    assert (rmsnorm_backward_f32(grad, x, weight, residual_grad=other)[0] == alone + other.astype(np.float32)).all()


def test_a_gradient_of_one_row_is_its_product_and_of_packs_a_fold_of_sums_in_order() -> None:
    """The bias's, where nothing but additions happens: packs of 32 rows of 128, two to a segment."""
    grad = make_input("random", 512 * 32, 128, "float32")
    assert rows_of_pack(128) == 32
    found = rmsnorm_backward_f32(grad, np.ones_like(grad), np.ones(128, np.float32))[2]
    packs = grad.reshape(2, 256, 32, 128)
    places = packs[0] + packs[1]
    while places.shape[1] > 1:
        half = places.shape[1] // 2
        places = places[:, :half] + places[:, half:]
    assert (found == sum_rows_f32(places[:, 0])).all()
    row = rmsnorm_backward_f32(grad[:1], np.ones_like(grad[:1]), np.ones(128, np.float32))[2]
    assert (row == grad[0]).all()


def test_rows_of_a_matrix_take_turns_with_accumulators_that_are_folded() -> None:
    matrix = make_input("random", 444, 3, "float32")
    sums = matrix[:256].copy()
    sums[:188] += matrix[256:]
    while len(sums) > 1:
        sums = sums[: len(sums) // 2] + sums[len(sums) // 2 :]
    assert (sum_rows_f32(matrix) == sums[0]).all()
    assert not sum_rows_f32(matrix[:0]).any()
