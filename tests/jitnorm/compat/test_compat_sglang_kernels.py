"""jitnorm.compat.sglang_kernels: the names of SGLang's kernels of norms and activations."""

from __future__ import annotations

import pytest
import torch

import jitnorm
from jitnorm.compat import sglang_kernels

X = torch.randn(6, 256, generator=torch.Generator().manual_seed(1)).bfloat16()
WEIGHT = torch.linspace(0.5, 1.5, 256).bfloat16()


def test_norms_are_in_place_where_no_output_is_given() -> None:
    expected, out, x = jitnorm.rmsnorm(X, WEIGHT, 1e-5), torch.empty_like(X), X.clone()
    sglang_kernels.rmsnorm(x, WEIGHT, out, 1e-5)
    assert torch.equal(out, expected)
    assert torch.equal(x, X)
    sglang_kernels.rmsnorm(x, WEIGHT, eps=1e-5)
    assert torch.equal(x, expected)


def test_norms_round_before_the_weight_where_asked() -> None:
    def rounded(x: torch.Tensor) -> torch.Tensor:
        return (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)).bfloat16() * WEIGHT

    assert torch.equal(sglang_kernels.rmsnorm_hf(X, WEIGHT), rounded(X.float()))
    for is_rounded in (True, False):
        x, residual = X.clone(), (X.flip(1).float() * 0.3).bfloat16()
        total = x.float() + residual.float()
        sglang_kernels.fused_add_rmsnorm(x, residual, WEIGHT, cast_x_before_out_mul=is_rounded)
        assert torch.equal(residual, total.bfloat16())
        assert torch.equal(x, rounded(total)) == is_rounded


def test_heads_are_normed_in_place() -> None:
    q, k = X.view(6, 4, 64).clone(), X.flip(0).contiguous().view(6, 4, 64)[:, :2].clone()
    expected = jitnorm.rmsnorm(q, WEIGHT[:64]), jitnorm.rmsnorm(k, WEIGHT[64:128])
    assert sglang_kernels.can_use_fused_inplace_qknorm(64, q.dtype)
    sglang_kernels.fused_inplace_qknorm(q, k, WEIGHT[:64], WEIGHT[64:128], head_dim=64)
    assert torch.equal(q, expected[0])
    assert torch.equal(k, expected[1])
    with pytest.raises(ValueError, match="head_dim: is 32"):
        sglang_kernels.fused_inplace_qknorm(q, k, WEIGHT[:64], WEIGHT[64:128], head_dim=32)


@pytest.mark.parametrize("name", ["silu", "gelu", "gelu_tanh"])
def test_activations_leave_the_rows_of_no_expert(name: str) -> None:
    expected, out = getattr(jitnorm, f"{name}_and_mul")(X), torch.full((6, 128), torch.nan).bfloat16()
    assert torch.equal(sglang_kernels.run_activation(name, X, None), expected)
    experts = torch.tensor([3, -1, 0])
    assert getattr(sglang_kernels, f"{name}_and_mul")(X, out, experts, 2) is out
    assert torch.equal(out[[0, 1, 4, 5]], expected[[0, 1, 4, 5]])
    assert out[2:4].isnan().all()


@pytest.mark.parametrize(("name", "gate"), [("silu", torch.nn.SiLU()), ("gelu", torch.nn.GELU())])
def test_activations_are_rounded_where_asked(name: str, gate: torch.nn.Module) -> None:
    found = getattr(sglang_kernels, f"{name}_and_mul_with_activation_rounding")(X)
    assert torch.equal(found, gate(X[:, :128].float()).bfloat16() * X[:, 128:])


def test_relu2_keeps_subnormal_squares() -> None:
    x = torch.tensor([[2.0**-65, -1.0, 3.0]]).bfloat16()
    assert sglang_kernels.relu2(x).tolist() == [[2.0**-130, 0, 9]]


def test_what_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match="op_name: is 'tanh'; allowed are silu, gelu, gelu_tanh"):
        sglang_kernels.run_activation("tanh", X, None)
