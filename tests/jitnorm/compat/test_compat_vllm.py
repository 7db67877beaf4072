"""jitnorm.compat.vllm: vLLM's names, signatures, returns and roundings."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from vllm_calls import (
    EPS,
    FP8,
    INT8,
    RESIDUAL,
    ROWS,
    SCALE,
    SIZE,
    WEIGHT,
    X,
    close,
    fp8_codes,
    int8_codes,
    norm_by_steps,
    same,
)

import jitnorm
from jitnorm.compat import vllm as ops


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
    of_c, copies = [torch.empty_like(each) for each in (q, k, v)], [torch.zeros_like(cache) for cache in caches]
    cos, sin = X[:, :32].chunk(2, dim=-1)
    ops._C.fused_qknorm_rope_cache(
        *of_c, qkv, weight, weight, cos, sin, positions, slots, *copies, 64, 4, 2, rotary_dim // 2, EPS, 0,
        kv_cache_dtype, SCALE, SCALE[0],
    )  # fmt: skip
    assert all(map(torch.equal, (*of_c, *copies), (q, k, v, *caches)))
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


@pytest.mark.parametrize("is_neox", [True, False])
@pytest.mark.parametrize("has_heads", [True, False])
def test_heads_are_turned_in_place(is_neox: bool, has_heads: bool) -> None:
    generator = torch.Generator().manual_seed(8)
    packed = torch.randn(2, 3, 6 * 64, generator=generator).bfloat16()
    table, positions = torch.randn(9, 32, generator=generator), torch.tensor([[0, 3, 8], [1, 1, 5]])
    expected = jitnorm.rope(*packed.unflatten(-1, (6, 64)).split([4, 2], -2), table, positions, is_neox)
    for turn in (ops.rotary_embedding, ops._C.rotary_embedding):
        given = packed.clone()
        q, k = (given.unflatten(-1, (6, 64)) if has_heads else given).split([4, 2] if has_heads else [256, 128], 2)
        turn(positions, q, k, 64, table, is_neox)
        assert torch.equal(given.unflatten(-1, (6, 64)), torch.cat(expected, -2))
        turn(positions, q, None, 64, table, is_neox)
        again, _ = jitnorm.rope(*expected, table, positions, is_neox)
        assert torch.equal(q.reshape(again.shape), again)


def test_heads_are_turned_from_an_offset_on_and_back() -> None:
    generator = torch.Generator().manual_seed(9)
    q, k = (torch.randn(5, heads * 64, generator=generator) for heads in (4, 2))
    turns, positions = torch.rand(7, 16, generator=generator) * 6, torch.arange(5)
    table, found = torch.cat([turns.cos(), turns.sin()], -1), [q.clone(), k.clone()]
    ops.rotary_embedding(positions, *found, 64, table, True, rope_dim_offset=32)
    for before, after in zip((q, k), found, strict=True):
        untouched, turned = (each.unflatten(-1, (-1, 64)).split(32, -1) for each in (before, after))
        assert torch.equal(untouched[0], turned[0])
        assert not torch.equal(untouched[1], turned[1])
    ops.rotary_embedding(positions, *found, 64, table, True, rope_dim_offset=32, inverse=True)
    assert torch.allclose(torch.cat(found, -1), torch.cat([q, k], -1), atol=1e-5)
    with pytest.raises(ValueError, match="rope_dim_offset: is 33; of heads of 64, 32 elements are turned, so 0 to 32"):
        ops.rotary_embedding(positions, *found, 64, table, True, rope_dim_offset=33)


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
