"""jitnorm.compat.vllm: separate quantization in FP8, INT8 and FP4."""

from __future__ import annotations

import pytest
import torch
from vllm_calls import (
    FP8,
    RESIDUAL,
    ROWS,
    SCALE,
    SIZE,
    X,
    fp8_codes,
    int8_codes,
    same,
)

import jitnorm
from jitnorm.compat import vllm as ops
from jitnorm.compat.vllm import deep_gemm


def test_fp8_by_a_given_scale_by_one_of_the_tensor_or_of_each_row() -> None:
    codes, scale = ops.scaled_fp8_quant(X, SCALE)
    assert scale is SCALE
    assert same(codes, fp8_codes(X, SCALE))
    codes, scale = ops.scaled_fp8_quant(X)
    assert same(scale, (X.float().abs().max() / 448).view(1))
    assert same(codes, fp8_codes(X, scale))
    codes, scale = ops.scaled_fp8_quant(X, use_per_token_if_dynamic=True)
    assert same(scale, X.float().abs().amax(-1, keepdim=True) / 448)
    assert same(codes, fp8_codes(X, scale))
    output = torch.empty_like(codes)
    assert ops.scaled_fp8_quant(X, use_per_token_if_dynamic=True, output=output)[0] is output
    assert same(output, codes)


