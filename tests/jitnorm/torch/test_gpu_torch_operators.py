"""Operators and compiled programs on GPUs return the bytes of the CPU, also in CUDA graphs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch_calls
from torch.library import opcheck

import jitnorm
import jitnorm.torch
from jitnorm import MXFP8, NVFP4
from jitnorm.catalogue import OPS

pytestmark = pytest.mark.gpu

SIZE = torch_calls.SIZE


def to_gpu(value: Any) -> Any:
    return value.cuda() if isinstance(value, torch.Tensor) else value


@pytest.mark.parametrize("name", [name for name, op in OPS.items() if "paged" in op.fixed])
def test_operators_that_write_parts_keep_the_rules_and_give_the_bytes_of_the_cpu(name: str) -> None:
    for out, args, written in torch_calls.operator_calls(name):
        on_gpu, outputs = tuple(map(to_gpu, args)), {key: to_gpu(value) for key, value in written.items()}
        out(*args, **written)
        out(*on_gpu, **outputs)
        for ours, theirs in zip(torch_calls.leaves(outputs), torch_calls.leaves(written), strict=True):
            assert torch.equal(ours.cpu(), theirs)
        opcheck(out, on_gpu, outputs)


@pytest.mark.parametrize("name", [name for name, op in OPS.items() if "paged" not in op.fixed])
def test_operators_keep_the_rules_and_give_the_bytes_of_the_cpu(name: str) -> None:
    calls = iter(torch_calls.operator_calls(name))
    for (function, args, options), (out, _, written) in zip(calls, calls, strict=True):
        on_gpu = tuple(map(to_gpu, args))
        outputs = {key: to_gpu(value) for key, value in written.items()}
        found, expected = function(*on_gpu, **options), function(*args, **options)
        if "amax_parts=256" in options.get("config", ""):  # each block writes its own
            found, expected = (each.amax(0, keepdim=True) for each in (found, expected))
        for ours, theirs in zip(torch_calls.leaves(found), torch_calls.leaves(expected), strict=True):
            assert torch.equal(ours.cpu(), theirs)
        opcheck(function, on_gpu, options)
        opcheck(out, on_gpu, outputs)


def program(x: Any, residual: Any, weight: Any) -> Any:
    y = x * 2
    jitnorm.fused_add_rmsnorm(y, residual, weight)
    q, total = jitnorm.add_norm_quantize(y, residual, weight, spec=NVFP4.with_layout("128x4"), global_scale="tensor")
    return y + total, q.data.view(torch.uint8), q.scale, jitnorm.quantize(y, spec=MXFP8)


def inputs(rows: int) -> tuple[Any, ...]:
    x, residual = torch.randn(2, rows, SIZE, generator=torch.Generator().manual_seed(rows)).bfloat16().cuda()
    return x, residual, torch.linspace(0.5, 2, SIZE).bfloat16().cuda()


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_compiled_programs_give_the_same_bytes(mode: str) -> None:
    """The mode "reduce-overhead" runs programs as trees of CUDA graphs."""
    compiled = torch.compile(program, fullgraph=True, dynamic=False, mode=mode)
    for rows in (4, 130):
        for _ in range(4):  # to warm up, to capture, to replay
            torch.compiler.cudagraph_mark_step_begin()
            mine, theirs = inputs(rows), inputs(rows)
            found, expected = compiled(*mine), program(*theirs)
            for ours, other in zip(
                torch_calls.leaves((found, mine)), torch_calls.leaves((expected, theirs)), strict=True
            ):
                assert torch.equal(ours, other)


class Block(torch.nn.Module):
    def forward(self, x: Any, residual: Any, weight: Any) -> Any:
        y = jitnorm.rmsnorm(x * 2, weight)
        jitnorm.fused_add_rmsnorm(y, residual, weight)
        return y, *jitnorm.fp4_quantize(y)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_program_is_compiled_ahead_of_time(device: str, tmp_path: Path) -> None:
    """This includes the CPU, for which a C++ compiler takes too long in the usual tests."""
    rows = {0: torch.export.Dim("rows")}
    given = tuple(tensor.to(device) for tensor in inputs(5))
    exported = torch.export.export(Block(), given, dynamic_shapes=(rows, rows, None))
    package = torch._inductor.aoti_compile_and_package(exported, package_path=str(tmp_path / "block.pt2"))
    compiled = torch._inductor.aoti_load_package(package)
    for count in (5, 7):
        mine, theirs = ([tensor.to(device) for tensor in inputs(count)] for _ in range(2))
        found, expected = compiled(*mine), Block()(*theirs)
        for ours, other in zip(torch_calls.leaves((found, mine)), torch_calls.leaves((expected, theirs)), strict=True):
            assert torch.equal(ours, other)


def test_a_graph_captured_by_hand_replays_operators() -> None:
    x, _, weight = inputs(8)
    out = torch.empty_like(x)
    operator = torch.ops.jitnorm.rmsnorm.out
    operator(x, weight, 1e-6, out=out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        operator(x, weight, 1e-6, out=out)
    x.copy_(x * 3 + 1)
    graph.replay()
    assert torch.equal(out, jitnorm.rmsnorm(x, weight))
