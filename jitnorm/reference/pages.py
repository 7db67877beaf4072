"""Paged caches of keys and values."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from jitnorm.reference.checks import require_shape


def insert_heads(cache: NDArray[Any], heads: NDArray[Any], slot_mapping: NDArray[Any]) -> NDArray[Any]:
    """A cache with the heads of tokens at their slots.

    Args:
        cache: (P, S, N, D): P pages of S tokens with N heads each.
        heads: (T, N, D), elements or codes of the cache's dtype.
        slot_mapping: (T',) integers, T' at most T: token i is inserted as token ``slot_mapping[i] % S`` of page
            ``slot_mapping[i] // S``; not if the slot is negative or there is no such page, nor from T' on. No slot is
            there twice.

    Returns:
        A new cache, like `cache`.

    Raises:
        ValueError: An array has a shape that is not listed above.

    Example:
        >>> import numpy as np
        >>> insert_heads(np.zeros((2, 2, 1, 1), int), np.array([[[5]], [[6]], [[7]]]), np.array([3, -1])).tolist()
        [[[[0]], [[0]]], [[[0]], [[5]]]]
    """
    require_shape(heads, (len(heads), *cache.shape[2:]), "heads")
    if slot_mapping.ndim != 1 or len(slot_mapping) > len(heads):
        raise ValueError(f"slot_mapping has shape {slot_mapping.shape}; ({len(heads)},) or less is needed")
    pages, page_size = cache.shape[:2]
    inserted: NDArray[Any] = cache.copy()
    for token, slot in enumerate(slot_mapping.tolist()):
        if 0 <= slot < pages * page_size:
            inserted[slot // page_size, slot % page_size] = heads[token]
    return inserted
