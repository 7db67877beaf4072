"""Generic kernels and tiered mode on the GPU: the bytes are those of the CPU target, whichever kernel runs."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from expected import assert_same_bytes, expected_rmsnorm
from frameworks import to_torch
from inputs import INPUT_KINDS, make_input, make_weight
from jitnorm.cache import Cache, Store
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.generic import generic_config
from kernel_calls import call, make_arguments, outputs_of
from stopping_compiler import BOUND, Compiler

from jitnorm import background, get_kernel, manager, rmsnorm, tiered
from jitnorm.background import BuildQueue, wait_for_builds
from jitnorm.dispatch import cuda_target
from jitnorm.toolchains.nvrtc import Nvrtc

pytestmark = pytest.mark.gpu

# What is to be a multiple of its blocks, and how it is called.
CASES = [
    (1, "rmsnorm:hidden_size={},pdl=true"),
    (1, "rmsnorm:hidden_size={},input=float16,weight=float32,unit_bias=true"),
    (1, "rmsnorm:hidden_size={},input=float32,residual=true,keep_rstd=true"),
    (1, "rmsnorm:hidden_size={},input=float16,pair=true"),
    (1, "layernorm:hidden_size={}"),
    (1, "rmsnorm:hidden_size={},residual=true,amax_only=true"),
    (1, "rmsnorm:hidden_size={},residual=true,quant=e4m3/tensor/f32,pdl=true"),
    (1, "layernorm:hidden_size={},quant=e5m2/row/f32,scale_ub=true"),
    (16, "rmsnorm:hidden_size={},residual=true,keep_norm=true,quant=e2m1/16/e4m3/linear+128x4/row,pdl=true"),
    (16, "quantize:hidden_size={},input=float16,quant=e2m1/16/e4m3/128x4/given/up/true,alignment=96"),
    (16, "quantize:hidden_size={},quant=e2m1/16/e4m3/8x4/tensor,batched=true"),
    (32, "rmsnorm:hidden_size={},quant=e2m1/32/ue8m0/128x4/none/floor/false"),
    (32, "quantize:hidden_size={},quant=e4m3/32/ue8m0/linear+128x4,alignment=128"),
    (128, "rmsnorm:hidden_size={},quant=e4m3/128/f32_ue8m0/column4,scale_ub=true"),
]
SIZES = {
    1: (1, 17, 513, 1000, 4096, 65537),
    16: (16, 528, 4112, 65536),
    32: (32, 544, 8192, 131072),
    128: (128, 640, 8320, 32768),
}


@pytest.mark.parametrize(("multiple", "text"), CASES)
def test_a_generic_kernel_gives_the_bytes_of_the_cpu(multiple: int, text: str) -> None:
    target = cuda_target(torch.cuda.current_device())
    for size in SIZES[multiple]:
        config = KernelConfig.parse(text.format(size))
        config = replace(config, vector_bytes=1 if size % 16 else 16, pdl=config.pdl and target.has_pdl)
        generic = generic_config(config)
        assert generic is not None
        kinds = INPUT_KINDS if size < 1000 else ("random", "nan")
        for kind in kinds:
            arguments = make_arguments(config, kind, rows=9, matrices=3 if config.batched else 1)
            on_gpu = [to_torch(a, "cuda") if isinstance(a, np.ndarray) else a for a in arguments]
            call(get_kernel(replace(config, pdl=False)), *arguments)
            get_kernel(generic, target)(*on_gpu)
            got, wanted = outputs_of(config, on_gpu), outputs_of(config, arguments)
            for name in wanted:
                assert_same_bytes(got[name], wanted[name], f"{name} of {config}, {kind}")


@pytest.mark.parametrize("rows", [1, 127, 129, 4000])
def test_all_rows_and_all_padding(rows: int) -> None:
    target = cuda_target(torch.cuda.current_device())
    for _, text in CASES[8:]:
        config = KernelConfig.parse(text.format(1024))
        config = replace(config, pdl=config.pdl and target.has_pdl)
        generic = generic_config(config)
        assert generic is not None
        arguments = make_arguments(config, "real", rows, matrices=2 if config.batched else 1)
        on_gpu = [to_torch(a, "cuda") if isinstance(a, np.ndarray) else a for a in arguments]
        call(get_kernel(replace(config, pdl=False)), *arguments)
        get_kernel(generic, target)(*on_gpu)
        got, wanted = outputs_of(config, on_gpu), outputs_of(config, arguments)
        for name in wanted:
            assert_same_bytes(got[name], wanted[name], f"{name} of {config}, {rows} rows")


FIRST, NEW, OTHER = 192, 320, 448


@pytest.fixture
def compiler(
    tmp_path: Path, fresh_dispatchers: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> Iterator[Compiler]:
    """Tiered mode, with an empty cache, nothing in memory and a compiler that stops; no build may fail."""
    compiler, store, queue = Compiler(Nvrtc, monkeypatch), Store(tmp_path / "cache"), BuildQueue()
    monkeypatch.setattr(manager, "user_cache", lambda: Cache(store))
    monkeypatch.setattr(manager, "_kernels", {})
    monkeypatch.setattr(manager, "_locks", {})
    monkeypatch.setattr(background, "builds", queue)
    monkeypatch.setattr(tiered, "builds", queue)
    monkeypatch.setenv("JITNORM_TIERED", "1")
    monkeypatch.setenv("JITNORM_BACKEND", "nvrtc")
    with caplog.at_level(logging.WARNING, "jitnorm.background"):
        yield compiler
        compiler.go_on.set()
        assert queue.wait(BOUND)
    assert not caplog.get_records("call")


def tensors(hidden_size: int) -> tuple[torch.Tensor, torch.Tensor, Any]:
    x, weight = make_input("random", 300, hidden_size, "bfloat16"), make_weight(hidden_size, "bfloat16")
    return to_torch(x, "cuda"), to_torch(weight, "cuda"), expected_rmsnorm(x, weight)


def check(hidden_size: int) -> None:
    x, weight, expected = tensors(hidden_size)
    assert_same_bytes(rmsnorm(x, weight), expected)


def test_no_byte_changes_when_a_kernel_takes_the_place_of_the_generic_one(compiler: Compiler) -> None:
    check(FIRST)
    assert wait_for_builds(BOUND)
    compiler.stops_at = {str(NEW)}
    x, weight, expected = tensors(NEW)
    for _ in range(20):
        assert_same_bytes(rmsnorm(x, weight), expected)
    assert not wait_for_builds(0)
    compiler.go_on.set()
    while not wait_for_builds(0.001):
        assert_same_bytes(rmsnorm(x, weight), expected)
    for _ in range(20):
        assert_same_bytes(rmsnorm(x, weight), expected)
    assert compiler.compiled == [str(FIRST), "any", str(NEW)]


def test_a_capture_is_served_by_the_generic_kernel_and_survives_the_end_of_a_build(compiler: Compiler) -> None:
    check(FIRST)
    assert wait_for_builds(BOUND)
    compiler.stops_at = {str(NEW)}
    check(NEW)
    x, weight, expected = tensors(OTHER)
    out, graph = torch.empty_like(x), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        rmsnorm(x, weight, out=out)
        compiler.go_on.set()
        assert wait_for_builds(BOUND)
        rmsnorm(x, weight, out=out)
    out.zero_()
    graph.replay()
    assert_same_bytes(out, expected)
    assert str(OTHER) not in compiler.compiled
    for size in (NEW, OTHER):
        check(size)
    assert wait_for_builds(BOUND)
    assert compiler.compiled == [str(FIRST), "any", str(NEW), str(OTHER)]


def test_a_capture_after_the_switch_runs_the_kernel_that_was_built(compiler: Compiler) -> None:
    check(FIRST)
    assert wait_for_builds(BOUND)
    x, weight, expected = tensors(NEW)
    rmsnorm(x, weight)
    assert wait_for_builds(BOUND)
    out, graph = torch.empty_like(x), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):  # nothing has called that kernel yet, but it is loaded
        rmsnorm(x, weight, out=out)
    graph.replay()
    assert_same_bytes(out, expected)