@pytest.mark.parametrize(
    ("group", "is_flat"), [((1, -1), True), ((-1, 1), True), ((-1, 128), True), ((1, 128), False), ((2, 128), False)]
)
def test_fp8_by_scales_that_are_given_for_groups(group: tuple[int, int], is_flat: bool) -> None:
    rows, columns = (size if part == -1 else part for size, part in zip(X.shape, group, strict=True))
    scale = torch.rand(ROWS // rows, SIZE // columns, generator=torch.Generator().manual_seed(3)) + 0.01
    expected = fp8_codes(X, scale.repeat_interleave(rows, 0).repeat_interleave(columns, 1))
    forms = [scale, scale.t().contiguous().t(), *([scale.flatten()] if is_flat else [])]
    for given in forms:
        codes, returned = ops.scaled_fp8_quant(X, given, group_shape=group)
        assert returned is given
        assert same(codes, expected)
    assert same(ops.scaled_fp8_quant(X, scale)[0], expected)


def test_padding_adds_rows_that_are_not_written() -> None:
    codes, scale = ops.scaled_fp8_quant(X, num_token_padding=17, use_per_token_if_dynamic=True)
    assert (codes.shape, scale.shape) == ((17, SIZE), (17, 1))
    assert same(codes[:ROWS], ops.scaled_fp8_quant(X, use_per_token_if_dynamic=True)[0])


def test_int8_is_symmetric() -> None:
    codes, scale, azp = ops.scaled_int8_quant(X)
    assert azp is None
    assert same(scale, X.float().abs().amax(-1, keepdim=True) / 127)
    assert same(codes, int8_codes(X, scale))
    codes, scale, azp = ops.scaled_int8_quant(X, SCALE)
    assert scale is SCALE
    assert same(codes, int8_codes(X, SCALE))
    with pytest.raises(ValueError, match=r"^symmetric: is False, but INT8 is symmetric here"):
        ops.scaled_int8_quant(X, symmetric=False)


def test_nvfp4_with_each_layout_and_more_columns() -> None:
    codes, scales = ops.scaled_fp4_quant(X, torch.tensor([100.0]))
    assert (codes.shape, scales.shape, scales.dtype) == ((ROWS, SIZE // 2), (128, SIZE // 16), FP8)
    wide_codes, wide_scales = ops.scaled_fp4_quant(X, torch.tensor([100.0]), False, padded_n=SIZE + 64)
    codes, scales = ops.scaled_fp4_quant(X, torch.tensor([100.0]), False)
    assert same(wide_codes[:, : SIZE // 2], codes)
    assert same(wide_scales[:, : SIZE // 16], scales)
    assert not wide_codes[:, SIZE // 2 :].any()
    assert ops.scaled_fp4_quant(X, torch.tensor([100.0]), backend="trtllm")[1].shape == (8, SIZE // 16)
    x = torch.cat([X, RESIDUAL], -1)
    out, block_scale = torch.empty_like(codes), torch.empty(128, SIZE // 64, dtype=torch.int32)
    ops._C.silu_and_mul_nvfp4_quant(out, block_scale, x, torch.tensor([100.0]))
    expected = jitnorm.fp4_quantize(jitnorm.silu_and_mul(x), torch.tensor([100.0]))
    assert same(out, expected[0])
    assert same(block_scale.view(torch.uint8), expected[1])


@pytest.mark.parametrize("is_swizzled", [True, False])
def test_fp4_fills_outputs_of_vllm_s_shapes(is_swizzled: bool) -> None:
    scale, wide = torch.tensor(100.0), SIZE + 32
    expected = ops.scaled_fp4_quant(X, scale.view(1), is_swizzled)
    codes, scales = ops._C.scaled_fp4_quant(X, scale, is_swizzled)
    assert scales.dtype == (torch.int32 if is_swizzled else torch.uint8)
    assert same(codes, expected[0])
    assert same(scales.view(torch.float8_e4m3fn), expected[1])
    made = ops.create_fp4_output_tensors(ROWS, SIZE, X.device, is_swizzled, padded_n=wide)
    for each in made:
        each.view(torch.uint8).fill_(0x7F)
    ops._C.scaled_fp4_quant.out(X, scale, is_swizzled, output=made[0], output_scale=made[1])
    expected = ops.scaled_fp4_quant(X, scale.view(1), is_swizzled, padded_n=wide)
    assert same(made[0], expected[0])
    assert same(made[1].view(torch.float8_e4m3fn), expected[1])


def test_groups_are_packed_for_deepgemm() -> None:
    codes, scales = ops.per_token_group_quant_fp8_packed_for_deepgemm(X, 32)
    plain_codes, plain = ops.per_token_group_quant_fp8(X, 32, use_ue8m0=True)
    assert same(codes, plain_codes)
    assert torch.equal(torch.exp2(scales.contiguous().view(torch.uint8).float() - 127), plain)
    given = torch.empty_strided(scales.shape, scales.stride(), dtype=torch.int32)
    codes = torch.empty_like(codes)
    ops._C.per_token_group_fp8_quant_packed(X, codes, given, 32, 1e-10, -448.0, 448.0)
    assert same(codes, plain_codes)
    assert torch.equal(given, scales)
    memory = torch.full((scales.numel() + (scales.shape[1] - 1) * (8 - ROWS),), -1, dtype=torch.int32)
    padded = torch.full((8, SIZE), 1.0).to(FP8)
    given = memory.as_strided(scales.shape, scales.stride())
    ops._C.per_token_group_fp8_quant_packed(X, padded, given, 32, 1e-10, -448.0, 448.0)
    assert same(padded[:ROWS], plain_codes)
    assert not padded[ROWS:].view(torch.uint8).any()
    assert torch.equal(given, scales)
    assert not memory.as_strided((scales.shape[1] - 1, 8 - ROWS), (8, 1), ROWS).any()
    with pytest.raises(ValueError, match="use_ue8m0: is False, but packed"):
        ops.per_token_group_quant_fp8_packed_for_deepgemm(X, 32, use_ue8m0=False)


@pytest.mark.parametrize("rows", [1, 3, 4])
@pytest.mark.parametrize("is_aligned", [False, True])
def test_scales_of_groups_are_column_major(rows: int, is_aligned: bool) -> None:
    """Of a multiple of 4 rows, the launcher allocates them so."""
    x, length = X[:rows], 4 if is_aligned else rows
    codes, expected = ops.per_token_group_quant_fp8(x, 32, use_ue8m0=False)
    for _ in range(3):
        found, scales = ops.per_token_group_quant_fp8(x, 32, 1e-10, FP8, True, is_aligned, use_ue8m0=False)
        assert same(found, codes)
        assert torch.equal(scales, expected)
        assert scales.stride() == (1, length)


@pytest.mark.parametrize("is_ue8m0", [False, True])
def test_groups_have_an_amax_of_eps_at_least(is_ue8m0: bool) -> None:
    x = X.clone()
    x[0] = 1e-12
    codes, scales = ops.per_token_group_quant_fp8(x, 64, use_ue8m0=is_ue8m0)
    expected = x.view(ROWS, -1, 64).float().abs().amax(-1).clamp(min=1e-10) / 448
    if is_ue8m0:
        expected = torch.exp2(torch.ceil(torch.log2(expected.clamp(min=1e-10))))
    assert same(scales, expected)
    assert same(codes, fp8_codes(x.view(ROWS, -1, 64), scales[..., None]).view(ROWS, SIZE))
    output = torch.empty_like(codes), torch.empty_like(scales)
    ops._C.per_token_group_fp8_quant(x, *output, 64, 1e-10, -448.0, 448.0, is_ue8m0)
    assert same(output[0], codes)
    assert same(output[1], scales)


def test_groups_of_int8() -> None:
    codes, scales = ops.per_token_group_quant_int8(X, 64)
    assert same(scales, X.view(ROWS, -1, 64).float().abs().amax(-1) / 127)
    assert same(codes, int8_codes(X.view(ROWS, -1, 64), scales[..., None]).view(ROWS, SIZE))


@pytest.mark.parametrize(("variable", "expected"), [("1", True), ("0", False)])
def test_powers_of_two_are_deepgemm_s_default(monkeypatch: pytest.MonkeyPatch, variable: str, expected: bool) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(deep_gemm, "find_spec", lambda name: object())
    monkeypatch.setenv("VLLM_USE_DEEP_GEMM_E8M0", variable)
    chosen = deep_gemm.takes_powers_of_two.__wrapped__
    assert chosen(torch.device("cuda")) is expected
    assert not chosen(torch.device("cpu"))
    monkeypatch.setattr(deep_gemm, "find_spec", lambda name: None)
    assert not chosen(torch.device("cuda"))
    plain, powers = (ops.per_token_group_quant_fp8(X, 64, use_ue8m0=flag)[1] for flag in (None, True))
    assert not torch.equal(plain, powers)
