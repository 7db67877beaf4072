"""Norms that no op computes exactly as written stay unchanged, node by node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import plain_norms
import pytest
import torch
from fused_graphs import ROWS, SIZE, WEIGHT, run, values

from jitnorm.torch import fuse


def rms(h: Any, dim: int = -1) -> Any:
    return torch.rsqrt(h.pow(2).mean(dim, keepdim=True) + 1e-6)


def eps_outside(x: Any) -> Any:
    h = x.float()
    return WEIGHT * (h * (torch.rsqrt(h.pow(2).mean(-1, keepdim=True)) + 1e-6)).bfloat16()


def eps_within_the_mean(x: Any) -> Any:
    h = x.float()
    return WEIGHT * (h * torch.rsqrt((h.pow(2) + 1e-6).mean(-1, keepdim=True))).bfloat16()


def eps_as_a_tensor(x: Any) -> Any:
    h = x.float()
    return WEIGHT * (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + WEIGHT[:1])).bfloat16()


def mean_over_columns(x: Any) -> Any:
    h = x.float()
    return WEIGHT * (h * rms(h, 0)).bfloat16()


def mean_over_all(x: Any) -> Any:
    h = x.float()
    return WEIGHT * (h * torch.rsqrt(h.pow(2).mean((0, 1), keepdim=True) + 1e-6)).bfloat16()


def cubes(x: Any) -> Any:
    h = x.float()
    return WEIGHT * (h * torch.rsqrt(h.pow(3).mean(-1, keepdim=True) + 1e-6)).bfloat16()


def statistic_of_another(x: Any) -> Any:
    h = x.float()
    return WEIGHT * (h * rms(h + 1)).bfloat16()


def weight_for_each_row(x: Any) -> Any:
    h = x.float()
    return WEIGHT.expand(ROWS, SIZE).contiguous() * (h * rms(h)).bfloat16()


def weight_as_a_number(x: Any) -> Any:
    h = x.float()
    return 2 * (h * rms(h)).bfloat16()


def weight_of_another_dtype(x: Any) -> Any:
    h = x.float()
    return (h * rms(h) * WEIGHT.half()).bfloat16()


def weight_plus_two(x: Any) -> Any:
    h = x.float()
    return (h * rms(h) * (2 + WEIGHT.float())).half()


def in_float64(x: Any) -> Any:
    h = x.double()
    return WEIGHT * (h * rms(h)).bfloat16()


def in_bfloat16(x: Any) -> Any:
    return WEIGHT * (x * rms(x))


def to_another_dtype(x: Any) -> Any:
    h = x.float()
    return (h * rms(h) * WEIGHT.float()).half()


def transposed(x: Any) -> Any:
    h = x.t().float()
    return WEIGHT[:ROWS] * (h * rms(h)).bfloat16()


def every_second_column(x: Any) -> Any:
    h = x[:, ::2].float()
    return WEIGHT[: SIZE // 2] * (h * rms(h)).bfloat16()


def rows_in_another_order(x: Any) -> Any:
    """The result would have the memory order of the input, unlike an op's result."""
    h = x.view(2, 2, SIZE).transpose(0, 1).float()
    return WEIGHT * (h * rms(h)).bfloat16()


def eps_doubled(x: Any) -> Any:
    h = x.float()
    return WEIGHT * (h * torch.rsqrt(torch.add(h.pow(2).mean(-1, keepdim=True), 1e-6, alpha=2))).bfloat16()


def root_needed(x: Any) -> Any:
    h = x.float()
    root = rms(h)
    return WEIGHT * (h * root).bfloat16(), root


def mean_needed(x: Any) -> Any:
    h = x.float()
    mean = h.pow(2).mean(-1, keepdim=True)
    return WEIGHT * (h * torch.rsqrt(mean + 1e-6)).bfloat16(), mean


def normalized_needed(x: Any) -> Any:
    h = x.float()
    h = h * rms(h)
    return WEIGHT * h.bfloat16(), h


def wide_sum_needed(x: Any) -> Any:
    h = x.float() + WEIGHT.expand(ROWS, SIZE).float()
    return (h * rms(h) * WEIGHT.float()).bfloat16(), h


def wide_norm_needed(x: Any) -> Any:
    h = x.float()
    y = h * rms(h) * WEIGHT.float()
    return y.bfloat16(), y


LEFT = [
    eps_outside, eps_within_the_mean, eps_as_a_tensor, mean_over_columns, mean_over_all, cubes, statistic_of_another,
    weight_for_each_row, weight_as_a_number, weight_of_another_dtype, in_float64, in_bfloat16, to_another_dtype,
    transposed, every_second_column, rows_in_another_order, eps_doubled, root_needed, mean_needed, normalized_needed,
    wide_sum_needed, wide_norm_needed, weight_plus_two,
]  # fmt: skip


@pytest.mark.parametrize("program", LEFT, ids=lambda program: program.__name__)
def test_what_is_no_op_as_it_is_written_stays(program: Callable[..., Any]) -> None:
    found = run(program, values(ROWS, SIZE))
    assert found.after == found.before


def test_compiled_it_gives_the_bits_that_it_gives_without_the_pass() -> None:
    leaves = torch.utils._pytree.tree_leaves
    x = values(ROWS, SIZE)
    with torch.no_grad():
        found = leaves(torch.compile(root_needed, fullgraph=True, options=fuse())(x))
        torch.compiler.reset()
        expected = leaves(torch.compile(root_needed, fullgraph=True)(x))
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(found, expected, strict=True))


def test_a_sum_that_is_weighted_is_the_input_of_the_op() -> None:
    def program(x: Any, residual: Any) -> Any:
        return plain_norms.gemma(torch.add(x, residual, alpha=0.5), WEIGHT)

    assert run(program, values(ROWS, SIZE), values(ROWS, SIZE, seed=1)).ops == ["jitnorm::gemma_rmsnorm"]
