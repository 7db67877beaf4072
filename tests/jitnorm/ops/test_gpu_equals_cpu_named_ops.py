"""The GPU's bytes are the CPU target's, for ops that compute a tensor's scale or have their peers' names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from encoded import assert_same_encoding
from expected import assert_same_bytes
from frameworks import to_torch
from inputs import ALL_DTYPES, INPUT_KINDS, make_input, make_weight
from jitnorm.kernels.quant_spec import FP8_GROUP, FP8_TENSOR, FP8_TOKEN, MXFP8, NVFP4

import jitnorm

pytestmark = pytest.mark.gpu

FP8 = torch.float8_e4m3fn
KINDS = ("random", "nan", "inf", "huge", "tiny", "zeros")


def make(kind: str, rows: int, size: int, dtype: str, seed: int = 0) -> torch.Tensor:
    return to_torch(make_input(kind, rows, size, dtype, seed))


def same_on_both(op: Callable[..., Any], *tensors: torch.Tensor | None, what: str = "") -> None:
    """Check that `op` returns the same on the CPU and on the GPU, with the same effect on its arguments."""
    runs = []
    for device in ("cpu", "cuda"):
        given = [None if t is None else t.clone().to(device) for t in tensors]
        made = op(*given)
        runs.append((*(made if isinstance(made, tuple) else (made,)), *given))
    for on_cpu, on_gpu in zip(*runs, strict=True):
        if on_cpu is not None and on_cpu.numel():
            assert_same_bytes(on_gpu.contiguous(), on_cpu.contiguous(), what)


@pytest.mark.parametrize("size", [1, 17, 96, 4096, 16384, 131072])
@pytest.mark.parametrize("dtype", [*ALL_DTYPES, "float8_e4m3fn"])
def test_compute_amax(dtype: str, size: int) -> None:
    for kind in KINDS:
        for rows in (0, 1, 33, 1000) if size < 10000 else (3,):
            if dtype in ALL_DTYPES:
                x = make(kind, rows, size, dtype)
            else:
                x = to_torch(make_input(kind, rows, size, "float32").astype(ml_dtypes.float8_e4m3fn))
            same_on_both(jitnorm.compute_amax, x, what=f"{kind}, {rows}")


@pytest.mark.parametrize("spec", [NVFP4, replace(NVFP4, four_over_six=True), FP8_TENSOR], ids=str)
@pytest.mark.parametrize("adds", [False, True])
def test_scales_found_for_a_tensor_of_many_rows(spec: jitnorm.QuantSpec, adds: bool) -> None:
    weight = to_torch(make_weight(4096, "bfloat16"))
    keywords = {"scale": "tensor"} if spec == FP8_TENSOR else {"global_scale": "tensor"}
    for kind in KINDS:
        x, residual = make(kind, 300, 4096, "bfloat16"), make("random", 300, 4096, "bfloat16", 3) if adds else None
        runs = []
        for device in ("cpu", "cuda"):
            added = None if residual is None else residual.clone().to(device)
            q = jitnorm.norm_quantize(x.to(device), weight.to(device), spec=spec, residual=added, **keywords)
            runs.append((q, added))
        assert_same_encoding(runs[1][0], runs[0][0], kind)
        if adds:
            assert_same_bytes(runs[1][1], runs[0][1], kind)


def test_a_graph_finds_the_scale_of_what_its_input_holds_then() -> None:
    x = make("random", 64, 4096, "bfloat16").cuda()
    jitnorm.quantize(x, spec=NVFP4, global_scale="tensor")
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        q = jitnorm.quantize(x, spec=NVFP4, global_scale="tensor")
    for factor in (2, 0.125):  # a smaller one, too: what the last replay has found is gone
        x.mul_(factor)
        graph.replay()
        assert_same_encoding(q, jitnorm.quantize(x, spec=NVFP4, global_scale="tensor"), str(factor))
        assert float(q.amax) == float(x.abs().max())


def test_an_explicit_stream() -> None:
    x = make("random", 64, 4096, "bfloat16").cuda()
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    q = jitnorm.quantize(x, spec=NVFP4, global_scale="tensor", stream=stream)
    stream.synchronize()
    assert_same_encoding(q, jitnorm.quantize(x, spec=NVFP4, global_scale="tensor"), "stream")


def test_rows_that_the_threads_do_not_fill_find_their_own_amax() -> None:
    """Without eps, the reciprocal root mean square of rows whose squares vanish is infinite."""
    x, weight = torch.full((3, 96), 1e-30), torch.ones(96)
    for spec in (NVFP4.with_global_scale("row"), NVFP4.with_global_scale("tensor"), FP8_TOKEN):
        runs = [jitnorm.norm_quantize(x.to(at), weight.to(at), spec=spec, eps=0.0) for at in ("cpu", "cuda")]
        assert_same_encoding(runs[1], runs[0], str(spec))


@pytest.mark.parametrize("spec", [FP8_TOKEN, FP8_GROUP], ids=str)
def test_scale_ub(spec: jitnorm.QuantSpec) -> None:
    for kind in INPUT_KINDS:
        x, bound = make(kind, 33, 384, "bfloat16"), torch.tensor([0.75])
        runs = [jitnorm.quantize(x.to(at), spec=spec, scale_ub=bound.to(at)) for at in ("cpu", "cuda")]
        assert_same_encoding(runs[1], runs[0], kind)


@pytest.mark.parametrize("spec", [NVFP4.with_global_scale("row"), MXFP8], ids=str)
def test_every_e4m3_code_as_input(spec: jitnorm.QuantSpec) -> None:
    codes = np.random.default_rng(0).integers(0, 256, (130, 96)).astype(np.uint8)
    codes[::2] &= 0x77  # rows without NaN
    x = to_torch(codes).view(FP8)
    assert_same_encoding(jitnorm.quantize(x.cuda(), spec=spec), jitnorm.quantize(x, spec=spec), str(spec))


def every_e4m3_code(rows: int, size: int) -> torch.Tensor:
    codes = np.random.default_rng(0).integers(0, 256, (rows, size)).astype(np.uint8)
    codes[::2] &= 0x77  # rows without NaN
    return to_torch(codes).view(FP8)


@pytest.mark.parametrize("four_over_six", [False, True])
@pytest.mark.parametrize("size", [16, 96, 528, 4096, 16384, 131072, 262144])
def test_fp8_with_a_global_scale(size: int, four_over_six: bool) -> None:
    spec = replace(NVFP4.with_layout("linear+128x4"), four_over_six=four_over_six)
    for rows in (1, 33, 3000) if size < 10000 else (3,):
        x = every_e4m3_code(rows, size)
        for value in (0.37, 38.4, 2688.0, 1e-36, 1e36, 3e-45, 0.0, -1.5, float("inf"), float("nan")):
            runs = []
            for at in ("cpu", "cuda"):
                scale = torch.tensor([value], device=at)
                runs.append(jitnorm.quantize(x.to(at), spec=spec, global_scale=scale))
            assert_same_encoding(runs[1], runs[0], f"{rows}, {value}")


@pytest.mark.parametrize("layout", list(jitnorm.SfLayout))
def test_fp8_by_the_quantizers(layout: jitnorm.SfLayout) -> None:
    x, scale, of_each = every_e4m3_code(130, 96), torch.tensor([0.37]), torch.tensor([0.37, 38.4])
    is_swizzled, is_8x4 = layout != jitnorm.SfLayout.layout_linear, layout == jitnorm.SfLayout.layout_8x4
    same_on_both(lambda x, g: jitnorm.nvfp4_quantize(x, g, layout), x, scale)
    same_on_both(lambda x: jitnorm.mxfp4_quantize(x, sfLayout=layout), x)
    for is_inverse in (False, True):
        same_on_both(lambda x, g, i=is_inverse: jitnorm.fp4_quantize(x, g, 16, False, is_swizzled, is_8x4, i), x, scale)
    same_on_both(lambda x, g: jitnorm.nvfp4_batched_quantize(x.reshape(2, 65, 96), g), x, of_each)
    same_on_both(lambda x, g: encoding_of_columns(x[:128], g), x, scale)


def test_fp8_of_masked_matrices() -> None:
    """Only the rows within the mask are written; the outputs' other bytes are undefined."""
    x, scale = every_e4m3_code(3 * 128, 64).reshape(3, 128, 64), torch.tensor([0.37, 38.4, 1.0])
    mask = torch.tensor([128, 0, 128], dtype=torch.int32)
    runs = [jitnorm.scaled_fp4_grouped_quantize(x.to(at), mask.to(at), scale.to(at)) for at in ("cpu", "cuda")]
    for on_cpu, on_gpu in zip(*runs, strict=True):
        for b in (0, 2):
            assert_same_bytes(on_gpu[..., b].contiguous(), on_cpu[..., b].contiguous(), str(b))


