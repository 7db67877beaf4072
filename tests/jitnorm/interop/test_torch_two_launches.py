"""Calls of torch's tensors whose two launches the launcher makes: of gradients, and of scales of whole tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import jitnorm
from jitnorm.catalogue.gradients import SUM_ROWS
from jitnorm.dispatch import dispatcher_of
from jitnorm.ffi import tvm_ffi
from jitnorm.ops import backward

WEIGHT = torch.rand(48) + 0.5


def grads_and_rows(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(rows)
    return torch.randn(rows, 48, generator=generator), torch.randn(rows, 48, generator=generator)


# These have different numbers of partial sums, and kernels for few and for many rows.
@pytest.mark.parametrize("rows", [1, 9, 40, 700, 3000])
def test_a_gradient_takes_another_s_place_once_where_a_kernel_is_new(rows: int) -> None:
    """Made again after the first launch, the call would read its own result."""
    grad, x = grads_and_rows(rows)
    exact = jitnorm.rmsnorm_backward(grad.numpy(), x.numpy(), WEIGHT.numpy())
    for _ in range(2):
        given = grad.clone()
        found = jitnorm.rmsnorm_backward(given, x, WEIGHT, input_grad=given)
        assert found[0] is given
        assert all(np.array_equal(each, other) for each, other in zip(found, exact, strict=True))


def test_a_second_launch_that_fails_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    grad, x = grads_and_rows(3)
    exact, _ = jitnorm.rmsnorm_backward(grad, x, WEIGHT)

    def fail(*_: Any) -> None:
        raise ValueError("the device is lost")

    sums = dispatcher_of(SUM_ROWS, None, "float32", False, "float32")
    kernel = tvm_ffi().convert(fail)
    backward._CALLS.clear()
    with monkeypatch.context() as patch:
        patch.setattr(sums, "find", tvm_ffi().convert(lambda *_: kernel))
        jitnorm.rmsnorm_backward(grad, x, WEIGHT)  # through Python, which then creates the launcher's function
        with pytest.raises(RuntimeError, match="the device is lost"):
            jitnorm.rmsnorm_backward(grad, x, WEIGHT, input_grad=grad)
    assert torch.equal(grad, exact)
    backward._CALLS.clear()


@pytest.mark.parametrize("size", [2, 5])
def test_a_wrong_output_of_the_second_is_named(size: int) -> None:
    x = torch.randn(4, 64)
    for _ in range(2):
        with pytest.raises(ValueError, match=rf"^out: shape is \({size},\), expected \(1,\)"):
            jitnorm.compute_amax(x, out=torch.empty(size))
        assert jitnorm.compute_amax(x) == x.abs().max()
