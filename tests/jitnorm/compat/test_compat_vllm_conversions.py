"""jitnorm.compat.vllm: conversions to INT8, MXFP8 and FP8, and activations of experts' tokens, by torch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional
from vllm_calls import ROWS, SIZE, X, int8_codes, same

from jitnorm.compat import vllm as ops

CONVERTED = {"fp8": torch.float8_e4m3fn, "fp8_e4m3": torch.float8_e4m3fn, "fp8_e5m2": torch.float8_e5m2}


def test_rows_of_int8_have_an_amax_at_least() -> None:
    x = X.clone()
    x[1] = 1e-12
    codes, scales = ops.per_token_quant_int8(x.view(2, -1, SIZE))
    expected = x.float().abs().amax(-1, keepdim=True).clamp(min=1e-10) * torch.tensor(1 / 127)
    torch.testing.assert_close(scales.view(ROWS, 1), expected, rtol=1e-6, atol=0)
    assert scales.shape == (2, ROWS // 2, 1)
    assert same(codes.view(ROWS, SIZE), int8_codes(x, scales.view(ROWS, 1)))


def mxfp8(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes and scales of a matrix, as bytes."""
    blocks = x.float().unflatten(-1, (-1, 32))
    exponents = torch.ceil(torch.log2(blocks.abs().amax(-1) / 448))
    codes = (blocks * torch.exp2(-exponents)[..., None]).to(torch.float8_e4m3fn).flatten(-2)
    return codes.view(torch.uint8), (exponents + 127).byte()


