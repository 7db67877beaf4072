"""The peers' functions with tensors on a GPU: results on the host, their own weights, CUDA graphs."""

from __future__ import annotations

import pytest
import torch

import jitnorm
from jitnorm.compat import flashinfer
from jitnorm.compat import vllm as ops

pytestmark = pytest.mark.gpu


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(6, 256, generator=torch.Generator().manual_seed(0)).bfloat16().cuda()


def test_flashinfer_decodes_fp4_on_the_host(x: torch.Tensor) -> None:
    codes, scales = flashinfer.mxfp4_quantize(x)
    decoded = flashinfer.mxfp4_dequantize(codes, scales)
    assert decoded.device.type == "cpu"
    assert torch.equal(decoded, flashinfer.e2m1_and_ufp8sf_scale_to_float(codes, scales, None, 32, 0))
    assert torch.equal(decoded, jitnorm.mxfp4_dequantize(codes, scales).cpu())
    for one, other in ((codes, scales.cpu()), (codes.cpu(), scales), (codes.cpu(), scales.cpu())):
        assert torch.equal(flashinfer.mxfp4_dequantize(one, other), decoded)
    codes, scales = flashinfer.nvfp4_quantize(x, 1.0)
    decoded = flashinfer.e2m1_and_ufp8sf_scale_to_float(codes, scales, torch.tensor([0.5]))
    assert torch.equal(decoded, jitnorm.e2m1_and_ufp8sf_scale_to_float(codes.cpu(), scales.cpu(), torch.tensor([0.5])))


def test_a_norm_without_a_weight_is_captured_in_a_cuda_graph(x: torch.Tensor) -> None:
    out, expected = torch.empty_like(x), jitnorm.rmsnorm(x, torch.ones_like(x[0]))
    ops.rms_norm(out, x, None, 1e-6)
    out.zero_()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        ops.rms_norm(out, x, None, 1e-6)
    graph.replay()
    assert torch.equal(out, expected)
    del graph
    for _ in range(2):
        ops.rms_norm(out.zero_(), x, None, 1e-6)
        assert torch.equal(out, expected)


@pytest.mark.parametrize("is_inference", [False, True])
@pytest.mark.parametrize("name", ["mxfp8_grouped_quantize", "nvfp4_quantize", "scaled_fp4_grouped_quantize"])
def test_codes_are_captured_in_a_cuda_graph_after_one_call(name: str, is_inference: bool) -> None:
    """FlashInfer's tests of graphs do this in inference mode."""
    with torch.inference_mode(is_inference):
        x = torch.randn(2, 128, 256, dtype=torch.bfloat16, device="cuda")
        mask, scale = torch.full((2,), 128, dtype=torch.int32, device="cuda"), torch.ones(2, device="cuda")
        arguments = {
            "mxfp8_grouped_quantize": (x, mask),
            "nvfp4_quantize": (x[0], scale[:1]),
            "scaled_fp4_grouped_quantize": (x, mask, scale),
        }[name]
        expected = getattr(flashinfer, name)(*arguments)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = getattr(flashinfer, name)(*arguments)
        graph.replay()
        torch.cuda.synchronize()
        for one, other in zip(captured, expected, strict=True):
            assert torch.equal(one.contiguous().view(torch.uint8), other.contiguous().view(torch.uint8))


def test_rounded_swiglu_is_that_of_the_cpu(x: torch.Tensor) -> None:
    out = torch.empty(6, 128, dtype=x.dtype)
    on_gpu = out.cuda()
    ops._C.silu_and_mul(out, x.cpu())
    ops._C.silu_and_mul(on_gpu, x)
    assert torch.equal(on_gpu.cpu(), out)


def test_packed_scales_end_with_the_last_row(x: torch.Tensor) -> None:
    codes, scales = ops.per_token_group_quant_fp8_packed_for_deepgemm(x, 32)
    memory = torch.full((6 + 8,), -1, dtype=torch.int32, device="cuda")
    given, padded = memory.as_strided((6, 2), (1, 8)), torch.ones(8, 256, device="cuda").to(torch.float8_e4m3fn)
    ops._C.per_token_group_fp8_quant_packed(x, padded, given, 32, 1e-10, -448.0, 448.0)
    assert torch.equal(given, scales)
    assert not memory[6:8].any()
    assert torch.equal(padded[:6].view(torch.uint8), codes.view(torch.uint8))
    assert not padded[6:].view(torch.uint8).any()


def test_experts_have_the_bytes_of_the_cpu(x: torch.Tensor) -> None:
    offsets, tiles = (torch.tensor(each, dtype=torch.int32) for each in ([0, 1, 1, 6], [0, 128, 128, 256]))
    scales = torch.tensor([0.5, 1.0, 3.0])
    on_cpu = ops.silu_and_mul_scaled_fp4_experts_quant(x.cpu(), scales, offsets, tiles, 1)
    on_gpu = ops.silu_and_mul_scaled_fp4_experts_quant(x, scales.cuda(), offsets.cuda(), tiles.cuda(), 1)
    assert torch.equal(on_gpu[0].cpu(), on_cpu[0])
    assert torch.equal(on_gpu[1][:256].cpu().view(torch.uint8), on_cpu[1][:256].view(torch.uint8))


def test_rows_that_a_map_has_the_numbers_of_are_those_of_the_cpu(x: torch.Tensor) -> None:
    numbers = torch.tensor([5, -1, 0, 2], dtype=torch.int32)
    options = {"per_token_activation": True, "expanded_idx_to_permuted_idx": numbers}
    wanted = flashinfer.nvfp4_quantize(x.cpu(), 1 / 2688, 2, **options)
    found = flashinfer.nvfp4_quantize(x, 1 / 2688, 2, **{**options, "expanded_idx_to_permuted_idx": numbers.cuda()})
    for got, expected in zip(found, wanted, strict=True):
        assert torch.equal(got[[0, 2, 5]].cpu(), expected[[0, 2, 5]])


def test_tokens_are_appended_in_a_cuda_graph(x: torch.Tensor) -> None:
    """Neither encoding nor insertion waits for the host, which would end the capture."""
    heads, slots = x.view(6, 4, 64), torch.tensor([5, -1, 0, 9, 2, 99], device="cuda")
    scales = torch.full((1,), 0.01, device="cuda"), torch.full((1,), 0.02, device="cuda")

    def appended() -> list[torch.Tensor]:
        caches = [torch.zeros(3, 4, 4, n, dtype=torch.uint8, device="cuda") for n in (32, 32, 4, 4)]
        pairs = tuple(caches[:2]), tuple(each.view(torch.float8_e4m3fn) for each in caches[2:])
        flashinfer.nvfp4_quantize_append_paged_kv_cache_with_slot_mapping(heads, heads, slots, *pairs, *scales)
        return caches

    expected = appended()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = appended()
    graph.replay()
    torch.cuda.synchronize()
    assert all(map(torch.equal, found, expected))
    assert expected[0].any()
