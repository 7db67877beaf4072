"""The insertion into pages writes the slots of tokens, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitnorm.reference import insert_heads


@given(st.lists(st.integers(-3, 14), max_size=6, unique=True))
def test_slots_have_the_heads_of_their_tokens_and_others_what_they_had(slots: list[int]) -> None:
    cache, heads = -np.arange(24).reshape(4, 3, 2, 1), np.arange(12).reshape(6, 2, 1) + 100
    before, inserted = cache.copy(), insert_heads(cache, heads, np.array(slots, int))
    assert (cache == before).all()
    for slot, (found, had) in enumerate(zip(inserted.reshape(12, 2, 1), before.reshape(12, 2, 1), strict=True)):
        assert (found == (heads[slots.index(slot)] if slot in slots else had)).all()


def test_other_shapes_are_refused() -> None:
    cache, heads = np.zeros((4, 3, 2, 1)), np.zeros((6, 2, 1))
    with pytest.raises(ValueError, match="heads has shape"):
        insert_heads(cache, heads[:, :1], np.zeros(6, int))
    with pytest.raises(ValueError, match=r"slot_mapping has shape \(7,\); \(6,\) or less is needed"):
        insert_heads(cache, heads, np.zeros(7, int))