@pytest.mark.parametrize("shape", [(ROWS, SIZE), (2, ROWS // 2, SIZE)])
def test_mxfp8_has_linear_scales_unless_they_are_to_be_swizzled(shape: tuple[int, ...]) -> None:
    x = X.view(shape)
    codes, scales = ops.mxfp8_e4m3_quantize(x)
    expected = mxfp8(x)
    assert torch.equal(codes.view(torch.uint8), expected[0])
    assert torch.equal(scales, expected[1])
    codes, swizzled = ops.mxfp8_e4m3_quantize(x, True)
    assert torch.equal(codes.view(torch.uint8), expected[0])
    matrices, rows = shape[0] if len(shape) == 3 else 1, shape[-2]
    tiles = swizzled.view(matrices, 2, 32, 4, 4)  # a matrix has 2 tiles of 128 rows by 4 scales
    assert torch.equal(tiles[:, :, :rows, 0].transpose(1, 2).flatten(2).view(scales.shape), scales)
    codes, padded = ops.mxfp8_e4m3_quantize(X, alignment=512)
    assert (codes.shape, padded.shape) == ((ROWS, 512), (ROWS, 16))
    assert torch.equal(padded[:, :8], mxfp8(X)[1])
    assert not padded[:, 8:].any()


def test_there_may_be_no_rows() -> None:
    for x in (X[:0], X[None, :0]):
        assert [tuple(each.shape) for each in ops.mxfp8_e4m3_quantize(x)] == [x.shape, (*x.shape[:-1], SIZE // 32)]
        assert [tuple(each.shape) for each in ops.per_token_quant_int8(x)] == [x.shape, (*x.shape[:-1], 1)]
    for function in (ops.silu_mul_quant_fp8_packed_triton, ops.silu_mul_per_token_group_quant_fp8_colmajor):
        codes, scales = function(X[:0], group_size=32)
        assert (codes.shape, len(scales)) == ((0, SIZE // 2), 0)


@pytest.mark.parametrize("kv_dtype", CONVERTED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_fp8_is_encoded_and_decoded(kv_dtype: str, dtype: torch.dtype) -> None:
    x = X.to(dtype).view(2, -1, 4, SIZE // 4)
    codes = torch.zeros(x.shape, dtype=torch.uint8)
    ops.convert_fp8(codes, x, 0.25, kv_dtype)
    expected = (x.float() * 4).to(CONVERTED[kv_dtype])
    assert torch.equal(codes, expected.view(torch.uint8))
    decoded = torch.empty_like(x)
    ops.convert_fp8(decoded, codes.view(CONVERTED[kv_dtype]), 0.3, kv_dtype)
    assert torch.equal(decoded, (expected.float() * torch.tensor(0.3)).to(dtype))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ops.convert_fp8(X.byte(), X, 1.0, "auto"), "kv_dtype: is 'auto'"),
        (lambda: ops.convert_fp8(X.clone(), X), "output, input: are torch.bfloat16"),
        (lambda: ops.mxfp8_e4m3_quantize(X[0]), "x: has 1 dimensions"),
        (lambda: ops.mxfp8_e4m3_quantize(X[None], True, 512), "alignment: is 512"),
    ],
)
def test_other_conversions_are_refused(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


GATED, LIMIT = torch.randn(3, 5, 96, generator=torch.Generator().manual_seed(7)).half() * 3, 2.5


def clamped(gate: torch.Tensor, value: torch.Tensor, alpha: float, beta: float) -> torch.Tensor:
    gate, value = gate.clamp(max=LIMIT), value.clamp(-LIMIT, LIMIT)
    return gate * torch.sigmoid(alpha * gate) * (value + beta)


@pytest.mark.parametrize(
    ("activation", "options", "formula"),
    [
        ("silu", {}, lambda gate, value: functional.silu(gate) * value),
        ("gelu", {}, lambda gate, value: functional.gelu(gate) * value),
        ("gelu_tanh", {}, lambda gate, value: functional.gelu(gate, approximate="tanh") * value),
        ("silu_with_clamp", {"clamp_limit": LIMIT}, lambda *both: clamped(*both, 1, 0)),
        ("swigluoai_uninterleave", {"clamp_limit": LIMIT, "alpha": 2, "beta": 1}, lambda *both: clamped(*both, 2, 1)),
        ("swigluoai", {"clamp_limit": LIMIT, "alpha": 1.5}, lambda *both: clamped(*both, 1.5, 1)),
        ("silu_no_mul", {}, functional.silu),
        ("gelu_no_mul", {}, functional.gelu),
        ("gelu_tanh_no_mul", {}, lambda x: functional.gelu(x, approximate="tanh")),
        ("relu2_no_mul", {}, lambda x: functional.relu(x).square()),
    ],
)  # fmt: skip
def test_tokens_of_experts_are_activated_and_other_rows_stay(
    activation: str, options: dict[str, Any], formula: Any
) -> None:
    counts, wide = torch.tensor([0, 2, 5]).int(), GATED.double()
    if activation == "swigluoai":
        parts: Any = wide[..., ::2], wide[..., 1::2]
    else:
        parts = [wide] if activation.endswith("no_mul") else wide.chunk(2, -1)
    expected = formula(*parts).half()
    out = torch.full(expected.shape, 42.0, dtype=torch.float16)
    ops._C.masked_moe_activation(out, GATED, counts, activation, **options)
    for expert, count in enumerate(counts):
        torch.testing.assert_close(out[expert, :count], expected[expert, :count], rtol=2e-3, atol=1e-3)
        assert out[expert, count:].eq(42).all()
    flat = torch.full(expected[0].shape, 42.0, dtype=torch.float16)
    ops._C.masked_moe_activation(flat, GATED[1], counts[1:2], activation, **options)
    assert torch.equal(flat, out[1])


@pytest.mark.parametrize("activation", ["situ", "swiglustep"])
def test_other_activations_are_refused(activation: str) -> None:
    with pytest.raises(ValueError, match=f"activation: is '{activation}'"):
        ops._C.masked_moe_activation(GATED[..., :48].clone(), GATED, torch.ones(3).int(), activation)


@pytest.mark.gpu
def test_the_gpu_s_bytes_are_the_cpu_s() -> None:
    for function in (ops.per_token_quant_int8, ops.mxfp8_e4m3_quantize):
        on_cpu, on_gpu = function(X), function(X.cuda())
        assert all(same(gpu.cpu(), cpu) for cpu, gpu in zip(on_cpu, on_gpu, strict=True))
    counts, outputs = torch.tensor([0, 2, 5]).int(), []
    for device in ("cpu", "cuda"):
        out = torch.full((3, 5, 48), 42.0, dtype=torch.float16, device=device)
        ops._C.masked_moe_activation(out, GATED.to(device), counts.to(device), "silu")
        outputs.append(out.cpu())
    assert torch.equal(*outputs)
