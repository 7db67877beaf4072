"""Fused programs on GPUs give the bytes of the CPU's ops, also as CUDA graphs."""

from __future__ import annotations

from typing import Any

import plain_norms
import pytest
import torch

import jitnorm
from jitnorm import QuantSpec
from jitnorm.torch import fuse, fusions

pytestmark = pytest.mark.gpu

ROWS, SIZE = 130, 1024


def values(*shape: int, seed: int) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).bfloat16()


def assert_same(found: Any, expected: list[Any]) -> None:
    for ours, theirs in zip(torch.utils._pytree.tree_leaves(found), expected, strict=True):
        ours = ours.cpu()
        assert torch.equal(ours.flatten().view(torch.uint8), theirs.flatten().view(torch.uint8))


@pytest.mark.parametrize("cudagraphs", [False, True])
@pytest.mark.parametrize("text", plain_norms.FOUND_SCALES)
def test_a_fused_program_gives_the_bytes_of_the_cpu(text: str, cudagraphs: bool) -> None:
    def program(x: Any, residual: Any, weight: Any) -> Any:
        y, total = plain_norms.add_wide(plain_norms.gemma, x, residual, weight)
        codes, scale = plain_norms.FOUND_SCALES[text](y)
        return codes, scale, total, plain_norms.llama(total, weight)

    torch.compiler.reset()
    fused = torch.compile(program, fullgraph=True, options={**fuse(), "triton.cudagraphs": cudagraphs})
    weight = values(SIZE, seed=1)
    before = sum(each.count for each in fusions() if each.op)
    for seed in range(4):  # to warm up, to capture, to replay
        x, residual = values(ROWS, SIZE, seed=seed), values(ROWS, SIZE, seed=seed + 9)
        with torch.no_grad():
            torch.compiler.cudagraph_mark_step_begin()
            found = fused(x.cuda(), residual.cuda(), weight.cuda())
        q, total = jitnorm.add_norm_quantize(
            x, residual, weight, spec=QuantSpec.parse(text), eps=plain_norms.EPS, unit_bias=True
        )
        assert_same(found, [q.data, q.scale, total, jitnorm.rmsnorm(total, weight, plain_norms.EPS)])
    assert sum(each.count for each in fusions() if each.op) == before + 2
