"""jitnorm.compat.sglang_kernels: norms, against formulas in float64."""

from __future__ import annotations

import pytest
import torch

from jitnorm.compat import sglang_kernels

ROWS, SIZE, EPS = 5, 256, 1e-5


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).bfloat16()


def norm(x: torch.Tensor, weight: torch.Tensor | float = 1.0, eps: float = EPS) -> torch.Tensor:
    x = x.double()
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * weight


def assert_rounded(found: torch.Tensor, expected: torch.Tensor, times: float = 1.0) -> None:
    """What is found is in 16 bits, and off by no more than so many of their roundings."""
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.cpu().double(), expected, rtol=times * 2.0**-8, atol=times * 2.0**-9)


X, RESIDUAL = random(ROWS, SIZE), random(ROWS, SIZE, seed=1)
WEIGHT, OTHER, THIRD = (random(SIZE, seed=seed) for seed in (2, 3, 4))


def test_norms_are_in_place_if_asked_for(device: str) -> None:
    x = X.to(device)
    found = sglang_kernels.fused_rmsnorm(x, WEIGHT.to(device), EPS)
    assert_rounded(found, norm(X, WEIGHT.double()))
    assert torch.equal(x.cpu(), X)
    assert sglang_kernels.fused_rmsnorm(x, WEIGHT.to(device), EPS, inplace=True) is x
    assert torch.equal(x, found)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("weight_dtype", [torch.bfloat16, torch.float32])
def test_weights_are_multiplied_in_float32(device: str, dtype: torch.dtype, weight_dtype: torch.dtype) -> None:
    x, weight = X.to(device, dtype), WEIGHT.to(device, weight_dtype)
    found, expected = sglang_kernels.rmsnorm_fp32(x, weight, EPS), norm(X, WEIGHT.double())
    assert found.dtype == dtype
    if dtype == torch.float32:
        torch.testing.assert_close(found.cpu().double(), expected, rtol=1e-6, atol=1e-6)
    else:
        assert_rounded(found, expected)


def test_three_weights_have_a_norm_each(device: str) -> None:
    weights = (WEIGHT, OTHER, THIRD)
    assert sglang_kernels.can_use_rmsnorm_fanout(X)
    assert not sglang_kernels.can_use_rmsnorm_fanout(X.double())
    found = sglang_kernels.rmsnorm_fanout(X.to(device), *(each.to(device) for each in weights), EPS)
    assert isinstance(found, tuple)
    for each, weight in zip(found, weights, strict=True):
        assert_rounded(each, norm(X, weight.double()))


def test_norms_of_embeddings_and_hidden_states_are_side_by_side(device: str) -> None:
    assert sglang_kernels.is_supported_fused_eh_norm_hidden_size(SIZE)
    found = sglang_kernels.fused_eh_norm(*(each.to(device) for each in (X, RESIDUAL, WEIGHT, OTHER)), EPS)
    assert_rounded(found, torch.cat([norm(X, WEIGHT.double()), norm(RESIDUAL, OTHER.double())], -1))
    with pytest.raises(ValueError, match=r"^previous_hidden: shape is \(4, 256\); expected \(5, 256\)"):
        sglang_kernels.fused_eh_norm(X, RESIDUAL[1:], WEIGHT, OTHER, EPS)


@pytest.mark.parametrize("is_given", [True, False])
def test_groups_of_a_row_have_their_norms(device: str, is_given: bool) -> None:
    x, weight = X.view(ROWS, 1, SIZE).to(device), WEIGHT.to(device)
    out = torch.empty_like(x) if is_given else None
    found = sglang_kernels.grouped_gemma_rmsnorm(x, weight, 64, EPS, out)
    expected = norm(X.view(ROWS, 4, 64), 1 + WEIGHT.double().view(4, 64))
    assert_rounded(found, expected.view(x.shape))
    assert found is out or not is_given
    with pytest.raises(ValueError, match=r"^group_size: is 96, which does not divide the hidden size 256"):
        sglang_kernels.grouped_gemma_rmsnorm(x, weight, 96)


def test_a_norm_is_added_and_the_sum_is_normed(device: str) -> None:
    x, residual, weight, other = (each.to(device) for each in (X, RESIDUAL, WEIGHT, OTHER))
    found, total = sglang_kernels.fused_dual_residual_rmsnorm(x, residual, weight, other, EPS)
    expected = RESIDUAL.double() + norm(X, WEIGHT.double())
    assert_rounded(total, expected)
    assert_rounded(found, norm(expected, OTHER.double()))
    assert torch.equal(residual.cpu(), RESIDUAL)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_sums_of_norms_and_residuals_are_multiplied_by_a_scalar(device: str, dtype: torch.dtype) -> None:
    scalar = torch.tensor([0.625], dtype=dtype, device=device)
    x, weight, residual = (each.to(device) for each in (X, WEIGHT, RESIDUAL))
    found = sglang_kernels.gemma_rmsnorm_residual_scalar(x, weight, residual, scalar, EPS)
    assert_rounded(found, 0.625 * (norm(X, WEIGHT.double()) + RESIDUAL.double()), 2)
    assert torch.equal(residual.cpu(), RESIDUAL)


