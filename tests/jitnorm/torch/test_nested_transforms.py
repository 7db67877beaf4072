"""Transforms of torch.func within each other: outer ones see what inner ones do, and second derivatives are refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.func import grad, hessian, jacrev, vjp

import jitnorm

ROWS, SIZE = 2, 8
X = torch.linspace(-1, 2, ROWS * SIZE).view(ROWS, SIZE)
WEIGHT = torch.linspace(0.5, 1.5, SIZE)
Tensor = torch.Tensor
Norm = Callable[[Tensor], Tensor]


def rmsnorm(x: Tensor) -> Tensor:
    return jitnorm.rmsnorm(x, WEIGHT)


def add_rmsnorm(x: Tensor) -> Tensor:
    y, total = jitnorm.add_rmsnorm(x, 2 * x, WEIGHT)
    return y + total


def layernorm(x: Tensor) -> Tensor:
    return jitnorm.layernorm(x, WEIGHT, WEIGHT)


def operator(x: Tensor) -> Tensor:
    made: Tensor = torch.ops.jitnorm.rmsnorm(x, WEIGHT, 1e-6)
    return made


norms = pytest.mark.parametrize("norm", [rmsnorm, add_rmsnorm, layernorm, operator])


@norms
def test_second_derivatives_are_refused(norm: Norm) -> None:
    def loss(x: Tensor) -> Tensor:
        return norm(x).square().sum()

    leaf = X.clone().requires_grad_()
    for second in (
        lambda: grad(lambda x: grad(loss)(x).sum())(X),
        lambda: jacrev(jacrev(norm))(X),
        lambda: vjp(lambda x: vjp(norm, x)[1](X)[0], X)[1](X),
        lambda: torch.autograd.grad(grad(loss)(leaf).sum(), leaf),
    ):
        with pytest.raises(RuntimeError, match=r"^jitnorm's ops have no second derivatives"):
            second()
    with pytest.raises(TypeError, match=r"^input: has a tangent"):
        hessian(loss)(X)


@norms
def test_an_outer_transform_has_the_gradient_of_what_an_inner_one_computes(norm: Norm) -> None:
    expected = grad(lambda x: norm(x).square().sum())(X)

    def of_value(x: Tensor) -> Tensor:
        return vjp(norm, x)[0].square().sum()

    def of_side_result(x: Tensor) -> Tensor:
        def inner(y: Tensor) -> tuple[Tensor, Tensor]:
            return y.sum(), norm(x * y)

        return grad(inner, has_aux=True)(torch.ones(ROWS, SIZE))[1].square().sum()

    leaf = X.clone().requires_grad_()
    for found in (grad(of_value)(X), grad(of_side_result)(X), torch.autograd.grad(of_value(leaf), leaf)[0]):
        assert torch.equal(found, expected)


def test_no_grad_holds_for_what_is_in_it() -> None:
    with torch.no_grad():
        outside = grad(lambda x: rmsnorm(x).square().sum())(X)
    assert torch.equal(outside, grad(lambda x: rmsnorm(x).square().sum())(X))

    def inside(x: Tensor) -> Tensor:
        with torch.no_grad():
            made = rmsnorm(x)
        return (x * made).sum()

    assert torch.equal(grad(inside)(X), rmsnorm(X))
