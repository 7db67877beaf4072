"""jitnorm.compat.sglang: the names of sgl_kernel and of SGLang's quantization."""

from __future__ import annotations

import pytest
import torch
from torch_codes import group_codes, group_scales

import jitnorm
from jitnorm.compat import sglang

ROWS, SIZE = 6, 256
FP8 = torch.float8_e4m3fn
X = torch.randn(ROWS, SIZE, generator=torch.Generator().manual_seed(1)).bfloat16()
GATED = torch.cat([X, X.flip(0)], -1)


def same(found: torch.Tensor, expected: torch.Tensor) -> bool:
    parts = [tensor.contiguous().view(torch.uint8) for tensor in (found, expected)]
    return found.shape == expected.shape and torch.equal(*parts)


def codes_of(y: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    return (y.float() * (1 / scales)).clamp(-448, 448).to(FP8)


def test_norms_and_activations_are_jitnorms() -> None:
    weight, out = torch.ones(SIZE).bfloat16(), torch.empty_like(X)
    assert sglang.rmsnorm(X, weight, out=out) is out
    assert same(out, jitnorm.rmsnorm(X, weight))
    for name in ("silu_and_mul", "gelu_and_mul", "gelu_tanh_and_mul"):
        assert getattr(sglang, name)(GATED, out) is out
        assert same(out, getattr(jitnorm, name)(GATED))


@pytest.mark.parametrize("scale", [1.0, 1.25])
@pytest.mark.parametrize("factor", [1.0, 4.0])
def test_queries_and_keys_are_turned_by_angles_of_rope_or_yarn(factor: float, scale: float) -> None:
    """The expected angles follow SGLang's definition, in float64."""
    qkv, weight, positions = GATED[:4, :320].clone(), torch.ones(64).bfloat16(), torch.tensor([0, 1, 70, 3]).int()
    low, high, base = 3.0, 11.0, 10000.0
    pairs = torch.arange(16, dtype=torch.float64)
    frequencies = base ** (-pairs / 16)
    ramp = ((pairs - low) / (high - low)).clamp(0, 1)
    if factor != 1:
        frequencies = frequencies / factor * ramp + frequencies * (1 - ramp)
    turns = positions[:, None] * frequencies
    table, expected = (torch.cat([turns.cos(), turns.sin()], -1) * scale).float(), qkv.clone()
    q, k, _ = expected.view(4, 5, 64).split([2, 1, 2], dim=1)
    jitnorm.qk_rmsnorm_rope(q, k, weight, weight, table, torch.arange(4), 1e-6, q_out=q, k_out=k)
    sglang.fused_qk_norm_rope(
        qkv, 2, 1, 2, 64, 1e-6, weight, weight, base, True, positions, factor, low, high, scale, 32
    )  # fmt: skip
    torch.testing.assert_close(qkv, expected, rtol=2**-7, atol=1e-4)


def test_positions_may_have_any_shape_and_strides() -> None:
    weight, positions = torch.ones(64).bfloat16(), torch.tensor([[3, 1, 4], [1, 5, 9]])
    columns = torch.stack([positions.view(-1), positions.view(-1)], -1)
    made = []
    for given in (positions.view(-1), positions, positions.t().contiguous().t(), columns[:, 0]) * 2:
        made.append(GATED[:, :320].clone())
        options = 1e4, True, given, 1.0, 1.0, 1.0, 1.0
        sglang.fused_qk_norm_rope(made[-1], 2, 1, 2, 64, 1e-6, weight, weight, *options)
    assert all(torch.equal(each, made[0]) for each in made[1:])


@pytest.mark.parametrize("is_neox", [True, False])
@pytest.mark.parametrize("has_keys", [True, False])
def test_queries_and_keys_are_turned_in_place(device: str, is_neox: bool, has_keys: bool) -> None:
    """The first 32 elements of heads of 64 are complex numbers, in halves or as neighbours."""
    angles = torch.rand(10, 16, generator=torch.Generator().manual_seed(2)) * 6
    positions, query = torch.tensor([9, 0, 3, 3, 1, 2]), X.clone()
    table, q = torch.cat([angles.cos(), angles.sin()], -1).to(device), query.to(device)
    key = X[:, :64].flip(0).to(device) if has_keys else None
    sglang.rotary_embedding(positions.to(device), q, key, 64, table, is_neox)
    for found, given in ((q, X), (key, X[:, :64].flip(0))):
        if found is not None:
            heads = given.float().view(ROWS, -1, 64)
            pairs = heads[..., :32].unflatten(-1, (2, 16) if is_neox else (16, 2))
            pairs = pairs.transpose(-1, -2) if is_neox else pairs
            factor = torch.polar(torch.ones_like(angles), angles)[positions][:, None]
            turned = torch.view_as_real(torch.view_as_complex(pairs.contiguous()) * factor)
            turned = turned.transpose(-1, -2) if is_neox else turned
            expected = torch.cat([turned.flatten(-2), heads[..., 32:]], -1).view(given.shape)
            torch.testing.assert_close(found.cpu().float(), expected, rtol=2**-8, atol=2**-8)


def test_fp8_with_a_scale_for_each_row_or_one() -> None:
    codes, scales = torch.empty_like(X, dtype=FP8), torch.empty(ROWS, 1)
    sglang.sgl_per_token_quant_fp8(X, codes, scales)
    assert same(scales, X.float().abs().amax(-1, keepdim=True) / 448)
    assert same(codes, codes_of(X, scales))
    found = sglang.sglang_per_token_quant_fp8(X)
    assert same(found[0], codes)
    assert same(found[1], scales)
    scale = torch.empty(1)
    sglang.sgl_per_tensor_quant_fp8(X, codes, scale)
    assert same(scale, (X.float().abs().max() / 448).view(1))
    assert same(codes, codes_of(X, scale))
    sglang.per_tensor_quant_fp8(X, codes, torch.tensor([0.5]), is_static=True)
    assert same(codes, codes_of(X, torch.tensor([0.5])))


@pytest.mark.parametrize("is_ue8m0", [False, True])
def test_groups_with_and_without_swiglu(is_ue8m0: bool) -> None:
    codes, scales = torch.empty_like(X, dtype=FP8), torch.empty(ROWS, SIZE // 64)
    sglang.sgl_per_token_group_quant_8bit(X, codes, scales, 64, 1e-10, -448.0, 448.0, is_ue8m0)
    expected = X.view(ROWS, -1, 64).float().abs().amax(-1) / 448
    assert same(scales, torch.exp2(torch.ceil(torch.log2(expected))) if is_ue8m0 else expected)
    assert same(codes.view(ROWS, -1, 64), codes_of(X.view(ROWS, -1, 64), scales[..., None]))
    found = sglang.sglang_per_token_group_quant_fp8(X, 64, scale_ue8m0=is_ue8m0)
    assert same(found[0], codes)
    assert same(found[1], scales)
    sglang.sgl_per_token_group_quant_8bit(GATED, codes, scales, 64, 1e-10, -448.0, 448.0, is_ue8m0, True)
    y = torch.nn.functional.silu(X.float()).bfloat16() * X.flip(0)
    assert same(scales, group_scales(y, 64, is_ue8m0))
    assert same(codes, group_codes(y, scales))
    again, others = torch.empty_like(codes), torch.empty_like(scales)
    made = sglang.sglang_per_token_group_quant_fp8(
        GATED, 64, scale_ue8m0=is_ue8m0, fuse_silu_and_mul=True, output_q=again, output_s=others
    )
    assert made[0] is again
    assert made[1] is others
    assert same(again, codes)
    assert same(others, scales)


@pytest.mark.parametrize(("is_column", "is_aligned"), [(False, False), (True, False), (True, True)])
def test_allocated_groups_of_swiglu_are_laid_out_as_asked(is_column: bool, is_aligned: bool) -> None:
    codes, scales = sglang.sglang_per_token_group_quant_fp8(
        GATED, 64, column_major_scales=is_column, scale_tma_aligned=is_aligned, fuse_silu_and_mul=True
    )
    y = torch.nn.functional.silu(X.float()).bfloat16() * X.flip(0)
    assert scales.stride() == (1, 8 if is_aligned else ROWS) if is_column else scales.is_contiguous()
    assert same(scales, group_scales(y, 64))
    assert same(codes, group_codes(y, scales))


def test_powers_of_two_of_zeros_have_the_least_amax() -> None:
    x, least = torch.zeros(2, 256), 2.0**-42  # the power above 1e-10 / 448
    codes, scales = torch.empty(2, 256, dtype=FP8), torch.empty(2, 4)
    sglang.sgl_per_token_group_quant_8bit(x, codes, scales, 64, 1e-10, -448.0, 448.0, scale_ue8m0=True)
    assert (scales == least).all()
    assert (sglang.sglang_per_token_group_quant_fp8(x, 64, scale_ue8m0=True)[1] == least).all()
    codes, scales, mask = torch.empty(1, 2, 128, dtype=FP8), torch.empty(1, 2, 2), torch.tensor([2]).int()
    sglang.silu_and_mul_masked_post_quant_fwd(x[None], codes, scales, 64, mask, True)
    assert (scales == least).all()


def test_rows_past_the_mask_are_left_alone() -> None:
    x, mask = torch.stack([X, X]), torch.tensor([2, 5], dtype=torch.int32)
    codes, scales = torch.zeros(x.shape, dtype=FP8), torch.zeros(2, ROWS, 2)
    sglang.sgl_per_token_group_quant_8bit(x, codes, scales, 128, 1e-10, -448.0, 448.0, masked_m=mask)
    whole = sglang.sglang_per_token_group_quant_fp8(X, 128)
    for matrix, rows in enumerate(mask.tolist()):
        assert same(codes[matrix, :rows], whole[0][:rows])
        assert same(scales[matrix, :rows], whole[1][:rows])
        assert not codes[matrix, rows:].view(torch.uint8).any()


@pytest.mark.parametrize("alpha", [0.0, 1.25, 1.702])
def test_gates_of_the_rows_that_a_mask_counts(alpha: float) -> None:
    x = torch.randn(2, 8, 1024, generator=torch.Generator().manual_seed(6)).bfloat16()
    mask, gates = torch.tensor([3, 8], dtype=torch.int32), {"gemm1_alpha": alpha, "gemm1_clamp_limit": 7.0}
    codes, scales, packed = torch.zeros(2, 8, 512, dtype=FP8), torch.zeros(2, 8, 4), torch.zeros(2, 1, 8).int()
    packed_codes = torch.zeros_like(codes)
    sglang.silu_and_mul_masked_post_quant_fwd(x, codes, scales, 128, mask, True, **gates)
    sglang.silu_and_mul_masked_post_quant_fwd(x, packed_codes, packed, 128, mask, True, **gates, topk=2)
    assert same(codes, packed_codes)
    for matrix, rows in enumerate(mask.tolist()):
        spec = jitnorm.QuantSpec("e4m3", 128, "f32_ue8m0", scale_floor=2.0**-42)
        options = {"activation": f"swiglu:7:{alpha}:1"} if alpha else {"rounding": "hf"}
        whole = jitnorm.silu_and_mul_quantize(x[matrix], spec=spec, **options)
        assert same(codes[matrix, :rows], whole.data[:rows])
        assert same(scales[matrix, :rows], whole.scale[:rows])
        exponents = packed[matrix, 0, :rows].view(torch.uint8).view(rows, 4)
        assert torch.equal(torch.exp2(exponents.float() - 127), whole.scale[:rows])
        assert not codes[matrix, rows:].view(torch.uint8).any()
    with pytest.raises(ValueError, match=r"gemm1_clamp_limit: is None; allowed are positive numbers"):
        sglang.silu_and_mul_masked_post_quant_fwd(x, codes, scales, 128, mask, gemm1_alpha=1.5, gemm1_clamp_limit=None)


def test_gates_of_the_rows_that_a_mask_counts_by_the_scale_of_an_expert() -> None:
    x, mask = torch.stack([X, X]), torch.tensor([2, 5], dtype=torch.int32)
    scale, codes = torch.tensor([0.01, 0.02]), torch.zeros(2, ROWS, X.shape[1] // 2, dtype=FP8)
    assert sglang.silu_and_mul_masked_post_per_tensor_quant_fwd(x, codes, mask, scale) is codes
    for matrix, rows in enumerate(mask.tolist()):
        alone = jitnorm.silu_and_mul_quantize(
            X, spec=jitnorm.FP8_TENSOR, scale=scale[matrix : matrix + 1], rounding="hf"
        )
        assert same(codes[matrix, :rows], alone.data[:rows])
        assert not codes[matrix, rows:].view(torch.uint8).any()


@pytest.mark.parametrize("is_roomy", [True, False])
def test_powers_of_two_are_packed_for_deepgemm(is_roomy: bool) -> None:
    x = torch.randn(ROWS, 640, generator=torch.Generator().manual_seed(5)).bfloat16()
    flags = {"column_major_scales": True, "scale_tma_aligned": True, "scale_ue8m0": True}
    codes, scales = sglang.sglang_per_token_group_quant_fp8(x, 128, **flags)
    plain_codes, plain = sglang.sglang_per_token_group_quant_fp8(x, 128, scale_ue8m0=True)
    aligned = -(-ROWS // 4) * 4
    assert (scales.shape, scales.dtype, scales.stride()) == ((ROWS, 2), torch.int32, (1, aligned))
    exponents = scales.contiguous().view(torch.uint8)
    assert torch.equal(torch.exp2(exponents[:, :5].float() - 127), plain)
    assert not exponents[:, 5:].any()
    assert same(codes, plain_codes)
    given = torch.empty_strided((ROWS, 2), (1, aligned), dtype=torch.int32)  # memory ends with its last element
    if is_roomy:
        given = torch.full((2, aligned), 7, dtype=torch.int32).t()[:ROWS]
    codes = torch.empty_like(x, dtype=FP8)
    sglang.sgl_per_token_group_quant_8bit(x, codes, given, 128, 1e-10, -448.0, 448.0, scale_ue8m0=True)
    assert same(codes, plain_codes)
    assert torch.equal(given, scales)


def test_int8() -> None:
    codes, scales = sglang.per_token_quant_int8(X)
    assert same(scales, X.float().abs().amax(-1, keepdim=True) / 127)
    assert same(codes, (X.float() * (1 / scales)).round().to(torch.int8))
    codes, scales = sglang.per_token_group_quant_int8(X, 64)
    assert same(scales, X.view(ROWS, -1, 64).float().abs().amax(-1) / 127)


def test_the_sums_of_rows_beside_int8() -> None:
    codes, scales, sums = sglang.per_token_quant_int8(X, torch.bfloat16, cal_sum=True)
    plain_codes, plain = sglang.per_token_quant_int8(X)
    assert same(codes, plain_codes)
    assert same(scales, plain.bfloat16())
    assert same(sums, X.double().sum(-1).to(X.dtype))


def test_nvfp4_has_padded_swizzled_scales() -> None:
    codes, scales = sglang.scaled_fp4_quant(X.view(2, -1, X.shape[-1]), torch.tensor([3.0]))
    expected = jitnorm.fp4_quantize(X, torch.tensor([3.0]))
    assert same(codes, expected[0])
    assert same(scales.view(torch.uint8), expected[1])
    assert (scales.shape, scales.dtype) == ((128, X.shape[-1] // 16), FP8)


def test_what_is_not_there_is_an_error() -> None:
    codes, scales = torch.empty_like(X, dtype=FP8), torch.empty(ROWS, 2)
    with pytest.raises(ValueError, match=r"^fp8_max: is 240\.0; allowed is 448\.0"):
        sglang.sgl_per_token_group_quant_8bit(X, codes, scales, 128, 1e-10, -240.0, 240.0)
    with pytest.raises(ValueError, match=r"^scale_tma_aligned: is False, but column-major powers of two are aligned"):
        sglang.sglang_per_token_group_quant_fp8(X, 128, column_major_scales=True, scale_ue8m0=True)


def test_norms_with_gates() -> None:
    weight, gate = torch.linspace(0.5, 1.5, SIZE), X.flip(0)
    got = sglang.rms_norm_gated(x=X, weight=weight, bias=None, z=gate, is_rms_norm=True, activation="sigmoid")
    assert same(got, jitnorm.rmsnorm_gated(X, gate, weight, activation="sigmoid"))
    with pytest.raises(ValueError, match="is_rms_norm: is False"):
        sglang.rms_norm_gated(x=X, weight=weight, bias=None, z=gate)
