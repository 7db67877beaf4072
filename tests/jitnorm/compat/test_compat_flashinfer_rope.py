"""jitnorm.compat.flashinfer.rope: heads rotated by a table or by frequencies, compared with torch."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from turned_heads import angles, turned

import jitnorm
from jitnorm.compat import flashinfer

TOKENS, SIZE = 9, 64
POSITIONS = torch.tensor([0, 3, 100_000, 1, 1, 7, 8, 2000, 5])


def heads(count: int, seed: int = 0, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    return torch.randn(TOKENS, count, SIZE, generator=torch.Generator().manual_seed(seed)).to(dtype)


def frequencies(size: int, theta: float, scale: float, smoothing: tuple[float, ...]) -> torch.Tensor:
    """Those of the pairs, one by one."""
    found = []
    for pair in range(size // 2):
        frequency = theta ** (-2 * pair / size)
        kept = 0.0
        if smoothing:
            low, high, length = smoothing
            periods = length * frequency / (2 * math.pi)  # in the original context
            kept = min(1.0, max(0.0, (periods - low) / (high - low)))
        found.append((1 - kept) * frequency / scale + kept * frequency)
    return torch.tensor(found, dtype=torch.float64)


@pytest.mark.parametrize("is_neox", [True, False])
def test_heads_are_turned_into_new_tensors_or_in_place(is_neox: bool) -> None:
    generator = torch.Generator().manual_seed(8)
    packed, table = torch.randn(5, 6 * 64, generator=generator).half(), torch.randn(9, 32, generator=generator)
    positions = torch.tensor([0, 3, 8, 1, 1])
    heads = packed.unflatten(-1, (6, 64)).split([4, 2], 1)
    expected = [each.flatten(1) for each in jitnorm.rope(*heads, table, positions, is_neox)]
    q, k = packed.split([256, 128], 1)
    before = packed.clone()
    made = flashinfer.apply_rope_with_cos_sin_cache(positions, q, k, 64, table, is_neox)
    assert torch.equal(packed, before)
    assert all(map(torch.equal, made, expected))
    flashinfer.rope.apply_rope_with_cos_sin_cache_inplace(positions, q, k, 64, table, is_neox)
    assert torch.equal(packed, torch.cat(expected, 1))


@pytest.mark.parametrize(
    ("name", "options", "theta", "scale", "smoothing"),
    [
        ("apply_rope_pos_ids", {}, 1e4, 1, ()),
        ("apply_rope_pos_ids", {"rope_scale": 4, "rope_theta": 3e4, "interleave": True, "rotary_dim": 48}, 3e4, 4, ()),
        ("apply_llama31_rope_pos_ids", {"rotary_dim": 32}, 5e5, 8, (1, 4, 8192)),
        (
            "apply_llama31_rope_pos_ids",
            {"low_freq_factor": 2, "high_freq_factor": 3, "old_context_len": 512, "interleave": True},
            5e5,
            8,
            (2, 3, 512),
        ),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_frequencies_turn_heads_by_their_positions(
    name: str, options: dict[str, Any], theta: float, scale: float, smoothing: Any, dtype: torch.dtype
) -> None:
    q, k = heads(4, 1, dtype), heads(2, 2, dtype)
    size = options.get("rotary_dim", SIZE)
    rows = angles(POSITIONS, frequencies(size, theta, scale, smoothing))
    expected = [turned(each, rows, not options.get("interleave")).to(dtype) for each in (q, k)]
    before = q.clone(), k.clone()
    made = getattr(flashinfer, name)(q, k, POSITIONS.int(), **options)
    assert torch.equal(q, before[0])
    for found, wanted in zip(made, expected, strict=True):
        torch.testing.assert_close(found, wanted, rtol=0, atol=0)
    assert getattr(flashinfer, f"{name}_inplace")(q, k, POSITIONS, **options) is None
    assert torch.equal(q, made[0])
    assert torch.equal(k, made[1])


@pytest.mark.parametrize("name", ["apply_rope", "apply_llama31_rope"])
def test_segments_begin_at_their_offsets(name: str) -> None:
    q, k = heads(4, 1), heads(2, 2)
    # The second segment is empty; the last two tokens belong to none.
    indptr, offsets = torch.tensor([0, 3, 3, 7]).int(), torch.tensor([10, 99, 500]).int()
    positions = torch.tensor([10, 11, 12, 500, 501, 502, 503, 0, 0])
    expected = getattr(flashinfer, f"{name}_pos_ids")(q, k, positions, interleave=True)
    made = getattr(flashinfer, name)(q, k, indptr, offsets, interleave=True)
    assert all(map(torch.equal, made, expected))
    assert torch.equal(made[0][7:], q[7:])
    assert not torch.equal(made[0][0], q[0])
    getattr(flashinfer, f"{name}_inplace")(q, k, indptr, offsets, interleave=True)
    assert torch.equal(q, expected[0])
    assert torch.equal(k, expected[1])


def test_there_may_be_no_tokens() -> None:
    none = torch.zeros(1, dtype=torch.int32)
    for made in (
        flashinfer.apply_rope_pos_ids(heads(4)[:0], heads(2)[:0], POSITIONS[:0]),
        flashinfer.apply_llama31_rope(heads(4)[:0], heads(2)[:0], none, none[:0]),
    ):
        assert [tuple(each.shape) for each in made] == [(0, 4, SIZE), (0, 2, SIZE)]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: flashinfer.apply_rope_pos_ids(x, x, POSITIONS, rotary_dim=66), "rotary_dim: is 66"),
        (lambda x: flashinfer.apply_rope_pos_ids(x, x, POSITIONS, rotary_dim=15), "rotary_dim: is 15"),
        (lambda x: flashinfer.apply_rope_pos_ids(x, x, POSITIONS[:3]), "q, k, pos_ids: shapes are"),
        (lambda x: flashinfer.apply_rope(x, x, POSITIONS[:3], POSITIONS[:3]), "indptr: has 3 elements"),
    ],
)
def test_other_arguments_are_refused(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(heads(2))


@pytest.mark.gpu
def test_the_gpu_turns_as_the_cpu_does() -> None:
    """Cosines and sines are torch's, which may round to another neighbour there."""
    q, k = heads(4, 1), heads(2, 2)
    on_cpu = flashinfer.apply_llama31_rope_pos_ids(q, k, POSITIONS)
    on_gpu = flashinfer.apply_llama31_rope_pos_ids(q.cuda(), k.cuda(), POSITIONS.cuda())
    for cpu, gpu in zip(on_cpu, on_gpu, strict=True):
        torch.testing.assert_close(gpu.cpu(), cpu, rtol=1e-3, atol=1e-3)
