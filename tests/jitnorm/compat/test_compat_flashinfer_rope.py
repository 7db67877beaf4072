"""jitnorm.compat.flashinfer.rope: heads in two dimensions, rotated by a table."""

from __future__ import annotations

import pytest
import torch

import jitnorm
from jitnorm.compat import flashinfer


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
