"""jitnorm.compat.sglang_kernels: quantization, alone and of norms, against formulas of torch."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch_codes import FP8, exponents, fp8_codes, group_codes, group_scales, same, swizzled

from jitnorm.compat import sglang_kernels

ROWS, SIZE = 6, 256
X = (torch.randn(ROWS, SIZE, generator=torch.Generator().manual_seed(0)) * 3).bfloat16()
GATED = torch.cat([X, X.flip(0)], -1)
WEIGHT = torch.linspace(0.5, 1.5, SIZE).bfloat16()


def rounded_norm(x: torch.Tensor, weight: torch.Tensor | None = WEIGHT) -> torch.Tensor:
    y = x.double() / (x.double().square().mean(-1, keepdim=True) + 1e-5).sqrt()
    return (y if weight is None else y * weight.double()).bfloat16()


def test_rows_have_scales(device: str) -> None:
    codes, scales = torch.empty_like(X, dtype=FP8, device=device), torch.empty(ROWS, device=device)
    sglang_kernels.per_token_quant_fp8(X.to(device), codes, scales)
    expected = X.float().abs().amax(-1) / 448
    assert same(scales, expected)
    assert same(codes, fp8_codes(X, expected[:, None]))


@pytest.mark.parametrize("dtype", [FP8, torch.float8_e5m2])
def test_factors_of_fp8(device: str, dtype: torch.dtype) -> None:
    x, limit = X.view(2, 3, SIZE)[..., 64:].to(device), torch.finfo(dtype).max
    out = torch.empty(2, 3, SIZE, dtype=dtype, device=device)[..., 64:]
    assert sglang_kernels.fp8_quantize(x, 512.0, out, dtype, enable_pdl=True) is out
    assert same(out, (x.cpu().float() * 512).clamp(-limit, limit).to(dtype))
    assert same(sglang_kernels.fp8_quantize(x, fp8_dtype=dtype), x.cpu().to(dtype))
    with pytest.raises(ValueError, match=r"^scale_inv: is 0\.0; allowed are positive numbers"):
        sglang_kernels.fp8_quantize(X, 0.0)


def test_a_given_scale_is_repeated_if_asked_for(device: str) -> None:
    scale = torch.tensor([0.03], device=device)
    codes, returned = sglang_kernels.static_quant_fp8(X.view(2, 3, -1).to(device), scale)
    assert same(codes, fp8_codes(X, scale.cpu()).view(2, 3, -1))
    assert returned is scale
    assert same(sglang_kernels.static_quant_fp8(X.to(device), scale, True)[1], scale.cpu().expand(ROWS, 1))
    for other in (scale.bfloat16(), scale.cpu().double()):  # of another dtype, on another device
        codes, repeated = sglang_kernels.static_quant_fp8(X.to(device), other, True)
        assert same(repeated, other.cpu().float().expand(ROWS, 1))
        assert same(codes, fp8_codes(X, other.cpu().float()))


def test_scales_of_the_tensor(device: str) -> None:
    x = X.view(2, 3, SIZE).transpose(0, 1).to(device)
    expected = (X.float().abs().max() / 448).view(1)
    found = torch.zeros(1, device=device)
    sglang_kernels.per_tensor_absmax_fp8(X.to(device), found)
    assert same(found, X.float().abs().max().view(1) * torch.tensor(1 / 448))
    codes, scale = sglang_kernels.per_tensor_quant_mla_fp8(x, found.zero_())
    assert scale is found
    assert same(scale, expected)
    assert codes.is_contiguous()
    assert same(codes, fp8_codes(x.cpu(), expected))
    with pytest.raises(ValueError, match=r"^eps: is 1\.0; allowed are numbers up to 0\.00195"):
        sglang_kernels.per_tensor_quant_mla_fp8(x, found, 1.0)


@pytest.mark.parametrize("is_column", [False, True])
@pytest.mark.parametrize("is_power", [False, True])
@pytest.mark.parametrize("mode", ["plain", "legacy", "dense"])
def test_groups_in_every_layout(device: str, is_column: bool, is_power: bool, mode: str) -> None:
    """320 columns have 10 groups, which leave room in the last packed element."""
    x, options = torch.cat([X, X[:, :64]], -1), {"scale_ue8m0": is_power, "column_major_scales": is_column}
    y = x
    if mode != "plain":
        x, options = torch.cat([x, x.flip(0)], -1), {**options, "fuse_silu_and_mul": True, "silu_and_mul_mode": mode}
        gate = torch.nn.functional.silu(y.float())
        y = (gate.bfloat16() if mode == "legacy" else gate).float() * y.flip(0).float()
        y = y.bfloat16()
    codes, scales = sglang_kernels.per_token_group_quant(x.to(device), group_size=32, **options)
    expected = group_scales(y, 32, is_power)
    assert same(codes, group_codes(y, expected))
    assert scales.stride() == ((1, 8) if is_column else (3 if is_power else 10, 1))
    if is_power:
        assert scales.dtype == torch.int32
        found = scales.cpu().contiguous().view(torch.uint8)
        assert same(found[:, :10], exponents(expected))
        assert not found[:, 10:].any()
    else:
        assert same(scales, expected)
    again, other = torch.empty_like(codes), torch.empty_like(scales)
    made = sglang_kernels.per_token_group_quant(x.to(device), again, other, 32, **options)
    assert made[0] is again
    assert made[1] is other
    assert same(again, codes.cpu())
    assert same(other, scales.cpu())


@pytest.mark.filterwarnings("ignore:Dynamo detected a call to a `functools.lru_cache`")
def test_exponents_of_any_number_of_rows_can_be_compiled() -> None:
    quantize = partial(sglang_kernels.per_token_group_quant, scale_ue8m0=True, column_major_scales=True)
    compiled = torch.compile(quantize, fullgraph=True, backend="aot_eager")
    assert ROWS % 4
    for found, expected in zip(compiled(X), quantize(X), strict=True):
        assert found.stride() == expected.stride()
        assert torch.equal(
            found.contiguous().view(-1).view(torch.uint8), expected.contiguous().view(-1).view(torch.uint8)
        )


@pytest.mark.parametrize("is_column", [False, True])
@pytest.mark.parametrize("is_power", [False, True])
def test_rows_past_the_mask_stay(device: str, is_column: bool, is_power: bool) -> None:
    x, mask = torch.stack([GATED, GATED.flip(0)]), torch.tensor([2, 5], dtype=torch.int32, device=device)
    codes = torch.zeros(2, ROWS, SIZE, dtype=FP8, device=device)
    shape = (2, 1 if is_power else 4, 8) if is_column else (2, ROWS, 1 if is_power else 4)
    scales = torch.zeros(shape, dtype=torch.int32 if is_power else torch.float32, device=device)
    scales = scales.transpose(-1, -2)[:, :ROWS] if is_column else scales
    sglang_kernels.per_token_group_quant(x.to(device), codes, scales, 64, is_power, True, mask, 4)
    for matrix, rows in enumerate([2, 5]):
        gates, values = x[matrix, :rows].chunk(2, -1)
        y = torch.nn.functional.silu(gates.float()).bfloat16() * values
        expected = group_scales(y, 64, is_power)
        assert same(codes[matrix, :rows], group_codes(y, expected))
        found = scales[matrix, :rows].cpu()
        assert (
            same(found.flatten().view(torch.uint8), exponents(expected).flatten())
            if is_power
            else same(found, expected)
        )
        assert not codes[matrix, rows:].view(torch.uint8).any()
        if not is_power or is_column:  # row-major exponents are copied
            assert not scales[matrix, rows:].any()


def test_int8_groups(device: str) -> None:
    expected = X.float().unflatten(-1, (-1, 64)).abs().amax(-1) / 127
    wanted = (X.float().unflatten(-1, (-1, 64)) * (1 / expected[..., None])).round().to(torch.int8).view(X.shape)
    for codes, scales in (
        sglang_kernels.per_token_group_quant(X.to(device), group_size=64, out_dtype=torch.int8),
        sglang_kernels.sglang_per_token_group_quant_int8(X.to(device), 64),
    ):
        assert same(scales, expected)
        assert same(codes, wanted)


@pytest.mark.parametrize("is_gated", [False, True])
def test_powers_of_two_in_float32(device: str, is_gated: bool) -> None:
    y = torch.nn.functional.silu(X.float()).bfloat16() * X.flip(0) if is_gated else X
    codes, scales = torch.empty_like(X, dtype=FP8, device=device), torch.empty(ROWS, 4, device=device)
    x = (GATED if is_gated else X).to(device)
    sglang_kernels.per_token_group_quant_8bit_v2(x, codes, scales, 64, 1e-10, -448.0, 448.0, True, is_gated)
    assert same(scales, group_scales(y, 64, is_power=True))
    assert same(codes, group_codes(y, scales.cpu()))


def test_tiny_groups_have_the_least_scale() -> None:
    x = torch.full((1, 64), 1e-30)
    scales = sglang_kernels.per_token_group_quant(x, group_size=64)[1]
    assert same(scales, torch.tensor([[1e-10]]) / 448)
    packed = sglang_kernels.per_token_group_quant(x, group_size=64, scale_ue8m0=True)[1]
    assert packed.item() == exponents(group_scales(x, 64, is_power=True)).item()


@pytest.mark.parametrize("scale_fmt", [None, "ue8m0"])
def test_groups_of_attention_have_an_amax_of_at_least_a_ten_thousandth(device: str, scale_fmt: str | None) -> None:
    x = torch.cat([X[:, :128], torch.full((ROWS, 128), 1e-6).bfloat16()], -1).view(2, 3, SIZE)
    codes, scales = sglang_kernels.act_quant(x.to(device), scale_fmt=scale_fmt)
    amax = x.float().unflatten(-1, (-1, 128)).abs().amax(-1).clamp(min=1e-4)
    expected = torch.exp2(torch.ceil(torch.log2(amax / 448))) if scale_fmt else amax / 448
    assert same(scales, expected)
    assert same(codes, group_codes(x, expected))


@pytest.mark.parametrize("rows", [5, 256])
def test_groups_with_room_for_further_rows(device: str, rows: int) -> None:
    x = torch.randn(rows, 2, SIZE, generator=torch.Generator().manual_seed(1)).bfloat16().transpose(0, 1)
    codes, scales, counts, given, padded = sglang_kernels.per_token_group_quant_mla_deep_gemm_masked_fp8(x.to(device))
    assert (codes.shape, scales.shape, given, padded) == ((2, 256, SIZE), (2, 256, 2), rows, 256)
    assert same(counts, torch.tensor([rows, rows], dtype=torch.int32))
    assert scales.stride() == (512, 1, 256)
    assert same(scales[:, :rows], group_scales(x, 128))
    assert same(codes[:, :rows], group_codes(x, group_scales(x, 128)))


def test_packed_scales_are_grouped_by_head(device: str) -> None:
    x = torch.randn(5, 2, 640, generator=torch.Generator().manual_seed(3)).bfloat16()
    codes, scales = sglang_kernels.sglang_per_token_group_quant_fp8_dsv4_wo_a(x.to(device))
    expected = group_scales(x, 128, is_power=True)
    assert same(codes, group_codes(x, expected))
    assert (scales.shape, scales.stride()) == ((5, 2, 2), (1, 16, 8))
    found = scales.cpu().contiguous().view(torch.uint8)
    assert same(found[..., :5], exponents(expected))
    assert not found[..., 5:].any()


@pytest.mark.parametrize("has_gaps", [True, False])
def test_groups_are_decoded(device: str, has_gaps: bool) -> None:
    scales = group_scales(X, 32)
    codes, given = group_codes(X, scales).to(device), scales.to(device)
    if has_gaps:
        given = torch.cat([given, given], -1)[:, :8]
    expected = (group_codes(X, scales).float().unflatten(-1, (-1, 32)) * scales[..., None]).flatten(-2).bfloat16()
    assert same(sglang_kernels.dequant_group_fp8_to_bf16(codes, given), expected)
    with pytest.raises(ValueError, match=r"^scale: shape is \(6, 7\); expected \(6, 8\)"):
        sglang_kernels.dequant_group_fp8_to_bf16(codes, given[:, :7])


@pytest.mark.parametrize("layout", ["row", "column", "gaps"])
def test_scales_of_groups_become_one(device: str, layout: str) -> None:
    x = torch.stack([X, X.flip(0) * 2])
    scales, mask = group_scales(x, 128), torch.tensor([1, 4], dtype=torch.int32, device=device)
    codes, one = group_codes(x, scales), torch.tensor([0.05])
    given = {
        "row": scales,
        "column": scales.transpose(1, 2).contiguous().transpose(1, 2),
        "gaps": torch.cat([scales, scales], -1)[..., :2],
    }[layout]
    found = torch.zeros(2, ROWS, SIZE, dtype=FP8, device=device)
    sglang_kernels.fp8_per_token_to_per_tensor_quant_triton(
        codes.to(device), given.to(device), mask, one.to(device), found, 3
    )
    values = (codes.float().unflatten(-1, (-1, 128)) * scales[..., None]).flatten(-2)
    for matrix, rows in enumerate([1, 4]):
        assert same(found[matrix, :rows], fp8_codes(values[matrix, :rows], one))
        assert not found[matrix, rows:].view(torch.uint8).any()


def test_mxfp8(device: str) -> None:
    powers = group_scales(X, 32, is_power=True)
    made = sglang_kernels.to_mxfp8(X.view(2, 3, SIZE).to(device))
    assert same(made.data, group_codes(X, powers).view(2, 3, SIZE))
    assert same(made.scale, exponents(powers).view(2, 3, -1))
    assert sglang_kernels.can_use_mxfp8_swizzled(X)
    codes, scales = sglang_kernels.mxfp8_quantize_swizzled(X.to(device))
    assert same(codes, group_codes(X, powers))
    assert same(scales, swizzled(exponents(powers)))
    assert not sglang_kernels.can_use_mxfp8_swizzled(X.t())
    with pytest.raises(ValueError, match=r"^x: is torch\.bfloat16 \(6, 40\); expected \(rows, k\)"):
        sglang_kernels.mxfp8_quantize_swizzled(X[:, :40])


def test_norms_and_their_mxfp8(device: str) -> None:
    norm, codes, scales = sglang_kernels.rmsnorm_mxfp8(X.to(device), WEIGHT.to(device), 1e-5)
    expected = rounded_norm(X)
    powers = group_scales(expected, 32, is_power=True)
    assert same(norm, expected)
    assert same(codes, group_codes(expected, powers))
    assert same(scales, swizzled(exponents(powers)))


def test_norms_and_their_fp8_with_exponents(device: str) -> None:
    (codes, scales), norm = sglang_kernels.rmsnorm_fp8_e8m0_quant(X.to(device), WEIGHT.to(device), 1e-5, 64)
    expected = rounded_norm(X)
    powers = group_scales(expected, 64, is_power=True)
    assert same(norm, expected)
    assert same(codes, group_codes(expected, powers))
    assert (scales.shape, scales.dtype) == ((ROWS, 4), torch.float8_e8m0fnu)
    assert same(scales.view(torch.uint8), exponents(powers).t().reshape(ROWS, 4))


@pytest.mark.parametrize("has_weight", [True, False])
@pytest.mark.parametrize("largest", [448.0, 256.0])
def test_norms_and_their_nvfp4(device: str, has_weight: bool, largest: float) -> None:
    """What codes mean is off by at most the distance of two, which are largest between 4 and 6."""
    weight = WEIGHT if has_weight else None
    given = None if weight is None else weight.to(device)
    codes, scales, rows, norm = sglang_kernels.fused_norm_fp4_quant(
        X.to(device), given, 1e-5, 1 / (6 * largest), want_normed=True
    )
    assert codes is not None
    assert scales is not None
    assert rows is not None
    assert norm is not None
    expected = rounded_norm(X, weight)
    assert same(norm, expected)
    torch.testing.assert_close(rows.cpu(), expected.float().abs().amax(-1) / (6 * largest))
    assert scales.view(FP8).cpu().float().amax().item() == largest
    assert_decoded(codes, scales, rows.cpu()[:, None], expected)
    nothing = sglang_kernels.fused_norm_fp4_quant(X.to(device), given, 1e-5, 1 / 2688)
    assert nothing[3] is None
    alone = sglang_kernels.fused_norm_fp4_quant(X.to(device), given, 1e-5, 1 / 2688, quantize=False, want_normed=True)
    assert alone[:3] == (None, None, None)
    assert alone[3] is not None
    assert same(alone[3], expected)
    scale = torch.tensor([3.0], device=device)
    made = sglang_kernels.fused_norm_fp4_quant_static(X.to(device), given, 1e-5, scale)
    assert_decoded(*made, 1 / torch.tensor(3.0), expected)
    with pytest.raises(ValueError, match="quantize, want_normed: both are False"):
        sglang_kernels.fused_norm_fp4_quant(X, weight, 1e-5, 1 / 2688, quantize=False)
    with pytest.raises(ValueError, match=r"^global_scale_inv: is 0\.0; allowed is 1 / \(6 \* m\)"):
        sglang_kernels.fused_norm_fp4_quant(X, weight, 1e-5, 0.0)


def assert_decoded(codes: torch.Tensor, scales: torch.Tensor, factor: torch.Tensor, y: torch.Tensor) -> None:
    assert (codes.shape, scales.shape) == ((ROWS, SIZE // 2), (ROWS, SIZE // 16))
    table = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
    nibbles = torch.stack([codes.cpu() & 15, codes.cpu() >> 4], -1).flatten(-2)
    decoded = (table[nibbles.long()].unflatten(-1, (-1, 16)) * scales.cpu().view(FP8).float()[..., None]).flatten(-2)
    amax = y.float().unflatten(-1, (-1, 16)).abs().amax(-1, keepdim=True).expand(-1, -1, 16).flatten(-2)
    assert ((decoded * factor - y.float()).abs() <= amax / 5).all()
    assert torch.nn.functional.cosine_similarity((decoded * factor).view(-1), y.float().view(-1), dim=0) > 0.99


def test_what_does_not_go_together_is_refused() -> None:
    codes, scales = torch.empty_like(X, dtype=FP8), torch.empty(ROWS, 4)
    with pytest.raises(ValueError, match=r"^scale_ue8m0: is True, but output_s is torch\.float32"):
        sglang_kernels.per_token_group_quant(X, codes, scales, 64, True)
    with pytest.raises(ValueError, match="output_q, output_s: one is given"):
        sglang_kernels.per_token_group_quant(X, codes, group_size=64)
    with pytest.raises(ValueError, match=r"^out_dtype: is torch\.int8, but output_q is torch\.float8_e4m3fn"):
        sglang_kernels.per_token_group_quant(X, codes, scales, 64, out_dtype=torch.int8)
    with pytest.raises(ValueError, match="silu_and_mul_mode: is 'fast'; allowed are legacy, dense"):
        sglang_kernels.per_token_group_quant(X, codes, scales, 64, silu_and_mul_mode="fast")
    with pytest.raises(ValueError, match=r"^eps: is 1e-06; allowed is 1e-10"):
        sglang_kernels.per_token_group_quant_8bit_v2(X, codes, scales, 64, 1e-6, -448.0, 448.0)
    with pytest.raises(ValueError, match=r"^max_8bit: is 240\.0; allowed is 448\.0"):
        sglang_kernels.per_token_group_quant_8bit_v2(X, codes, scales, 64, 1e-10, -240.0, 240.0)
