"""jitnorm.compat.flashinfer.cake_rmsnorm: the norm and its gradients, compared with torch in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from jitnorm.compat import flashinfer

TOKENS, SIZE, EPS = 6, 256, 1e-5


def normal(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).bfloat16()


def leaves(device: str, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    """x, the weight and the residual, which require grad."""
    made = normal(TOKENS, SIZE, seed=1), normal(SIZE, seed=2), normal(TOKENS, SIZE, seed=3)
    return tuple(each.to(device, dtype).requires_grad_() for each in made)


def by_formula(x: torch.Tensor, w: torch.Tensor, eps: float, residual: torch.Tensor | None) -> Any:
    total = x if residual is None else x + residual
    y = total * torch.rsqrt(total.square().mean(-1, keepdim=True) + eps) * w
    return y if residual is None else (y, total)


def results(function: Any, device: str, dtype: torch.dtype, has_residual: bool) -> list[torch.Tensor]:
    """Outputs, then gradients, of which some come through the sum."""
    x, w, residual = leaves(device, dtype)
    made = function(x, w, EPS, residual if has_residual else None)
    outputs = made if has_residual else (made,)
    grads = [normal(TOKENS, SIZE, seed=4 + i).to(device, dtype) for i in range(len(outputs))]
    torch.autograd.backward(list(outputs), grads)
    found = [*outputs, *(each.grad for each in (x, w, residual) if each.grad is not None)]
    return [each.detach().cpu() for each in found]


@pytest.mark.parametrize("has_residual", [True, False])
def test_norm_and_gradients_are_those_of_the_formula(has_residual: bool) -> None:
    found = results(flashinfer.cake_rmsnorm, "cpu", torch.bfloat16, has_residual)
    expected = results(by_formula, "cpu", torch.float64, has_residual)
    assert len(found) == (5 if has_residual else 3)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == torch.bfloat16
        # A rounded sum shifts gradients by its error.
        torch.testing.assert_close(one.double(), other, rtol=2e-2, atol=2e-2)


def test_rows_are_those_of_a_matrix() -> None:
    with pytest.raises(ValueError, match="x: has 1 dimensions"):
        flashinfer.cake_rmsnorm(normal(SIZE, seed=1), normal(SIZE, seed=2))


@pytest.mark.gpu
@pytest.mark.parametrize("has_residual", [True, False])
def test_the_gpu_s_bytes_are_the_cpu_s(has_residual: bool) -> None:
    on_cpu, on_gpu = (
        results(flashinfer.cake_rmsnorm, device, torch.bfloat16, has_residual) for device in ("cpu", "cuda")
    )
    assert all(map(torch.equal, on_cpu, on_gpu))
