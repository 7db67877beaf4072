"""jitnorm.compat.vllm: vLLM's names, signatures, returns and roundings."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import jitnorm
from jitnorm.compat import vllm as ops
from jitnorm.compat.vllm import deep_gemm

ROWS, SIZE, EPS = 6, 256, 1e-5
FP8, INT8 = torch.float8_e4m3fn, torch.int8
X = torch.randn(ROWS, SIZE, generator=torch.Generator().manual_seed(1)).bfloat16()
RESIDUAL = torch.randn(ROWS, SIZE, generator=torch.Generator().manual_seed(2)).bfloat16()
WEIGHT = torch.linspace(0.5, 1.5, SIZE).bfloat16()
SCALE = torch.tensor([0.02])


def same(found: torch.Tensor, expected: torch.Tensor) -> bool:
    return found.shape == expected.shape and torch.equal(
        found.contiguous().view(torch.uint8), expected.contiguous().view(torch.uint8)
    )


def norm_by_steps(wide: torch.Tensor) -> torch.Tensor:
    """The norm of what is not rounded yet, rounded at each step, by torch."""
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + EPS)).to(X.dtype) * WEIGHT


def fp8_codes(y: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return (y.float() * (1 / scale)).clamp(-448, 448).to(FP8)


def int8_codes(y: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return (y.float() * (1 / scale)).round().clamp(-128, 127).to(INT8)


def close(found: torch.Tensor, expected: torch.Tensor) -> bool:
    """Whether few codes differ, and those by little: the sum of squares has its order in each library."""
    far = (found.float() - expected.float()).abs() > 0.13 * expected.float().abs() + 1
    return not far.any() and (found.float() != expected.float()).float().mean() < 0.01


def test_norms_write_what_comes_first() -> None:
    out = torch.empty_like(X)
    assert ops.rms_norm(out, X, WEIGHT, EPS) is None
    assert same(out, jitnorm.rmsnorm(X, WEIGHT, EPS))
    x, residual = X.clone(), RESIDUAL.clone()
    assert ops.fused_add_rms_norm(x, residual, WEIGHT, EPS) is None
    y, total = jitnorm.add_rmsnorm(X, RESIDUAL, WEIGHT, EPS)
    assert same(x, y)
    assert same(residual, total)


@pytest.mark.parametrize("is_neox", [True, False])
def test_queries_and_keys_are_normalized_and_turned_in_place(is_neox: bool) -> None:
    qkv, weight, positions = RESIDUAL[:5].repeat(1, 2), WEIGHT[:64], torch.tensor([3, 0, 1, 4, 2])
    table, expected = X[:, :32], qkv.clone()
    q, k, _ = expected.view(5, 8, 64).split([4, 2, 2], dim=1)
    jitnorm.qk_rmsnorm_rope(q, k, weight, -weight, table, positions, 1e-5, is_neox, q_out=q, k_out=k)
    for turn in (ops.fused_qk_norm_rope, ops._C.fused_qk_norm_rope):
        given = qkv.clone()
        turn(given, 4, 2, 2, 64, 1e-5, weight, -weight, table, is_neox, positions, 4)
        assert torch.equal(given, expected)
    with pytest.raises(ValueError, match="qkv: has 512 columns; 7 heads of 64 are 448"):
        ops.fused_qk_norm_rope(qkv, 4, 2, 1, 64, 1e-5, weight, weight, table, is_neox, positions)


@pytest.mark.parametrize(("kv_cache_dtype", "rotary_dim"), [("auto", 0), ("fp8", 16)])
def test_keys_and_values_are_inserted_as_they_are_returned(kv_cache_dtype: str, rotary_dim: int) -> None:
    qkv, weight, positions = RESIDUAL[:5].repeat(1, 2), WEIGHT[:64], torch.tensor([3, 0, 1, 4, 2])
    slots, scales = torch.tensor([2, -1, 5, 0]), {"k_scale": SCALE, "v_scale": SCALE[0]}
    dtype = torch.uint8 if kv_cache_dtype == "fp8" else qkv.dtype
    caches = [torch.zeros(2, 3, 2, 64, dtype=dtype) for _ in range(2)]

    def insert(size: int, bias: float = 0) -> Any:
        call = qkv, weight, weight, X[:, :32], positions, slots, *caches, 4, 2, 64, size, EPS
        return ops.fused_qknorm_rope_cache(*call, norm_weight_bias=bias, kv_cache_dtype=kv_cache_dtype, **scales)

    q, k, v = insert(rotary_dim)
    table = torch.cat([X[:, : rotary_dim // 2], X[:, 16:][:, : rotary_dim // 2]], -1)
    heads = qkv[:, :384].view(5, 6, 64).split([4, 2], dim=1)
    if rotary_dim:
        expected = jitnorm.qk_rmsnorm_rope(*heads, weight, weight, table, positions, EPS)
    else:
        expected = jitnorm.qk_rmsnorm(*heads, weight, weight, EPS)
    assert torch.equal(torch.cat([q, k], -1), torch.cat(expected, 1).flatten(1))
    assert torch.equal(v, qkv[:, 384:])
    for cache, kept in zip(caches, (k, v), strict=True):
        inserted = fp8_codes(kept, SCALE).view(torch.uint8) if kv_cache_dtype == "fp8" else kept
        found = cache.view(6, 128)
        assert torch.equal(found[[2, 5, 0]], inserted[[0, 2, 3]])
        assert not found[[1, 3, 4]].any()
    for size, bias, message in ((34, 0, "rotary_dim: is 34; allowed"), (32, 0.5, "norm_weight_bias: is 0.5")):
        with pytest.raises(ValueError, match=message):
            insert(size, bias)


def test_a_norm_may_have_no_weight() -> None:
    ones, out = torch.ones(SIZE, dtype=X.dtype), torch.empty_like(X)
    for _ in range(2):
        ops.rms_norm(out, X, None, EPS)
        assert same(out, jitnorm.rmsnorm(X, ones, EPS))
        out.zero_()

    @torch.compile(fullgraph=True, backend="aot_eager")
    def compiled(x: torch.Tensor, residual: torch.Tensor) -> None:
        ops.fused_add_rms_norm(x, residual, None, EPS)

    x, residual = X.clone(), RESIDUAL.clone()
    compiled(x, residual)
    assert same(x, jitnorm.add_rmsnorm(X, RESIDUAL, ones, EPS)[0])
    wide, out = X.float(), torch.empty_like(X, dtype=torch.float32)
    with FakeTensorMode() as mode:
        ops.rms_norm(mode.from_tensor(out), mode.from_tensor(wide), None, EPS)
    ops.rms_norm(out, wide, None, EPS)
    assert same(out, jitnorm.rmsnorm(wide, ones.float(), EPS))


def test_a_norm_with_a_given_scale_has_the_bits_of_its_parts() -> None:
    fused, normalized, expected = torch.empty_like(X, dtype=FP8), torch.empty_like(X), torch.empty_like(X, dtype=FP8)
    ops._C.rms_norm_static_fp8_quant(fused, X, WEIGHT, SCALE, EPS)
    ops.rms_norm(normalized, X, WEIGHT, EPS)
    ops._C.static_scaled_fp8_quant(expected, normalized, SCALE)
    assert same(fused, expected)
    assert same(expected, fp8_codes(normalized, SCALE))
    x, residual, total = X.clone(), RESIDUAL.clone(), RESIDUAL.clone()
    ops._C.fused_add_rms_norm_static_fp8_quant(fused, x, residual, WEIGHT, SCALE, EPS)
    ops.fused_add_rms_norm(x, total, WEIGHT, EPS)
    ops._C.static_scaled_fp8_quant(expected, x, SCALE)
    assert same(fused, expected)
    assert same(residual, total)


@pytest.mark.parametrize("dtype", [FP8, INT8])
@pytest.mark.parametrize("with_residual", [False, True])
def test_a_norm_with_a_scale_for_each_row_rounds_each_step(dtype: torch.dtype, with_residual: bool) -> None:
    residual = RESIDUAL.clone() if with_residual else None
    codes, scales = ops.rms_norm_dynamic_per_token_quant(X, WEIGHT, EPS, dtype, residual=residual)
    y = norm_by_steps(X.float() + RESIDUAL.float() if with_residual else X.float())
    expected = y.float().abs().amax(-1, keepdim=True) / (448 if dtype == FP8 else 127)
    assert scales.shape == (ROWS, 1)
    torch.testing.assert_close(scales, expected, rtol=1e-2, atol=0)
    assert close(codes, (fp8_codes if dtype == FP8 else int8_codes)(y, scales))
    if residual is not None:
        assert same(residual, X + RESIDUAL)
    out, given = torch.empty_like(codes), torch.empty_like(scales)
    residual = RESIDUAL.clone() if with_residual else None
    ops._C.rms_norm_dynamic_per_token_quant(out, X, WEIGHT, given, EPS, None, residual)
    assert same(out, codes)
    assert same(given, scales)


@pytest.mark.parametrize(("dtype", "group"), [(FP8, 128), (INT8, 64)])
def test_scales_of_groups_lie_in_rows_or_columns(dtype: torch.dtype, group: int) -> None:
    shape = (ROWS, SIZE // group)
    codes, linear = ops.rms_norm_per_block_quant(X, WEIGHT, EPS, dtype, [1, group])
    assert linear.is_contiguous()
    assert linear.shape == shape
    for tma_alignment, stride in ((0, (1, ROWS)), (4, (1, 8))):
        others = ops.rms_norm_per_block_quant(
            X, WEIGHT, EPS, dtype, [1, group], None, None, True, tma_alignment=tma_alignment
        )
        assert same(others[0], codes)
        assert same(others[1], linear)
        assert others[1].stride() == stride
    for transposed, scales in (
        (False, torch.empty(shape)),
        (True, torch.empty(shape[::-1]).t()),
        (True, torch.empty_strided(shape, (1, 8))),
    ):
        out = torch.empty_like(codes)
        ops._C.rms_norm_per_block_quant(out, X, WEIGHT, scales, EPS, None, None, group, transposed)
        assert same(out, codes)
        assert same(scales, linear)


def test_matrices_of_a_batch_are_aligned_for_themselves() -> None:
    x = torch.stack([X, RESIDUAL])
    codes, scales = ops.rms_norm_per_block_quant(x, WEIGHT, EPS, FP8, [1, 128], None, None, True, tma_alignment=4)
    assert codes.shape == x.shape
    assert (scales.shape, scales.stride()) == ((2, ROWS, 2), (16, 1, 8))
    assert same(scales[1], ops.rms_norm_per_block_quant(RESIDUAL, WEIGHT, EPS, FP8, [1, 128])[1])


@pytest.mark.parametrize(
    ("name", "activation"),
    [
        ("silu_and_mul", torch.nn.functional.silu),
        ("gelu_and_mul", torch.nn.functional.gelu),
        ("gelu_tanh_and_mul", lambda x: torch.nn.functional.gelu(x, approximate="tanh")),
    ],
)
def test_gated_activations_write_what_comes_first(name: str, activation: Any) -> None:
    x, out = torch.cat([X, RESIDUAL], -1), torch.empty_like(X)
    getattr(ops._C, name)(out, x)
    torch.testing.assert_close(out, (activation(X.float()) * RESIDUAL.float()).bfloat16(), rtol=1e-2, atol=1e-6)


def test_clamped_gates_have_any_numbers() -> None:
    x, out = torch.cat([X, RESIDUAL], -1), torch.empty_like(X)
    for alpha, limit in ((1.702, 7.0), (1.0, 1.5)):
        ops._C.swigluoai_and_mul(out, x, alpha, limit)
        gate, value = x[:, ::2].float().clamp(max=limit), x[:, 1::2].float().clamp(-limit, limit)
        expected = gate * torch.sigmoid(alpha * gate) * (value + 1)
        torch.testing.assert_close(out, expected.bfloat16(), rtol=1e-2, atol=1e-6)
    ops._C.silu_and_mul_with_clamp(out, x, 1.5)
    expected = torch.nn.functional.silu(X.float().clamp(max=1.5)).bfloat16() * RESIDUAL.clamp(-1.5, 1.5)
    torch.testing.assert_close(out, expected, rtol=1e-2, atol=1e-6)
    ops._C.fatrelu_and_mul(out, x, 0.5)
    assert same(out, torch.nn.functional.threshold(X, 0.5, 0.0) * RESIDUAL)
    ops._C.mul_and_silu(out, x)
    torch.testing.assert_close(out, X * torch.nn.functional.silu(RESIDUAL), rtol=1e-2, atol=1e-6)
    ops._C.gelu_quick(out, X)
    torch.testing.assert_close(out, (X * torch.sigmoid(1.702 * X.float())).bfloat16(), rtol=1e-2, atol=1e-6)


def test_groups_of_swiglu_may_be_bounded() -> None:
    x, bound = torch.cat([X, RESIDUAL], -1), torch.tensor([0.25])
    free, bounded = (ops.silu_and_mul_per_block_quant(x, 128, FP8, scale_ub=ub)[1] for ub in (None, bound))
    assert same(bounded, free.minimum(bound / 448))
    codes, scales = torch.empty_like(X, dtype=FP8), torch.empty_like(bounded)
    ops._C.silu_and_mul_per_block_quant(codes, x, scales, 128, bound)
    assert same(scales, bounded)


def test_the_square_of_relu_and_swiglu_with_a_given_scale() -> None:
    out, codes = torch.empty_like(X), torch.empty_like(X, dtype=FP8)
    ops._C.relu_squared(out, X)
    assert same(out, X.float().relu().square().bfloat16())
    x = torch.cat([X, RESIDUAL], -1)
    ops._C.silu_and_mul_quant(codes, x, SCALE)
    assert close(codes, fp8_codes((torch.nn.functional.silu(X) * RESIDUAL).float(), SCALE))


@pytest.mark.parametrize("name", ["gelu_new", "gelu_fast"])
def test_gelu_by_tanh_has_two_names(name: str) -> None:
    out = torch.empty_like(X)
    getattr(ops._C, name)(out, X)
    assert same(out, jitnorm.gelu_tanh(X))


def test_of_a_scale_for_each_row_the_first_is_the_tensor_s() -> None:
    codes, scales = torch.empty_like(X, dtype=FP8), torch.zeros(ROWS, 1)
    ops._C.dynamic_scaled_fp8_quant(codes, X, scales)
    torch.testing.assert_close(scales[0, 0], X.float().abs().max() / 448)
    assert not scales[1:].any()
    assert same(codes, fp8_codes(X, scales[0]))


@pytest.mark.parametrize("dtype", [FP8, INT8])
def test_swiglu_with_scales_of_groups(dtype: torch.dtype) -> None:
    x = torch.cat([X, RESIDUAL], -1)
    codes, scales = ops.silu_and_mul_per_block_quant(x, 64, dtype)
    others = ops.silu_and_mul_per_block_quant(x, 64, dtype, is_scale_transposed=True)
    assert others[1].stride() == (1, ROWS)
    assert same(others[0], codes)
    assert same(others[1], scales)
    y = torch.nn.functional.silu(X.float()) * RESIDUAL.float()
    expected = y.view(ROWS, -1, 64).abs().amax(-1) / (448 if dtype == FP8 else 127)
    torch.testing.assert_close(scales, expected, rtol=1e-5, atol=0)


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


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: ops.rms_norm_dynamic_per_token_quant(X, WEIGHT, EPS, torch.uint8),
            "^quant_dtype: is torch.uint8; allow",
        ),
        (
            lambda: ops.rms_norm_per_block_quant(X, WEIGHT, EPS, FP8, [128, 128]),
            r"^group_size: is \[128, 128\]; allowed",
        ),
        (lambda: ops.rms_norm_per_block_quant(X, WEIGHT, EPS, FP8, [1, 128], tma_alignment=8), "^tma_alignment: is 8;"),
        (lambda: ops.scaled_fp8_quant(X, torch.ones(ROWS)), "^group_shape: is None, but a scale with 1 dim"),
        (lambda: ops.scaled_fp8_quant(X, torch.ones(4, 1)), r"^scale: shape is \(4, 1\), which does not divide"),
        (lambda: ops.scaled_fp8_quant(X, torch.ones(6, 2), group_shape=(1, 64)), r"^scale: shape is .* \(6, 4\)"),
        (lambda: ops.scaled_fp8_quant(X, torch.ones(6), group_shape=(1, 3)), r"^group_shape: is \[1, 3\], which"),
        (lambda: ops.scaled_fp8_quant(X, torch.ones(6, 32)), r"^scale: is of groups \(1, 8\); their columns"),
        (lambda: ops.scaled_fp4_quant(X, SCALE, padded_n=SIZE + 8), "^padded_n: is 264; allowed are multiples of 16"),
    ],
)
def test_what_is_not_there_is_an_error(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_norms_with_gates() -> None:
    weight, gate = WEIGHT.to(X.dtype), X.flip(0)
    got = ops.rms_norm_gated(X, weight, None, gate, EPS, SIZE // 2, norm_before_gate=False)
    assert same(got, jitnorm.rmsnorm_gated(X, gate, weight, EPS, norm_before_gate=False, group_size=SIZE // 2))
    got = ops.fla_rms_norm_gated(X, gate, weight, EPS, None, True, "sigmoid")
    assert same(got, jitnorm.rmsnorm_gated(X, gate, weight, EPS, activation="sigmoid"))
    by_torch = torch.nn.functional.rms_norm(X.float(), (SIZE,), weight.float(), EPS) * gate.float().sigmoid()
    torch.testing.assert_close(got.float(), by_torch, rtol=0.01, atol=1e-3)
    assert same(ops.rms_norm_gated(X, None, None, gate), ops.rms_norm_gated(X, torch.ones_like(weight), None, gate))


def test_norms_with_gates_but_without_them() -> None:
    weight = WEIGHT.to(X.dtype)
    assert same(ops.rms_norm_gated(X, weight, None, eps=EPS), jitnorm.rmsnorm(X, weight, EPS))
    assert same(ops.rms_norm_gated(X, weight, weight, eps=EPS), jitnorm.rmsnorm_bias(X, weight, weight, EPS))
    with pytest.raises(ValueError, match="group_size: is 8, but z is None"):
        ops.rms_norm_gated(X, weight, None, group_size=8)


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
