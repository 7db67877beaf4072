"""jitnorm.compat.sglang_kernels: activations, alone and quantized, against formulas of torch."""

from __future__ import annotations

import pytest
import torch
from torch_codes import FP8, exponents, fp8_codes, group_codes, group_scales, same, swizzled

from jitnorm.compat import sglang_kernels

ROWS, SIZE = 5, 256
X = (torch.randn(ROWS, 2 * SIZE, generator=torch.Generator().manual_seed(0)) * 3).bfloat16()
GATES, VALUES = X.chunk(2, -1)


def swiglu(gates: torch.Tensor, values: torch.Tensor, limit: float, alpha: float, beta: float) -> torch.Tensor:
    gates, values = gates.float().clamp(max=limit), values.float().clamp(-limit, limit)
    return gates * torch.sigmoid(alpha * gates) * (values + beta)


def assert_near(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found.cpu(), expected.to(found.dtype), rtol=2.0**-7, atol=1e-5)


def assert_encoded(codes: torch.Tensor, scales: torch.Tensor, y: torch.Tensor) -> None:
    """Codes in groups decode to what they encode, up to half the distance of two codes."""
    decoded = codes.cpu().float().unflatten(-1, (scales.shape[-1], -1)) * scales.cpu().unsqueeze(-1)
    bound = y.unflatten(-1, (scales.shape[-1], -1)).abs() * 2.0**-4 + scales.cpu().unsqueeze(-1) * 2.0**-10
    assert ((decoded.flatten(-2) - y).abs() <= bound.flatten(-2) * 1.0001).all()


def test_gates_and_values_are_limited(device: str) -> None:
    out = torch.empty(ROWS, SIZE, dtype=X.dtype, device=device)
    sglang_kernels.silu_and_mul_clamp(X.to(device), out, 2.0)
    assert_near(out, swiglu(GATES, VALUES, 2.0, 1.0, 0.0))
    found = sglang_kernels.silu_and_mul_with_activation_rounding(X.to(device), clamp_limit=2.0)
    rounded = torch.nn.functional.silu(GATES.float().clamp(max=2.0)).bfloat16() * VALUES.clamp(-2.0, 2.0)
    assert torch.equal(found.cpu(), rounded)
    with pytest.raises(ValueError, match=r"^swiglu_limit: is 0\.0; allowed are positive numbers"):
        sglang_kernels.silu_and_mul_clamp(X, out, 0.0)


@pytest.mark.parametrize("limit", [3.0, None])
def test_clamped_swiglu_of_halves(device: str, limit: float | None) -> None:
    x, out = X.view(1, ROWS, -1).to(device), torch.empty(ROWS, SIZE, dtype=X.dtype, device=device)
    found = sglang_kernels.swiglu_oai_split(x, 1.5, 0.5, limit)
    assert found.shape == (1, ROWS, SIZE)
    assert_near(found[0], swiglu(GATES, VALUES, limit or torch.inf, 1.5, 0.5))
    again = sglang_kernels.swiglu_oai_split(x, 1.5, 0.5, limit, torch.bfloat16, out)
    assert torch.equal(again, found)
    assert again.data_ptr() == out.data_ptr()
    with pytest.raises(ValueError, match=r"^out_dtype: is torch\.float32; allowed are None and that of gate_up"):
        sglang_kernels.swiglu_oai_split(X, 1.5, 0.5, limit, torch.float32)


def test_a_bias_is_added_before_gelu(device: str) -> None:
    bias = X[0].flip(0)
    found = sglang_kernels.bias_gelu_tanh(X.to(device), bias.to(device))
    assert_near(found, torch.nn.functional.gelu((X + bias).float(), approximate="tanh"))


def test_rows_past_the_mask_stay(device: str) -> None:
    x, mask = torch.stack([X, X.flip(0)]).to(device), torch.tensor([2, 5], device=device)
    out = torch.full((2, ROWS, SIZE), 7.0, dtype=X.dtype, device=device)
    assert sglang_kernels.silu_and_mul_masked_fwd(x, out, mask) is out
    for matrix, rows in enumerate([2, 5]):
        gates, values = x[matrix, :rows].cpu().chunk(2, -1)
        assert_near(out[matrix, :rows], swiglu(gates, values, torch.inf, 1.0, 0.0))
        assert (out[matrix, rows:] == 7).all()


def test_rows_of_padding_stay(device: str) -> None:
    tokens, experts = torch.tensor([0, 9, 1, 2, 0], device=device).int(), torch.tensor([0, 1, -1], device=device).int()
    out = torch.full((ROWS, SIZE), 7.0, dtype=X.dtype, device=device)
    number = torch.tensor([3], device=device).int()
    sglang_kernels.silu_and_mul(
        X.to(device), out, experts, 2, sorted_token_ids=tokens, num_tokens_post_padded=number, num_valid_tokens=9
    )
    expected = swiglu(GATES, VALUES, torch.inf, 1.0, 0.0)
    assert_near(out[[0, 2]], expected[[0, 2]])
    assert (out[[1, 3, 4]] == 7).all()