def test_two_norms_are_added_and_normed(device: str) -> None:
    tensors = (X, WEIGHT, X.flip(0), OTHER, THIRD, RESIDUAL, torch.tensor([0.625]))
    found = sglang_kernels.gemma_dual_rmsnorm_residual_scalar(*(each.to(device) for each in tensors), 1e-6, 1e-2, 1e-4)
    both = norm(X, WEIGHT.double(), 1e-6) + norm(X.flip(0), OTHER.double(), 1e-2)
    assert_rounded(found, 0.625 * (norm(both, THIRD.double(), 1e-4) + RESIDUAL.double()), 8)


@pytest.mark.parametrize("has_values", [True, False])
def test_heads_of_queries_keys_and_values_are_normed_in_a_packed_tensor(device: str, has_values: bool) -> None:
    packed, weights = X.clone().to(device), [each[:32].to(device) for each in (WEIGHT, OTHER)]
    q, k, v = packed.split([128, 64, 64], -1)
    others = (k, v) if has_values else (None, None)
    sglang_kernels.gemma_qkv_rmsnorm(q, *others, *weights, 4, 2, 32, EPS)
    heads = X.view(ROWS, 8, 32)
    factors = torch.ones(8, 32).double()
    factors[:4], factors[4:6] = WEIGHT[:32], OTHER[:32]
    expected = norm(heads, factors)
    if not has_values:
        expected[:, 4:] = heads[:, 4:]
    assert_rounded(packed, expected.view(ROWS, SIZE))
    with pytest.raises(ValueError, match=r"^k: has 64 columns; 3 heads of 32 are 96"):
        sglang_kernels.gemma_qkv_rmsnorm(q, k, v, *weights, 4, 3, 32)


@pytest.mark.parametrize("gates", ["none", "flat", "grouped"])
@pytest.mark.parametrize("has_weight", [True, False])
def test_gates_multiply_norms_of_heads(device: str, gates: str, has_weight: bool) -> None:
    x, weight = X.to(device), WEIGHT[:32].to(device) if has_weight else None
    wide = random(ROWS, 2, 192, seed=7).to(device)
    gate = {"none": None, "flat": wide.view(ROWS, -1)[:, 8 : 8 + SIZE], "grouped": wide[..., 8 : 8 + 128]}[gates]
    expected = norm(X.view(ROWS, 8, 32), WEIGHT[:32].double() if has_weight else 1.0, 1e-6)
    if gate is not None:
        expected = expected * gate.cpu().double().reshape(ROWS, 8, 32).sigmoid()
    out = torch.empty_like(x)
    assert sglang_kernels.rms_norm_gate(x, gate, weight, head_dim=32, eps=1e-6, out=out) is out
    assert_rounded(out, expected.view(ROWS, SIZE))
    assert torch.equal(sglang_kernels.rms_norm_gate(x, gate, weight, head_dim=32, eps=1e-6), out)


def test_gates_of_no_norm_or_another_size_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^has_norm: is False, but gates multiply norms here"):
        sglang_kernels.rms_norm_gate(X, X, head_dim=32, has_norm=False)
    with pytest.raises(ValueError, match=r"^gate: shape is \(4, 256\), but that of x is \(5, 256\)"):
        sglang_kernels.rms_norm_gate(X, X[1:], head_dim=32)


def test_what_does_not_fit_is_named_before_anything_is_written() -> None:
    x, q = X.clone(), X[:, :128].clone()
    for weight in (WEIGHT[:128], WEIGHT[:254], torch.cat([WEIGHT, WEIGHT])):
        with pytest.raises(ValueError, match=r"^weight: shape is \(\d+,\); expected \(256,\)"):
            sglang_kernels.grouped_gemma_rmsnorm(x, weight, 128, out=x)
    with pytest.raises(ValueError, match=r"^out: shape is \(5, 128\); expected \(5, 256\)"):
        sglang_kernels.grouped_gemma_rmsnorm(x, WEIGHT, 128, out=q)
    with pytest.raises(ValueError, match=r"^v: is torch\.float32 of shape \(5, 2, 32\); expected torch\.bfloat16"):
        sglang_kernels.gemma_qkv_rmsnorm(q, q[:, 64:], X[:, :64].float(), WEIGHT[:32], WEIGHT[:32], 4, 2, 32)
    assert torch.equal(x, X)
    assert torch.equal(q, X[:, :128])
    with pytest.raises(ValueError, match=r"^weight2: shape is \(32,\); expected \(256,\)"):
        sglang_kernels.rmsnorm_fanout(X, WEIGHT, OTHER, THIRD[:32], EPS)
    with pytest.raises(ValueError, match=r"^hnorm_weight: shape is \(32,\); expected \(256,\)"):
        sglang_kernels.fused_eh_norm(X, X, WEIGHT, OTHER[:32], EPS)


def test_streams_are_mixed_after_a_layer(device: str) -> None:
    streams, factors, mix = random(ROWS, 4, SIZE, seed=8), torch.rand(ROWS, 4, 1), torch.rand(ROWS, 4, 4)
    found = sglang_kernels.mhc_post(*(each.to(device) for each in (X, streams, factors, mix)))
    expected = factors.double() * X.double()[:, None] + mix.double().transpose(1, 2) @ streams.double()
    assert_rounded(found, expected)
    tensors = (each.to(device) for each in (X, streams, factors[..., 0], mix))
    assert torch.equal(sglang_kernels.mhc_post_split_h(*tensors, block_size=128), found)
