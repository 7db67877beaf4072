"""jitnorm.compat.vllm: SwiGLU in FP8 for DeepGEMM, compared with its definition and torch."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import pytest
import torch

from jitnorm import reference
from jitnorm.compat import vllm as ops

ROWS, SIZE = 24, 192
X = torch.randn(ROWS, 2 * SIZE, generator=torch.Generator().manual_seed(1)).bfloat16() * 4
PACKED, COLUMNS = ops.silu_mul_quant_fp8_packed_triton, ops.silu_mul_per_token_group_quant_fp8_colmajor


def gated(activation: str, rounding: Any) -> torch.Tensor:
    """The rounded product, widened."""
    x = X.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return torch.from_numpy(reference.gated_f32(x, activation, rounding=rounding))


def expected(y: torch.Tensor, group_size: int, floor: float, is_power: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes, as bytes, and scales."""
    groups = y.view(len(y), -1, group_size)
    scales = (groups.abs().amax(-1) / 448).clamp(min=floor)
    if is_power:
        scales = torch.exp2(torch.ceil(torch.log2(scales.double()))).float()
    codes = (groups * (1 / scales)[..., None]).clamp(-448, 448).to(torch.float8_e4m3fn)
    return codes.view(len(y), -1).view(torch.uint8), scales


def unpacked(scales: torch.Tensor, groups: int) -> torch.Tensor:
    """Scales, of exponents in bytes."""
    exponents = torch.stack([scales >> 8 * i & 0xFF for i in range(4)], -1).flatten(1)[:, :groups]
    return torch.exp2(exponents.float() - 127)


@pytest.mark.parametrize("group_size", [32, 96])
@pytest.mark.parametrize(
    ("options", "activation"),
    [
        ({}, "silu"),
        ({"clamp_limit": 3.0}, "swiglu:3:1:0"),
        ({"clamp_limit": 5.0, "alpha": 1.702, "beta": 1.0}, "swiglu:5:1.702:1"),
        ({"alpha": 2.0}, "swish:2"),
    ],
)
def test_scales_are_packed_by_fours(group_size: int, options: dict[str, Any], activation: str) -> None:
    groups = SIZE // group_size
    codes, scales = PACKED(X, group_size, **options)
    assert (scales.shape, scales.dtype) == ((ROWS, -(-groups // 4)), torch.int32)
    assert scales.stride() == (1, ROWS)
    wanted = expected(gated(activation, "output"), group_size, 1e-10, True)
    assert torch.equal(codes.view(torch.uint8), wanted[0])
    assert torch.equal(unpacked(scales, groups), wanted[1])
    output = torch.empty_like(codes)
    assert PACKED(X, group_size, output, **options)[0] is output
    assert torch.equal(output.view(torch.uint8), wanted[0])


@pytest.mark.parametrize("is_power", [False, True])
@pytest.mark.parametrize(
    ("options", "activation"), [({}, "silu"), ({"clamp_limit": 3.0, "alpha": 2.0}, "swiglu:3:2:0")]
)
def test_scales_are_column_major(is_power: bool, options: dict[str, Any], activation: str) -> None:
    codes, scales = COLUMNS(X, None, is_power, group_size=64, **options)
    assert scales.stride() == (1, ROWS)
    wanted = expected(gated(activation, "hf"), 64, 1e-10 / 448, is_power)
    assert torch.equal(codes.view(torch.uint8), wanted[0])
    assert torch.equal(scales, wanted[1])
    floor = 448.0  # an amax that no group has
    assert COLUMNS(X, None, is_power, floor * 100, group_size=64)[1].eq(128 if is_power else 100).all()


def test_without_deep_gemm_scales_are_any_numbers() -> None:
    assert torch.equal(COLUMNS(X, group_size=64)[1], COLUMNS(X, None, False, group_size=64)[1])


@pytest.mark.parametrize("is_packed", [True, False])
def test_rows_between_experts_are_not_written(is_packed: bool) -> None:
    # Experts have 3, 0, 8 and 5 rows, and begin at multiples of 8: 0, 8, 8 and 16.
    ends, live = torch.tensor([3, 8, 16, 21]).int(), torch.tensor([*range(3), *range(8, 21)])
    others = torch.ones(ROWS, dtype=torch.bool).index_fill(0, live, False)
    options: dict[str, Any] = {"group_size": 64, "expert_ends": ends, "expert_alignment": 8}
    x = X.clone()
    x[others] = float("nan")

    def quantized(x: torch.Tensor, out: torch.Tensor | None, **options: Any) -> tuple[torch.Tensor, torch.Tensor]:
        if is_packed:
            return PACKED(x, output_q=out, **options)
        return COLUMNS(x, out, False, **options)

    wanted, scales = quantized(X, None, group_size=64)
    output = torch.full((ROWS, SIZE), 99, dtype=torch.uint8).view(torch.float8_e4m3fn)
    made = quantized(x, output, **options)
    assert made[0] is output
    assert torch.equal(output.view(torch.uint8)[live], wanted.view(torch.uint8)[live])
    assert output.view(torch.uint8)[others].eq(99).all()
    assert torch.equal(made[1][live], scales[live])
    assert torch.equal(quantized(x, None, **options)[0].view(torch.uint8)[live], wanted.view(torch.uint8)[live])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beta": 1.0}, "beta: is 1.0, but clamp_limit is None"),
        ({"expert_alignment": 8}, "expert_alignment: is 8"),
        ({"expert_ends": torch.zeros(2).int()}, "expert_alignment: is 0"),
        ({"group_size": 40}, "block_size"),
        ({"input": X[None]}, "input: has 3 dimensions"),
    ],
)
def test_other_arguments_are_refused(options: dict[str, Any], message: str) -> None:
    for function in (PACKED, COLUMNS):
        with pytest.raises(ValueError, match=message):
            function(**{"input": X, **options})


@pytest.mark.gpu
@pytest.mark.parametrize("function", [PACKED, COLUMNS])
def test_the_gpu_s_bytes_are_the_cpu_s(function: Any) -> None:
    options = {"group_size": 64, "clamp_limit": 3.0}
    on_cpu, on_gpu = (function(x, **options) for x in (X, X.cuda()))
    for cpu, gpu in zip(on_cpu, on_gpu, strict=True):
        # Of columns apart, a copy of `view` needs one in which they are not; a clone has its own strides.
        one, other = (each.cpu().clone(memory_format=torch.contiguous_format) for each in (gpu, cpu))
        assert torch.equal(one.view(torch.uint8), other.view(torch.uint8))