def test_mxfp8_of_masked_matrices() -> None:
    x, mask = to_torch(make_input("random", 3 * 128, 96, "bfloat16")).view(3, 128, 96), [128, 0, 128]
    runs = [
        jitnorm.mxfp8_grouped_quantize(x.to(at), torch.tensor(mask, dtype=torch.int32, device=at))
        for at in ("cpu", "cuda")
    ]
    for on_cpu, on_gpu in zip(*runs, strict=True):
        for b in (0, 2):
            assert_same_bytes(on_gpu[..., b].contiguous(), on_cpu[..., b].contiguous(), str(b))


def encoding_of_columns(w: Any, global_scale: Any) -> Any:
    q = jitnorm.quantize_weight(w, global_scale=global_scale)
    return q.data, q.scale


@pytest.mark.parametrize("layout", list(jitnorm.SfLayout))
def test_the_quantizers(layout: jitnorm.SfLayout) -> None:
    scale = torch.tensor([0.37])
    for kind in INPUT_KINDS:
        x = make(kind, 130, 96, "bfloat16")
        same_on_both(lambda x, g: jitnorm.nvfp4_quantize(x, g, layout), x, scale, what=kind)
        same_on_both(lambda x: jitnorm.mxfp4_quantize(x, sfLayout=layout), x, what=kind)
        same_on_both(lambda x: jitnorm.mxfp8_quantize(x, sf_swizzle_layout=layout, alignment=128), x, what=kind)


