"""Heads and columns that the launcher finds in packed tensors: with the effects of views that torch would make."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import jitnorm
from jitnorm.compat import flashinfer, vllm

EPS, SIZE = 1e-5, 64
GENERATOR = torch.Generator().manual_seed(11)
QKV = torch.randn(3, 8 * SIZE, generator=GENERATOR).bfloat16()
WEIGHT, TABLE = torch.randn(2, SIZE, generator=GENERATOR).bfloat16(), torch.randn(8, 32, generator=GENERATOR)
POSITIONS = torch.tensor([3, 0, 7])


def turn(qkv: torch.Tensor, heads: tuple[int, int, int] = (4, 2, 2), positions: torch.Tensor = POSITIONS) -> None:
    vllm.fused_qk_norm_rope(qkv, *heads, SIZE, EPS, *WEIGHT, TABLE, True, positions)


def turned(qkv: torch.Tensor, positions: torch.Tensor = POSITIONS) -> torch.Tensor:
    """What `turn` makes of it, by views."""
    made = qkv.clone()
    q, k, _ = made.unflatten(-1, (8, SIZE)).split([4, 2, 2], -2)
    jitnorm.qk_rmsnorm_rope(q, k, *WEIGHT, TABLE, positions, EPS, q_out=q, k_out=k)
    return made


def test_heads_are_found_at_any_stride_and_offset_without_the_slow_path(slow_calls: list[str]) -> None:
    wide = torch.zeros(2, 3, 3, 9 * SIZE, dtype=QKV.dtype)
    cases: list[tuple[torch.Tensor, torch.Tensor]] = [
        (QKV.clone(), POSITIONS),
        (wide[0, :, 1, SIZE:], POSITIONS),
        (wide[:, :, 0, : 8 * SIZE], POSITIONS.repeat(2)),
        (QKV[:0].clone(), POSITIONS[:0]),
    ]
    for given, positions in cases:
        given.copy_(QKV.expand_as(given) if given.numel() else given)
        expected, before = turned(given, positions), given.clone()
        for _ in range(3):
            given.copy_(before)
            slow_calls.clear()
            version = given._version
            turn(given, positions=positions)
            assert torch.equal(given, expected)
            assert given._version > version
        assert not slow_calls or not given.numel()
    assert not wide[1, :, 1].any()


def test_tensors_that_no_kernel_may_write_are_refused_as_views_would_be() -> None:
    for _ in range(2):
        with pytest.raises((TypeError, ValueError, RuntimeError), match="grad"):
            turn(QKV.clone().requires_grad_())
        negative = torch._neg_view(QKV.clone())
        with pytest.raises((TypeError, ValueError), match="q: is a view that changes signs"):
            turn(negative)
        turn(QKV.clone())
    with pytest.raises(ValueError, match="qkv: has 512 columns; 9 heads of 64 are 576"):
        turn(QKV.clone(), (4, 3, 2))


def test_traced_calls_find_them_too() -> None:
    compiled = torch.compile(turn, fullgraph=True, backend="aot_eager")
    given = QKV.clone()
    compiled(given)
    assert torch.equal(given, turned(QKV))
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        turn(mode.from_tensor(QKV), positions=mode.from_tensor(POSITIONS))


@pytest.mark.parametrize("rows", [1, 4, 6])
@pytest.mark.parametrize("is_whole", [True, False])
def test_packed_scales_fill_columns_as_far_as_there_is_memory(rows: int, is_whole: bool, slow_calls: list[str]) -> None:
    x = torch.randn(rows, 512, generator=GENERATOR).bfloat16()
    codes, wanted = vllm.per_token_group_quant_fp8_packed_for_deepgemm(x, 32)
    length = (rows + 3) // 4 * 4
    for _ in range(3):
        slow_calls.clear()
        memory = torch.full((4 * length if is_whole else 3 * length + rows,), -1, dtype=torch.int32)
        scales, found = memory.as_strided((rows, 4), (1, length)), torch.empty_like(codes)
        vllm._C.per_token_group_fp8_quant_packed(x, found, scales, 32, 1e-10, -448.0, 448.0)
        assert torch.equal(scales, wanted)
        assert torch.equal(found.view(torch.uint8), codes.view(torch.uint8))
    assert not slow_calls or not (is_whole or rows % 4 == 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8, torch.int64])
def test_packed_scales_of_another_dtype_are_refused(dtype: torch.dtype) -> None:
    x = torch.zeros(6, 512, dtype=torch.bfloat16)
    scales = torch.empty_strided((6, 4), (1, 8), dtype=dtype)
    with pytest.raises(ValueError, match=r"output_s_packed: dtype is .*; allowed is torch\.int32"):
        vllm._C.per_token_group_fp8_quant_packed(x, x.to(torch.float8_e4m3fn), scales, 32, 1e-10, -448.0, 448.0)


def test_gates_of_another_shape_are_reshaped() -> None:
    x, gate = QKV[None], QKV.flip(0)
    ones = torch.ones(QKV.shape[-1])
    norms: list[Callable[[torch.Tensor], tuple[torch.Tensor, ...]]] = [
        lambda of: flashinfer.fused_dit_gate_residual_layernorm_gamma_beta(x, x, of, ones, ones),
        lambda of: flashinfer.fused_dit_gate_residual_layernorm_scale_shift(x, x, of, of, of),
        lambda of: flashinfer.fused_dit_residual_layernorm_scale_shift(x, of, of),
    ]
    for norm in norms:
        for of in (gate, gate[:, None], gate[None]):
            assert all(map(torch.equal, norm(of), norm(gate[None])))
        with pytest.raises(RuntimeError, match="shape"):
            norm(gate[:2])
