"""vLLM's quantization of experts' rows: its shapes, and the same result as for each expert alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

import jitnorm
from jitnorm.compat import vllm as ops

ROWS, SIZE = 20, 128
X = torch.randn(ROWS, 2 * SIZE, generator=torch.Generator().manual_seed(1)).bfloat16()
BORDERS, TILES = [0, 4, 4, 17, 19, 20], [0, 128, 128, 256, 384, 512]
OFFSETS, TILE_OFFSETS = (torch.tensor(each, dtype=torch.int32) for each in (BORDERS, TILES))
SCALES = torch.tensor([0.5, 1, 2, 3, 5])
EXPERTS = len(SCALES)


def names() -> list[tuple[str, bool, bool]]:
    """Each function, whether gates come first, whether experts have global scales."""
    return [
        ("scaled_fp4_experts_quant", False, True),
        ("silu_and_mul_scaled_fp4_experts_quant", True, True),
        ("mxfp4_experts_quant", False, False),
        ("silu_and_mul_mxfp4_experts_quant", True, False),
    ]


def alone(expert: int, is_gated: bool, is_nvfp4: bool) -> Any:
    rows = X[BORDERS[expert] : BORDERS[expert + 1]]
    spec = (jitnorm.NVFP4 if is_nvfp4 else replace(jitnorm.MXFP4, scale_rounding="even")).with_layout("128x4")
    options = {"global_scale": SCALES[expert : expert + 1]} if is_nvfp4 else {}
    if is_gated:
        return jitnorm.silu_and_mul_quantize(rows, spec=spec, rounding="output", **options)
    return jitnorm.quantize(rows[:, :SIZE].contiguous(), spec=spec, **options)


def assert_experts(codes: Any, scales: Any, is_gated: bool, is_nvfp4: bool) -> None:
    for expert in range(EXPERTS):
        first, after = BORDERS[expert : expert + 2]
        if first == after:
            continue
        wanted = alone(expert, is_gated, is_nvfp4)
        assert torch.equal(codes[first:after], wanted.data.view(torch.uint8))
        found = scales.view(torch.uint8)[TILES[expert] : TILES[expert] + 128]
        assert torch.equal(found.flatten(), wanted.scale.view(torch.uint8))


@pytest.mark.parametrize(("name", "is_gated", "is_nvfp4"), names())
def test_each_expert_gets_what_it_gets_alone(name: str, is_gated: bool, is_nvfp4: bool) -> None:
    x = X if is_gated else X[:, :SIZE].contiguous()
    given = (SCALES, OFFSETS, TILE_OFFSETS, 2) if is_nvfp4 else (OFFSETS, TILE_OFFSETS, EXPERTS, 2)
    codes, scales = getattr(ops, name)(x, *given)
    assert (codes.dtype, codes.shape) == (torch.uint8, (ROWS, SIZE // 2))
    assert scales.dtype == (torch.float8_e4m3fn if is_nvfp4 else torch.uint8)
    assert_experts(codes, scales, is_gated, is_nvfp4)
    for rows in (512, 2048, 2048, 512):  # fewer rows than any offsets may need, and more
        output = torch.empty_like(codes)
        memory = torch.full((rows, scales.shape[1] // 4), 7, dtype=torch.int32)
        given = (SCALES, OFFSETS, TILE_OFFSETS) if is_nvfp4 else (OFFSETS, TILE_OFFSETS, EXPERTS)
        getattr(ops._C, name)(output, memory, x, *given)
        assert_experts(output, memory, is_gated, is_nvfp4)
        assert (memory[512:] == 7).all()


@pytest.mark.parametrize("dtype", [torch.int32, torch.float8_e4m3fn, torch.uint8])
def test_scales_with_rows_to_spare_are_no_unusual_call(dtype: torch.dtype, slow_calls: list[str]) -> None:
    x, output = X[:, :SIZE].contiguous(), torch.empty(ROWS, SIZE // 2, dtype=torch.uint8)
    memory = torch.zeros(6 * 128 + 1, SIZE // 16, dtype=torch.uint8).view(dtype)
    for _ in range(3):
        slow_calls.clear()
        memory.view(torch.uint8)[:] = 7
        before = memory._version
        ops._C.scaled_fp4_experts_quant(output, memory, x, SCALES, OFFSETS, TILE_OFFSETS)
        assert memory._version > before
        assert_experts(output, memory, False, True)
        assert (memory.view(torch.uint8)[512:] == 7).all()
    assert not slow_calls
    apart = torch.zeros(768, 16, dtype=torch.uint8)[:, :8]
    with pytest.raises(ValueError, match="not contiguous"):
        ops._C.scaled_fp4_experts_quant(output, apart, x, SCALES, OFFSETS, TILE_OFFSETS)


def test_scales_of_mxfp4_let_values_exceed_the_largest_code_up_to_7() -> None:
    x = torch.full((4, 128), 0.5, dtype=torch.bfloat16)
    x[:, 5] = torch.tensor([6, 6.96875, 7, 8])
    rows = torch.tensor([0, 4], dtype=torch.int32)
    _, scales = ops.mxfp4_experts_quant(x, rows, rows, 1, 1)
    assert scales.flatten()[:64:16].tolist() == [127, 127, 128, 128]  # rows of a tile are 16 bytes apart


def test_what_does_not_fit_is_an_error() -> None:
    with pytest.raises(ValueError, match="n_experts: is 4, but there are 6 offsets; expected one more"):
        ops.mxfp4_experts_quant(X, OFFSETS, TILE_OFFSETS, 4, 1)
    with pytest.raises(ValueError, match="input_tensor: has 3 dimensions; allowed are 2"):
        ops.scaled_fp4_experts_quant(X[None], SCALES, OFFSETS, TILE_OFFSETS, 1)


@pytest.mark.parametrize("is_packed", [False, True])
def test_the_rows_that_counts_count_are_in_fp8(is_packed: bool) -> None:
    x, counts = torch.stack([X.repeat(1, 4)] * 2), torch.tensor([7, 20], dtype=torch.int32)
    codes = torch.full((2, ROWS, 512), 3.0).to(torch.float8_e4m3fn)
    scales = torch.zeros(2, 1, ROWS, dtype=torch.int32) if is_packed else torch.zeros(2, 4, ROWS)
    ops._C.persistent_masked_m_silu_mul_quant(x, counts, codes, scales.transpose(1, 2), is_packed)
    spec = jitnorm.QuantSpec("e4m3", 128, "f32_ue8m0" if is_packed else "f32", "packed" if is_packed else "column")
    wanted = jitnorm.silu_and_mul_quantize(x[0], spec=spec, rounding="hf")
    for expert, count in enumerate(counts.tolist()):
        assert torch.equal(codes[expert, :count].view(torch.uint8), wanted.data[:count].view(torch.uint8))
        assert torch.equal(scales[expert, :, :count], wanted.scale[:, :count])
        assert (codes[expert, count:].float() == 3).all()


def test_gpus_from_ampere_on_quantize_the_rows_of_experts() -> None:
    assert ops.mxfp4_experts_quant_supported(80)
    assert not ops.mxfp4_experts_quant_supported(75)
