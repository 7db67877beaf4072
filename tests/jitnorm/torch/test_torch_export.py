"""Exported programs contain operators, and can be saved and loaded."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import torch
import torch_calls
from python_process import run_python

import jitnorm

SIZE = torch_calls.SIZE


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.linspace(0.5, 2, SIZE).bfloat16(), requires_grad=False)

    def forward(self, x: Any, residual: Any) -> Any:
        y = jitnorm.rmsnorm(x, self.weight)
        jitnorm.fused_add_rmsnorm(y, residual, self.weight)
        return y, *jitnorm.fp4_quantize(y)  # codes as bytes: torch saves no program that has their own dtype


class Quantize(torch.nn.Module):
    def forward(self, x: Any, residual: Any) -> Any:
        return jitnorm.add_norm_quantize(x, residual, torch.ones(SIZE).bfloat16(), spec=jitnorm.MXFP8)


def inputs(rows: int) -> tuple[Any, Any]:
    x, residual = torch.randn(2, rows, SIZE, generator=torch.Generator().manual_seed(rows)).bfloat16()
    return x, residual


def exported(module: torch.nn.Module, strict: bool = False) -> Any:
    rows = {0: torch.export.Dim("rows")}
    return torch.export.export(module, inputs(5), dynamic_shapes=(rows, rows), strict=strict)


def assert_same(program: Any, module: Any, rows: int) -> None:
    mine, theirs = inputs(rows), inputs(rows)
    for ours, expected in zip(
        torch_calls.leaves((program(*mine), mine)), torch_calls.leaves((module(*theirs), theirs)), strict=True
    ):
        assert torch.equal(ours, expected)


@pytest.mark.parametrize("strict", [False, True])
def test_a_program_for_any_number_of_rows_holds_operators_and_is_saved_and_loaded(strict: bool) -> None:
    program, file = exported(Block(), strict), io.BytesIO()
    targets = {str(node.target) for node in program.graph.nodes}
    assert {"jitnorm.rmsnorm.default", "jitnorm.fused_add_rmsnorm.out", "jitnorm.fp4_quantize.default"} <= targets
    torch.export.save(program, file)
    file.seek(0)
    for rows in (5, 7):
        assert_same(torch.export.load(file).module() if rows == 5 else program.module(), Block(), rows)


def test_a_quantized_tensor_may_be_what_a_program_returns() -> None:
    file = io.BytesIO()
    torch.export.save(exported(Quantize()), file)
    file.seek(0)
    program = torch.export.load(file).module()
    assert program(*inputs(7))[0].shape == (7, SIZE)
    assert_same(program, Quantize(), 7)


LOAD = """
import sys, torch
import jitnorm.torch
torch.save([torch.export.load(path).module()(*torch.load(sys.argv[1])) for path in sys.argv[3:]], sys.argv[2])
"""


def test_in_another_process_exported_programs_need_only_the_import(tmp_path: Path) -> None:
    modules: list[torch.nn.Module] = [Block(), Quantize()]
    paths = [str(tmp_path / name) for name in ("inputs.pt", "results.pt", "block.pt2", "quantize.pt2")]
    torch.save(inputs(7), paths[0])
    for path, module in zip(paths[2:], modules, strict=True):
        torch.export.save(exported(module), path)
    run_python(LOAD, *paths, cwd=tmp_path)
    results = torch.load(paths[1], weights_only=False)
    expected = [module(*inputs(7)) for module in modules]
    for ours, theirs in zip(torch_calls.leaves(results), torch_calls.leaves(expected), strict=True):
        assert torch.equal(ours, theirs)
