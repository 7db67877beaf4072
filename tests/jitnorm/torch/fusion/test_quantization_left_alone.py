"""If no op computes a quantization exactly as written, only the norm before it is fused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import plain_norms
import pytest
import torch
from fused_graphs import ROWS, SIZE, WEIGHT, run, values

from jitnorm.torch import fusions


def other_floor(y: Any) -> Any:
    scale = y.float().abs().amax(-1, keepdim=True).clamp(min=1e-12) / 448
    return (y.float() / scale).clamp(-448, 448).to(torch.float8_e4m3fn), scale


def no_floor(y: Any) -> Any:
    """Quantization like torchao's, whose scales are also rounded to bfloat16."""
    scale = (y.abs().amax(-1, keepdim=True) / 448).float()
    return (y.float() / scale).clamp(-448, 448).to(torch.float8_e4m3fn), scale


def other_largest(y: Any) -> Any:
    scale = (y.abs().amax(-1, keepdim=True).float() / 240).clamp(min=1 / (512 * 448))
    return (y.float() / scale).clamp(-448, 448).to(torch.float8_e4m3fn), scale


def divided_in_bfloat16(y: Any) -> Any:
    scale = (y.abs().amax(-1, keepdim=True) / 448).float().clamp(min=1 / (512 * 448))
    return (y.float() / scale).clamp(-448, 448).to(torch.float8_e4m3fn), scale


def bounded_in_bfloat16(y: Any) -> Any:
    groups = y.unflatten(-1, (-1, 64))
    scale = groups.abs().amax(-1, keepdim=True).clamp(min=1e-4).float() / 448
    return (groups.float() / scale).clamp(-448, 448).to(torch.float8_e4m3fn), scale


def largest_value(y: Any) -> Any:
    scale = (y.amax(-1, keepdim=True).float() / 448).clamp(min=1 / (512 * 448))
    return (y.float() / scale).clamp(-448, 448).to(torch.float8_e4m3fn), scale


def whole_tensor(y: Any) -> Any:
    scale = (y.abs().amax().float() / 448).clamp(min=1 / (512 * 448))
    return (y.float() / scale).clamp(-448, 448).to(torch.float8_e4m3fn), scale


def columns(y: Any) -> Any:
    scale = (y.abs().amax(0, keepdim=True).float() / 448).clamp(min=1 / (512 * 448))
    return (y.float() / scale).clamp(-448, 448).to(torch.float8_e4m3fn), scale


def groups_of_32(y: Any) -> Any:
    y = y.float().unflatten(-1, (-1, 32))
    scale = y.abs().amax(-1, keepdim=True).clamp(1e-4) / 448
    return (y / scale).clamp(-448, 448).to(torch.float8_e4m3fn), scale


def unclamped(y: Any) -> Any:
    return (y.float() / torch.ones(1)).to(torch.float8_e4m3fn), y[0]


def clamped_elsewhere(y: Any) -> Any:
    return (y.float() / torch.ones(1)).clamp(-240, 240).to(torch.float8_e4m3fn), y[0]


def scaled_in_bfloat16(y: Any) -> Any:
    return (y / torch.tensor(0.5)).clamp(-448, 448).to(torch.float8_e4m3fn), y[0]


def scale_of_each_column(y: Any) -> Any:
    return (y.float() / torch.ones(SIZE)).clamp(-448, 448).to(torch.float8_e4m3fn), y[0]


def scaled_norm_needed(y: Any) -> Any:
    scale = (y.abs().amax(-1, keepdim=True).float() / 448).clamp(min=1 / (512 * 448))
    y = y.float() / scale
    return y.clamp(-448, 448).to(torch.float8_e4m3fn), y


def to_int8(y: Any) -> Any:
    scale = y.abs().amax(-1, keepdim=True).float() / 127
    return (y.float() / scale).round().clamp(-128, 127).to(torch.int8), scale


UNENCODED = [
    other_floor, no_floor, other_largest, divided_in_bfloat16, bounded_in_bfloat16, largest_value, whole_tensor,
    columns, groups_of_32, unclamped, clamped_elsewhere, scaled_in_bfloat16, scale_of_each_column, scaled_norm_needed,
    to_int8,
]  # fmt: skip


@pytest.mark.parametrize("encode", UNENCODED, ids=lambda encode: encode.__name__)
def test_of_quantization_that_no_op_computes_only_the_norm_is_fused(encode: Callable[..., Any]) -> None:
    def program(x: Any) -> Any:
        return encode(plain_norms.gemma(x, WEIGHT))

    assert run(program, values(ROWS, SIZE)).ops == ["jitnorm::gemma_rmsnorm"]
    found = run(program, values(ROWS, SIZE), norms=False)
    assert found.after == found.before


def test_scales_of_rows_that_divide_columns_are_not_those_of_the_op() -> None:
    def program(x: Any) -> Any:
        y = plain_norms.gemma(x, WEIGHT).float()
        scale = (y.abs().amax(-1) / 448).clamp(min=1 / (512 * 448))
        return (y / scale).clamp(-448, 448).to(torch.float8_e4m3fn), scale

    assert run(program, values(SIZE, SIZE)).ops == ["jitnorm::gemma_rmsnorm"]


def test_a_scale_that_depends_on_the_sum_is_no_given_one() -> None:
    """The op would need its own result."""

    def program(x: Any, residual: Any) -> Any:
        y, total = plain_norms.add_wide(plain_norms.gemma, x, residual, WEIGHT)
        return plain_norms.static_of_vllm(y, total[0, 0].float().abs() + 1)

    found = run(program, values(ROWS, SIZE), values(ROWS, SIZE, seed=1))
    assert found.ops == ["jitnorm::gemma_add_rmsnorm"]
    assert any("before" in each.reason for each in fusions())


def test_norms_that_nothing_quantizes_may_be_left_to_the_compiler() -> None:
    def program(x: Any) -> Any:
        return plain_norms.token_of_vllm(plain_norms.llama(plain_norms.gemma(x, WEIGHT), WEIGHT))

    assert run(program, values(ROWS, SIZE), norms=False).ops == ["jitnorm::norm_quantize"]
