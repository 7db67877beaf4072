"""Tensors that depend on constants alone: which are kept, and for which calls."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from jitnorm.compat.constants import remembered
from jitnorm.compat.rope import yarn_angles

CPU = torch.device("cpu")
made: list[float] = []


@remembered(2)
def filled(device: torch.device, value: float) -> torch.Tensor:
    made.append(value)
    return torch.full((3,), value, device=device)


@pytest.fixture(autouse=True)
def forgotten() -> None:
    made.clear()


def test_the_first_are_kept_and_never_replaced() -> None:
    first = [filled(CPU, value) for value in (1.0, 2.0, 3.0)]
    again = [filled(CPU, value) for value in (1.0, 2.0, 3.0)]
    assert [one is other for one, other in zip(first, again, strict=True)] == [True, True, False]
    assert made == [1.0, 2.0, 3.0, 3.0]


def test_what_a_mode_or_a_transform_makes_is_not_kept() -> None:
    @remembered(8)
    def constant(device: torch.device, value: float) -> torch.Tensor:
        return torch.full((3,), value, device=device)

    with FakeTensorMode():
        assert isinstance(constant(CPU, 1.0), FakeTensor)
    torch.func.grad(lambda x: (x * constant(CPU, 2.0)).sum())(torch.ones(3))
    with torch.inference_mode():
        constant(CPU, 3.0)
    for value in (1.0, 2.0, 3.0):
        found = constant(CPU, value)
        assert type(found) is torch.Tensor
        assert not found.is_inference()
        assert torch.equal(torch.ones(3, requires_grad=True) * found, torch.full((3,), value))
        with FakeTensorMode():
            assert isinstance(constant(CPU, value), FakeTensor)


def test_compiled_programs_compute_their_own() -> None:
    compiled = torch.compile(yarn_angles, fullgraph=True, backend="aot_eager")
    positions = torch.arange(5)
    for factor in (1.0, 4.0):
        call = positions, 64, 1e4, factor, 8.0, 24.0, 1.5
        assert torch.equal(compiled(*call), yarn_angles(*call))
