"""jitnorm.compat.flashinfer: NVFP4 key-value caches, compared with their definition and with each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from frameworks import to_torch

from jitnorm import reference
from jitnorm.compat import flashinfer

PAGES, TOKENS, HEADS, SIZE = 5, 8, 2, 64
SCALE = torch.tensor([0.01])


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def in_layout(cache: torch.Tensor, layout: str) -> torch.Tensor:
    """A cache of (pages, tokens, heads, ...) stored in that layout."""
    return cache if layout == "NHD" else cache.transpose(1, 2).contiguous()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_global_scale_multiplies_what_is_decoded(dtype: torch.dtype) -> None:
    x = normal(6, 96, dtype=dtype)
    codes, scales = flashinfer.nvfp4_kv_quantize(x, SCALE)
    wide = x.float().numpy()
    options: Any = {"block_size": 16, "scale_format": "e4m3", "global_scale": float(np.float32(1) / np.float32(0.01))}
    for found, expected in zip((codes, scales), reference.quantize_fp4(wide, **options), strict=True):
        assert torch.equal(found, torch.from_numpy(expected))
    decoded = flashinfer.nvfp4_kv_dequantize(codes, scales, SCALE, dtype)
    unscaled = reference.dequantize_fp4(codes.numpy(), scales.numpy(), block_size=16, scale_format="e4m3")
    values = torch.from_numpy(unscaled) * SCALE
    assert torch.equal(decoded, values.to(dtype))
    assert (decoded.float() - x.float()).abs().max() < x.float().abs().max() / 6
    assert torch.equal(
        flashinfer.nvfp4_kv_dequantize(codes, scales.view(torch.float8_e4m3fn), SCALE), values.bfloat16()
    )


@pytest.mark.parametrize("layout", ["NHD", "HND"])
def test_a_paged_cache_keeps_its_layout(layout: str) -> None:
    k, v = normal(PAGES, TOKENS, HEADS, SIZE), normal(PAGES, TOKENS, HEADS, SIZE, seed=1)
    given = [in_layout(each, layout) for each in (k, v)]
    codes, scales, *factors = flashinfer.nvfp4_quantize_paged_kv_cache(*given, layout)
    for x, found, of_blocks, factor, is_value in zip((k, v), codes, scales, factors, (False, True), strict=True):
        amax = x.float().abs().max()
        assert factor == pytest.approx(float(amax) / 448, rel=1e-6)
        expected = flashinfer.fp4_quantize(x.reshape(-1, SIZE), 448 / amax, is_sf_swizzled_layout=False)
        assert torch.equal(found, in_layout(expected[0].view(PAGES, TOKENS, HEADS, -1), layout))
        linear = expected[1].view(PAGES, TOKENS, HEADS, SIZE // 16)
        if is_value:  # number 4 * s + t of the scales of four tokens is scale s of token t
            fours = linear.view(PAGES, TOKENS // 4, 4, HEADS, -1).permute(0, 1, 3, 4, 2)
            linear = fours.reshape(PAGES, TOKENS // 4, HEADS, 4, -1).transpose(2, 3).reshape(linear.shape)
        assert of_blocks.dtype == torch.float8_e4m3fn
        assert torch.equal(of_blocks.view(torch.uint8), in_layout(linear, layout))
    _, _, factor, _ = flashinfer.nvfp4_quantize_paged_kv_cache(*given, layout, torch.tensor(50.0))
    assert factor == pytest.approx(0.02)


@pytest.mark.parametrize("layout", ["NHD", "HND"])
@pytest.mark.parametrize("is_stacked", [True, False])
def test_pages_of_sequences_are_decoded_and_other_tokens_stay(layout: str, is_stacked: bool) -> None:
    x = normal(PAGES, 2, TOKENS, HEADS, SIZE, dtype=torch.float16)
    codes, scales = flashinfer.nvfp4_kv_quantize(x.view(-1, SIZE), SCALE)
    decoded = flashinfer.nvfp4_kv_dequantize(codes, scales, SCALE, torch.float16).view(x.shape)
    stacked = [each.view(*x.shape[:-1], -1) for each in (codes, scales)]
    stacked = [each if layout == "NHD" else each.transpose(2, 3).contiguous() for each in stacked]
    caches: list[Any] = stacked if is_stacked else [tuple(each.unbind(1)) for each in stacked]
    tables, lengths = torch.tensor([[4, 0, 1], [2, 9, -1]]).int(), torch.tensor([19, 20]).int()
    outputs = [torch.full((2, 20, HEADS, SIZE), value, dtype=torch.float16) for value in (7.0, 8.0)]
    flashinfer.nvfp4_kv_dequantize_paged(*caches, tables, lengths, SCALE, SCALE * 2, *outputs, layout)
    for which, (output, other) in enumerate(zip(outputs, (7.0, 8.0), strict=True)):
        expected = torch.full_like(output, other)
        pages = decoded[:, which] if which == 0 else (decoded[:, which].float() * 2).half()
        expected[0, :19] = torch.cat([pages[4], pages[0], pages[1]])[:19]
        expected[1, :8] = pages[2]  # the next pages do not exist
        assert torch.equal(output, expected)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: flashinfer.nvfp4_kv_quantize(x[:, :24], SCALE), "multiple of block_size 16"),
        (lambda x: flashinfer.nvfp4_kv_dequantize(x, x, SCALE, torch.float32), "output_dtype: is torch.float32"),
        (lambda x: flashinfer.nvfp4_kv_dequantize(x, x.byte(), SCALE), "fp4_data: is torch.bfloat16; expected uint8"),
        (lambda x: flashinfer.nvfp4_kv_dequantize(x.byte(), x.byte(), SCALE.expand(2)), "global_scale: has 2 elements"),
        (lambda x: flashinfer.nvfp4_quantize_paged_kv_cache(*[x[None, None]] * 2, "DNH"), "kv_layout: is 'DNH'"),
        (lambda x: flashinfer.nvfp4_quantize_paged_kv_cache(*[x[None, None]] * 2), "k_cache: has pages of 6 tokens"),
    ],
)  # fmt: skip
def test_other_arguments_are_refused(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(normal(6, 64))


@pytest.mark.gpu
def test_the_gpu_s_bytes_are_the_cpu_s() -> None:
    x = to_torch(np.random.default_rng(0).standard_normal((40, 128)).astype(np.float16))
    on_cpu, on_gpu = (flashinfer.nvfp4_kv_quantize(each, SCALE) for each in (x, x.cuda()))
    for cpu, gpu in zip(on_cpu, on_gpu, strict=True):
        assert torch.equal(gpu.cpu(), cpu)
    decoded = [flashinfer.nvfp4_kv_dequantize(*each, SCALE).cpu() for each in (on_cpu, on_gpu)]
    assert torch.equal(*decoded)