def test_swiglu_and_shuffled_rows_in_nvfp4() -> None:
    x, scale = make("real", 128, 192, "bfloat16"), torch.tensor([0.37])
    same_on_both(jitnorm.silu_and_mul_nvfp4_quantize, x, scale)
    same_on_both(lambda x, g: jitnorm.nvfp4_quantize(x, g, do_shuffle=True), x, scale)


def test_an_inversed_global_scale() -> None:
    x, scale = make("real", 130, 96, "float16"), torch.tensor([0.37])
    same_on_both(lambda x, g: jitnorm.fp4_quantize(x, g, is_global_scale_inversed=True), x, scale)


@pytest.mark.parametrize("adds", [False, True])
def test_the_norms_under_vllm_s_names(adds: bool) -> None:
    weight, bound = to_torch(make_weight(384, "bfloat16")), torch.tensor([0.75])
    for kind in INPUT_KINDS:
        x, residual = make(kind, 33, 384, "bfloat16"), make("random", 33, 384, "bfloat16", 3) if adds else None
        same_on_both(
            lambda x, w, ub, r: jitnorm.rms_norm_dynamic_per_token_quant(x, w, 1e-6, FP8, ub, r),
            x, weight, bound, residual, what=kind,
        )  # fmt: skip
        same_on_both(
            lambda x, w, r: jitnorm.rms_norm_per_block_quant(x, w, 1e-6, FP8, [1, 128], None, r, True, True),
            x, weight, residual, what=kind,
        )  # fmt: skip


def test_flashinfer_s_norm_in_groups_and_mxfp8_s() -> None:
    weight = to_torch(make_weight(384, "bfloat16"))

    def in_groups(x: Any, residual: Any, weight: Any) -> Any:
        out, kept = torch.empty(x.shape, dtype=FP8, device=x.device), torch.empty_like(x)
        scales = torch.empty(3, 36, device=x.device)
        jitnorm.fused_add_rmsnorm_fp8_block_quant(out, scales, kept, x, residual, weight)
        return out, scales, kept

    for kind in INPUT_KINDS:
        x, residual = make(kind, 33, 384, "bfloat16"), make("random", 33, 384, "bfloat16", 3)
        same_on_both(in_groups, x, residual, weight, what=kind)
        same_on_both(jitnorm.add_rmsnorm_mxfp8quant, x, residual, weight, what=kind)
