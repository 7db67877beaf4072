"""jitnorm.compat.flashinfer: FlashInfer's names, and the arguments that FlashInfer tolerates."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

import jitnorm
from jitnorm.compat import flashinfer

ROWS, SIZE = 6, 256
FP8 = torch.float8_e4m3fn
X = torch.randn(ROWS, SIZE, generator=torch.Generator().manual_seed(1)).half()
RESIDUAL = torch.randn(ROWS, SIZE, generator=torch.Generator().manual_seed(2)).half()
WEIGHT, BIAS = torch.linspace(0.5, 1.5, SIZE), torch.linspace(-1, 1, SIZE)
GATED = torch.cat([X, RESIDUAL], -1)
SCALES = (0.5, torch.tensor(0.5), torch.tensor([0.5]).bfloat16(), torch.tensor([0.5], dtype=torch.float64))


def same(found: torch.Tensor, expected: torch.Tensor) -> bool:
    return found.shape == expected.shape and found.view(torch.uint8).equal(expected.view(torch.uint8))


def same_all(found: tuple[torch.Tensor, ...], expected: tuple[torch.Tensor, ...]) -> bool:
    return all(map(same, found, expected))


@pytest.mark.parametrize("enable_pdl", [None, True, False])
def test_pdl_is_a_hint(enable_pdl: bool | None) -> None:
    weight = WEIGHT.half()
    assert same(flashinfer.rmsnorm(X, weight, enable_pdl=enable_pdl), jitnorm.rmsnorm(X, weight))
    assert same(flashinfer.gemma_rmsnorm(X, weight, enable_pdl=enable_pdl), jitnorm.gemma_rmsnorm(X, weight))
    assert same(flashinfer.silu_and_mul(GATED, enable_pdl=enable_pdl), jitnorm.silu_and_mul(GATED))
    assert same_all(flashinfer.mxfp8_quantize(X, enable_pdl=enable_pdl), jitnorm.mxfp8_quantize(X))
    for ours, theirs in (
        (flashinfer.fused_add_rmsnorm, jitnorm.fused_add_rmsnorm),
        (flashinfer.gemma_fused_add_rmsnorm, jitnorm.gemma_fused_add_rmsnorm),
    ):
        found, expected = (X.clone(), RESIDUAL.clone()), (X.clone(), RESIDUAL.clone())
        assert ours(*found, weight, enable_pdl=enable_pdl) is None
        theirs(*expected, weight)
        assert same_all(found, expected)


@pytest.mark.parametrize("scale", SCALES, ids=["number", "without dimensions", "bfloat16", "float64"])
def test_a_scale_may_be_a_number_or_of_any_dtype(scale: Any) -> None:
    weight, given = WEIGHT.half(), torch.tensor([0.5])
    out, expected = torch.empty_like(X, dtype=FP8), torch.empty_like(X, dtype=FP8)
    flashinfer.rmsnorm_quant(out, X, weight, scale)
    jitnorm.rmsnorm_quant(expected, X, weight, given)
    assert same(out, expected)
    residual, total = RESIDUAL.clone(), RESIDUAL.clone()
    flashinfer.fused_add_rmsnorm_quant(out, X, residual, weight, scale)
    jitnorm.fused_add_rmsnorm_quant(expected, X, total, weight, given)
    assert same_all((out, residual), (expected, total))
    assert same_all(flashinfer.fp4_quantize(X, scale), jitnorm.fp4_quantize(X, given))
    assert same_all(flashinfer.nvfp4_quantize(X, scale), jitnorm.nvfp4_quantize(X, given))
    assert same_all(
        flashinfer.rmsnorm_fp4quant(X, weight, global_scale=scale),
        jitnorm.rmsnorm_fp4quant(X, weight, global_scale=given),
    )
    first, second = RESIDUAL.clone(), RESIDUAL.clone()
    assert same_all(
        (*flashinfer.add_rmsnorm_fp4quant(X, first, weight, global_scale=scale), first),
        (*jitnorm.add_rmsnorm_fp4quant(X, second, weight, global_scale=given), second),
    )
    with pytest.raises(TypeError, match=r"^residual: is None"):
        flashinfer.add_rmsnorm_fp4quant(X, None, weight, global_scale=scale)  # type: ignore[arg-type]
    assert same_all(
        flashinfer.silu_and_mul_nvfp4_quantize(GATED, scale),
        jitnorm.silu_and_mul_nvfp4_quantize(GATED, given, rounding="output"),
    )


def test_scales_in_ue8m0_ignore_a_global_scale() -> None:
    given, weight = torch.tensor([0.5]), WEIGHT.half()
    found = flashinfer.fp4_quantize(X, given, 32, sf_use_ue8m0=True)
    assert same_all(found, jitnorm.fp4_quantize(X, None, 32, True))
    found = flashinfer.rmsnorm_fp4quant(X, weight, global_scale=given, block_size=32)
    assert same_all(found, jitnorm.rmsnorm_fp4quant(X, weight, block_size=32))
    residual, total = RESIDUAL.clone(), RESIDUAL.clone()
    found = flashinfer.add_rmsnorm_fp4quant(X, residual, weight, global_scale=given, block_size=32)
    assert same_all(found, jitnorm.add_rmsnorm_fp4quant(X, total, weight, block_size=32))
    assert same(residual, total)


def test_layer_normalization_is_rounded_before_it_is_encoded() -> None:
    assert same(flashinfer.layernorm(X, WEIGHT, BIAS), jitnorm.layernorm(X, WEIGHT, BIAS))
    out = torch.empty_like(X, dtype=FP8)
    assert flashinfer.layernorm_quant(out, X, WEIGHT, BIAS, 0.5) is None
    assert same(out, (jitnorm.layernorm(X, WEIGHT, BIAS).float() / 0.5).clamp(-448, 448).to(FP8))


def test_the_norm_is_rounded_before_it_is_encoded_in_groups() -> None:
    weight, residual = WEIGHT.half(), RESIDUAL.clone()
    out, scales, normalized = torch.empty_like(X, dtype=FP8), torch.empty(SIZE // 128, 8), torch.empty_like(X)
    flashinfer.fused_add_rmsnorm_fp8_block_quant(out, scales, normalized, X, residual, weight)
    q = jitnorm.quantize(normalized, spec=jitnorm.FP8_GROUP.with_layout("column4"))
    assert same_all((out, scales), (q.data, q.scale))


def test_the_dtype_of_the_output_says_how_the_silu_of_a_norm_is_encoded() -> None:
    x, weight = X.bfloat16(), WEIGHT.bfloat16()
    y = flashinfer.fused_rmsnorm_silu(x, weight)
    assert same(y, jitnorm.rmsnorm_silu(x, weight))
    out = torch.empty_like(x, dtype=FP8)
    assert flashinfer.fused_rmsnorm_silu(x, weight, out=out) is out
    silu = torch.nn.functional.silu(torch.nn.functional.rms_norm(x.float(), (SIZE,), weight.float(), 1e-6))
    torch.testing.assert_close(out.float(), silu.to(FP8).float(), rtol=0.125, atol=2**-9)
    codes = torch.empty(*x.shape[:-1], SIZE // 2, dtype=torch.uint8)
    found, scales = flashinfer.fused_rmsnorm_silu(x, weight, out=codes)
    q = jitnorm.norm_quantize(x, weight, spec=jitnorm.NVFP4, activation="silu")
    assert found is codes
    assert same_all((codes, scales), (q.data, q.scale))


def test_a_column_major_input_stays_so() -> None:
    codes, scales = flashinfer.fp4_quantize(X.t().contiguous().t().contiguous(), torch.ones(1))
    columns = flashinfer.fp4_quantize(X.t(), torch.ones(1))
    assert same_all((columns[0].t(), columns[1].t()), (codes, scales))


def test_a_scale_for_each_group() -> None:
    codes, scales = flashinfer.per_token_group_quant_8bit(X, 64)
    assert same(scales, X.view(ROWS, -1, 64).float().abs().amax(-1) / 448)
    others = flashinfer.per_token_group_quant_8bit(X, 64, column_major_scales=True, scale_tma_aligned=True)
    assert others[1].stride() == (1, 8)
    assert same_all((others[0], others[1].contiguous()), (codes, scales))
    assert flashinfer.per_token_group_quant_8bit(X, 64, dst_dtype=torch.int8)[0].dtype == torch.int8


def test_global_scales_of_nvfp4() -> None:
    expected = 448 * 6 / X.float().abs().max().view(1)
    assert same(flashinfer.make_nvfp4_global_scale(X, False), expected)
    assert same(flashinfer.make_nvfp4_global_scale(X, False, 3.0), torch.tensor([3.0]))
    assert same(flashinfer.make_nvfp4_global_scale(X, True), torch.tensor([1 / 2688]))
    largest = torch.finfo(torch.float32).max
    assert flashinfer.make_nvfp4_global_scale(torch.zeros(2, 16), False).item() == largest


def test_mxfp4_decodes_on_the_host() -> None:
    q = jitnorm.quantize(X, spec=jitnorm.MXFP4)
    assert same(flashinfer.mxfp4_dequantize_host(q.data, q.scale), q.dequantize(dtype="float32"))


def test_traced_norms_find_their_op() -> None:
    def norm(out: torch.Tensor) -> torch.Tensor:
        flashinfer.rmsnorm_quant(out, X, WEIGHT, torch.ones(1))
        return out

    given = X.to(torch.float8_e4m3fn)
    assert same(torch.compile(norm, fullgraph=True, backend="aot_eager")(given.clone()), norm(given))


def test_fp4_is_decoded_to_float32() -> None:
    codes, scales = flashinfer.mxfp4_quantize(X)
    compiled = torch.compile(flashinfer.mxfp4_dequantize, fullgraph=True, backend="aot_eager")
    for decode in (flashinfer.mxfp4_dequantize, compiled):
        assert same(decode(codes, scales), jitnorm.mxfp4_dequantize(codes, scales))
    codes, scales = flashinfer.nvfp4_quantize(X, 2.0)
    for factor in (None, torch.tensor([0.5])):
        found = flashinfer.e2m1_and_ufp8sf_scale_to_float(codes, scales, factor)
        assert same(found, jitnorm.e2m1_and_ufp8sf_scale_to_float(codes, scales, factor))
    # Scales in UE8M0 have no global one.
    found = flashinfer.e2m1_and_ufp8sf_scale_to_float(codes, scales, torch.ones(3), ufp8_type=0)
    assert same(found, jitnorm.e2m1_and_ufp8sf_scale_to_float(codes, scales, ufp8_type=0))
    with pytest.raises(TypeError, match="ufp8_scale_tensor: is None"):
        flashinfer.e2m1_and_ufp8sf_scale_to_float(codes, None)
    with pytest.raises(TypeError, match=r"global_scale_tensor: .*grad"):
        flashinfer.e2m1_and_ufp8sf_scale_to_float(codes, scales, torch.ones(1, requires_grad=True))


def test_rows_are_those_of_the_shuffle() -> None:
    weight = torch.randn(64, 32).half()
    rows = flashinfer.get_shuffle_matrix_a_row_indices(weight, 128)
    assert rows.dtype == torch.int64
    assert same(weight[rows], flashinfer.shuffle_matrix_a(weight, 128))
    gated = flashinfer.reorder_rows_for_gated_act_gemm(weight)
    assert same(gated[0::2].contiguous(), weight[:32])
    assert same(gated[1::2].contiguous(), weight[32:])
    with pytest.raises(ValueError, match=r"^x: has 63 rows; allowed are even numbers"):
        flashinfer.reorder_rows_for_gated_act_gemm(weight[1:])


def test_others_are_jitnorms() -> None:
    for name in flashinfer.quantization.__all__:
        assert getattr(flashinfer, name) is getattr(flashinfer.quantization, name)
    batch = torch.stack([X, RESIDUAL])
    mask, ones = torch.tensor([3, 2], dtype=torch.int32), torch.ones(2)
    assert same_all(flashinfer.nvfp4_batched_quantize(batch, 1.0), jitnorm.nvfp4_batched_quantize(batch, torch.ones(1)))
    gated = torch.stack([GATED, GATED])
    found = flashinfer.silu_and_mul_scaled_nvfp4_experts_quantize(gated, mask, ones)
    expected = jitnorm.scaled_fp4_grouped_quantize(jitnorm.silu_and_mul(gated), mask, ones)
    assert same(found[0].permute(2, 0, 1)[0, :3].contiguous(), expected[0].permute(2, 0, 1)[0, :3].contiguous())
    assert same(flashinfer.gelu_and_mul(GATED), jitnorm.gelu_and_mul(GATED))
    assert same(flashinfer.gelu_tanh_and_mul(GATED), jitnorm.gelu_tanh_and_mul(GATED))
    assert same_all(flashinfer.mxfp4_quantize(X), jitnorm.mxfp4_quantize(X))


@pytest.mark.parametrize("layout", [0, 2])
def test_nvfp4_of_the_rows_that_a_map_has_the_numbers_of(layout: int) -> None:
    x = torch.randn(6, 64, generator=torch.Generator().manual_seed(3)).bfloat16()
    numbers = torch.tensor([4, -1, 0, 3, 1 << 30, -1], dtype=torch.int32)
    base = 1 / (448 * 6)
    codes, scales, row_scales = flashinfer.nvfp4_quantize(
        x, base, layout, per_token_activation=True, expanded_idx_to_permuted_idx=numbers
    )
    wanted = flashinfer.nvfp4_quantize(x, base, layout, per_token_activation=True)
    kept = [0, 3, 4]
    assert torch.equal(codes[kept], wanted[0][kept])
    assert torch.equal(row_scales[kept], wanted[2][kept])
    if layout == 2:
        assert torch.equal(scales[kept], wanted[1][kept])
        assert not scales[[1, 2, 5]].any()
    with pytest.raises(ValueError, match="expanded_idx_to_permuted_idx: is given, which needs per_token"):
        flashinfer.nvfp4_quantize(x, torch.ones(1), expanded_idx_to_permuted_idx=numbers)


def test_streams_behind_a_layer_are_four() -> None:
    generator = torch.Generator().manual_seed(4)
    x, residual = (torch.randn(*shape, generator=generator).bfloat16() for shape in ((2, 3, 64), (2, 3, 4, 64)))
    post, comb = (torch.randn(*shape, generator=generator) for shape in ((2, 3, 4, 1), (2, 3, 4, 4)))
    found = flashinfer.mhc_post(x, residual, post, comb)
    exact = x[..., None, :].double() * post + torch.einsum("...ij,...ih->...jh", comb.double(), residual.double())
    assert found.shape == residual.shape
    assert torch.allclose(found.double(), exact, rtol=2**-8, atol=1e-3)
    assert torch.equal(found, flashinfer.mhc_post(x, residual, post[..., 0], comb))
    with pytest.raises(ValueError, match=r"residual: shape is \(..., 3, 64\); expected \(..., 4, hidden_size\)"):
        flashinfer.mhc_post(x, residual[:, :, :3], post, comb)


def test_streams_before_a_layer_are_mixed_by_factors_found_from_projections() -> None:
    """There is one projection, or partial sums; the sum of squares is given or computed."""
    generator = torch.Generator().manual_seed(5)
    residual = torch.randn(2, 3, 4, 64, generator=generator).bfloat16()
    parts = torch.randn(4, 2, 3, 24, generator=generator)
    scale, base = torch.randn(3, generator=generator), torch.randn(24, generator=generator)
    squares = residual.double().square().sum((-1, -2)).float()
    found = flashinfer.mhc_pre_big_fuse(
        parts, squares / 4 * torch.ones(4, 1, 1), residual, scale, base, 256, num_splits=4
    )
    assert [each.shape for each in found] == [(2, 3, 4, 1), (2, 3, 4, 4), (2, 3, 64)]
    whole = parts.sum(0)
    for others in (
        flashinfer.mhc_pre_big_fuse(whole, squares, residual, scale, base, 256),
        flashinfer.mhc_pre_big_fuse_with_prenorm(whole, residual, scale, base),
        flashinfer.mhc_pre_big_fuse_with_prenorm(whole[None], residual, scale, base),
    ):
        for each, other in zip(found, others, strict=True):
            assert torch.allclose(each.float(), other.float(), rtol=2**-7, atol=1e-5)
    with pytest.raises(ValueError, match="num_splits: is 3; allowed are 1, 2, 4, 8, 16"):
        flashinfer.mhc_pre_big_fuse(whole, squares, residual, scale, base, 256, num_splits=3)
    with pytest.raises(ValueError, match=r"dot_mix: shape is \(2, 3, 24\); expected \(2, 2, 3, 24\)"):
        flashinfer.mhc_pre_big_fuse(whole, squares, residual, scale, base, 256, num_splits=2)
    with pytest.raises(ValueError, match="rms_eps: is 0; it must be strictly positive"):
        flashinfer.mhc_pre_big_fuse_with_prenorm(whole, residual, scale, base, 0)


@pytest.mark.parametrize("encoding", ["", "nvfp4", "mxfp8"])
def test_layer_norms_of_diffusion_transformers_are_gated_and_modulated(encoding: str) -> None:
    """Inputs are views of one tensor; codes are packed, and each matrix has separate scales."""
    generator = torch.Generator().manual_seed(6)
    x, residual, *of_token = torch.randn(5, 2, 3, 192, generator=generator).bfloat16()
    gate, scale, shift = torch.stack(of_token, 2).chunk(3, dim=2)
    bias = torch.randn(1, 192, generator=generator)
    options: dict[str, Any] = {f"use_{encoding}": True} if encoding else {}
    if encoding == "nvfp4":
        options["global_scaling_factor"] = torch.tensor([300.0])
    if encoding:
        options["sf_out"] = torch.empty(2, 1, 3 if encoding == "nvfp4" else 2, 32, 4, 4, dtype=torch.uint8)
    call: Any = partial(
        flashinfer.fused_dit_gate_residual_layernorm_scale_shift,
        x, residual, gate.squeeze(2), scale.squeeze(2), shift.squeeze(2), gate_bias=bias, scale_bias=bias, **options,
    )  # fmt: skip
    total, norm = call()
    given = torch.empty_like(norm)
    assert call(norm_out=given)[1] is given
    assert torch.equal(given, norm)
    wanted, of_sum = jitnorm.adaptive_layernorm(
        x, *of_token[1:], residual=residual, gate=of_token[0], gate_bias=bias[0], scale_bias=bias[0],
        shift_bias=0 * bias[0],
    )  # fmt: skip
    assert torch.equal(total, of_sum)
    if not encoding:
        assert torch.equal(norm, wanted)
        gamma_beta = flashinfer.fused_dit_gate_residual_layernorm_gamma_beta(x, residual, of_token[0], bias[0], bias[0])
        assert torch.equal(gamma_beta[1], jitnorm.gated_add_layernorm(x, residual, of_token[0], bias[0], bias[0])[0])
        plain = flashinfer.fused_dit_residual_layernorm_scale_shift(x, *of_token[1:])
        assert torch.equal(plain[0], x)
        assert torch.equal(plain[1], jitnorm.adaptive_layernorm(x, *of_token[1:])[0])
        return
    spec = (jitnorm.NVFP4 if encoding == "nvfp4" else jitnorm.MXFP8).with_layout("128x4")
    q = jitnorm.quantize(wanted, spec=spec, batched=True, global_scale=options.get("global_scaling_factor"))
    assert norm.dtype == torch.int32
    assert torch.equal(norm.view(torch.uint8), q.data.view(torch.uint8))
    assert torch.equal(options["sf_out"].view(2, -1), q.scale.view(torch.uint8).view(2, -1))


def test_layer_norms_of_diffusion_transformers_refuse_two_encodings() -> None:
    x = torch.ones(1, 2, 64, dtype=torch.bfloat16)
    for options, message in (
        ({"use_nvfp4": True, "use_mxfp8": True}, "use_nvfp4, use_mxfp8: are both True"),
        ({"use_nvfp4": True}, "global_scaling_factor: is None, but NVFP4 takes one"),
        ({"norm_out": x.float()}, "norm_out: is torch.float32 of"),
    ):
        with pytest.raises(ValueError, match=message):
            flashinfer.fused_dit_residual_layernorm_scale_shift(x, x, x, **options)


def test_swiglu_is_encoded_along_rows_and_columns() -> None:
    gated = torch.randn(128, 512, generator=torch.Generator().manual_seed(4)).bfloat16()
    activated = jitnorm.silu_and_mul(gated)
    spec = jitnorm.MXFP8.with_layout("128x4")
    rows, columns = jitnorm.quantize(activated, spec=spec), jitnorm.quantize(activated.T.contiguous(), spec=spec)
    found = flashinfer.silu_and_mul_mxfp8_quantize(gated, colwise=True)
    assert torch.equal(found[0].view(torch.uint8), rows.data.view(torch.uint8))
    assert torch.equal(found[1].view(torch.uint8), columns.data.view(torch.uint8).T)
    assert found[1].stride() == (1, 128)
    assert torch.equal(found[2].view(torch.uint8).flatten(), rows.scale.view(torch.uint8).flatten())
    assert torch.equal(found[3].view(torch.uint8), columns.scale.view(torch.uint8).flatten())
    alone = flashinfer.silu_and_mul_mxfp8_quantize(gated)
    assert [each.numel() for each in alone] == [128 * 256, 0, 128 * 8, 0]
    for wrong, message in ((gated[:100], "M and K multiples of 128"), (gated, "both are False")):
        with pytest.raises(ValueError, match=message):
            flashinfer.silu_and_mul_mxfp8_quantize(wrong, rowwise=len(wrong) == 100)


def test_sigmoid_gates_multiply_the_norm_in_place() -> None:
    x, gate = X.view(ROWS, 4, 64).clone(), RESIDUAL.view(ROWS, 4, 64)
    norm = x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + 1e-5)
    assert flashinfer.supports_rmsnorm_sigmoid_gate(x.dtype, 64)
    assert flashinfer.rmsnorm_sigmoid_gate(x, gate) is None
    torch.testing.assert_close(x.float(), norm * gate.float().sigmoid(), atol=1e-6, rtol=2**-10)