@pytest.mark.parametrize("limit", [2.0, None])
@pytest.mark.parametrize("swizzle", [True, False])
@pytest.mark.parametrize("scales", ["f32", "power", "packed"])
def test_groups_of_swiglu(device: str, limit: float | None, swizzle: bool, scales: str) -> None:
    x = torch.cat([GATES.unflatten(-1, (-1, 8)), VALUES.unflatten(-1, (-1, 8))], -1).flatten(-2) if swizzle else X
    y, is_power = swiglu(GATES, VALUES, limit or torch.inf, 1.0, 0.0), scales != "f32"
    codes, found = torch.empty(ROWS, SIZE, dtype=FP8, device=device), torch.empty(ROWS, SIZE // 32, device=device)
    if scales == "packed":
        found = torch.empty(2, 8, dtype=torch.int32, device=device).t()[:ROWS]
    sglang_kernels.silu_and_mul_contig_post_quant(
        x.to(device), codes, found, 32, is_power, scales == "packed", limit, swizzle
    )
    if scales == "packed":
        found = torch.exp2(found.cpu().contiguous().view(torch.uint8).float() - 127)
    torch.testing.assert_close(found.cpu(), group_scales(y, 32, is_power), rtol=0 if is_power else 1e-6, atol=0)
    assert_encoded(codes, found, y)


def test_scales_and_their_layout_go_together() -> None:
    codes, scales = torch.empty(ROWS, SIZE, dtype=FP8), torch.empty(ROWS, SIZE // 32)
    with pytest.raises(ValueError, match=r"^transposed: is True, but output_scale is torch\.float32"):
        sglang_kernels.silu_and_mul_contig_post_quant(X, codes, scales, 32, True, transposed=True)
    with pytest.raises(ValueError, match="scale_ue8m0: is False, but transposed scales are exponents"):
        sglang_kernels.silu_and_mul_contig_post_quant(X, codes, scales.int(), 32, transposed=True)


def test_unrounded_swiglu_in_mxfp8(device: str) -> None:
    codes, scales = sglang_kernels.swiglu_oai_mxfp8_quant(X.view(1, ROWS, -1).to(device), 1.702, 1.0, 7.0)
    y = swiglu(GATES, VALUES, 7.0, 1.702, 1.0)
    powers = group_scales(y, 32, is_power=True)
    assert same(scales, exponents(powers).unsqueeze(0))
    assert codes.shape == (1, ROWS, SIZE)
    assert_encoded(codes[0], powers, y)


def test_swiglu_rounded_at_each_step_in_mxfp8(device: str) -> None:
    assert sglang_kernels.can_use_silu_mul_mxfp8(X)
    codes, scales = sglang_kernels.silu_mul_mxfp8(X.to(device))
    y = torch.nn.functional.silu(GATES.float()).bfloat16() * VALUES
    powers = group_scales(y, 32, is_power=True)
    assert same(codes, group_codes(y, powers))
    assert same(scales, swizzled(exponents(powers)))


def test_rounded_swiglu_in_mxfp8_with_scales_in_two_layouts(device: str) -> None:
    codes, scales = sglang_kernels.swiglu_oai_mxfp8(X.to(device), 1.702, 7.0)
    y = swiglu(GATES, VALUES, 7.0, 1.702, 1.0).bfloat16()
    powers = group_scales(y, 32, is_power=True)
    assert same(codes, group_codes(y, powers))
    assert same(scales, swizzled(exponents(powers)))
    again, packed = sglang_kernels.swiglu_oai_mxfp8_deepgemm(X.to(device), 1.702, 7.0)
    assert same(again, codes)
    assert (packed.shape, packed.stride(), packed.dtype) == ((ROWS, 2), (1, 8), torch.int32)
    assert same(packed.contiguous().view(torch.uint8), exponents(powers))


def test_what_mxfp8_lacks_is_refused() -> None:
    assert not sglang_kernels.can_use_silu_mul_mxfp8(X[:, :96])
    with pytest.raises(ValueError, match=r"^hidden: is torch\.bfloat16 \(5, 96\); expected \(rows, 2 \* n\)"):
        sglang_kernels.silu_mul_mxfp8(X[:, :96])
    with pytest.raises(ValueError, match="with n divisible by 128"):
        sglang_kernels.swiglu_oai_mxfp8_deepgemm(X[:, :64], 1.702, 7.0)


def test_rows_of_swiglu_by_a_scale(device: str) -> None:
    codes, count = torch.zeros(ROWS, SIZE, dtype=FP8, device=device), torch.tensor([1, 3], device=device).int()
    scale = torch.tensor([0.0625], device=device)
    sglang_kernels.silu_mul_static_tensorwise_quant_for_cutlass_moe(X.to(device), codes, scale, count[-1:], ROWS, SIZE)
    y = swiglu(GATES, VALUES, torch.inf, 1.0, 0.0)[:3]
    off = codes[:3].cpu().float() - fp8_codes(y, scale.cpu()).float()
    assert (off != 0).float().mean() < 0.01  # ties between codes
    assert_encoded(codes[:3], torch.full((3, 1), 0.0625), y.clamp(-28, 28))
    assert not codes[3:].view(torch.uint8).any()
    with pytest.raises(ValueError, match="intermediate_size: is 128, but the input has 512 columns"):
        sglang_kernels.silu_mul_static_tensorwise_quant_for_cutlass_moe(X, codes, scale, count[-1:], ROWS, 128)
