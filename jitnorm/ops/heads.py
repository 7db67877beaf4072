"""Checks of the arguments for rotated heads: tables of angles, caches, scales."""

from __future__ import annotations

from typing import Any

from jitnorm.interop import check_shaped


def rotary_size_of(cos_sin_cache: Any) -> int:
    """How many elements of a head a table of angles rotates; ValueError if it is not such a table."""
    check_shaped(cos_sin_cache, "cos_sin_cache")
    rotary_size = int(cos_sin_cache.shape[-1]) if len(cos_sin_cache.shape) == 2 else -1
    if rotary_size < 2:
        raise ValueError(
            f"cos_sin_cache: shape is {tuple(cos_sin_cache.shape)}; expected (max_position, rotary_size), of which the "
            "second is even and not 0"
        )
    return rotary_size


def check_caches(k: Any, key_cache: Any, value_cache: Any, keep_heads: bool, k_out: Any, v_out: Any) -> None:
    """Raise an error if the caches do not hold heads like those of `k`, or outputs are given for heads not kept."""
    check_shaped(k, "k")
    for name, cache in (("key_cache", key_cache), ("value_cache", value_cache)):
        check_shaped(cache, name)
        if len(cache.shape) != 4 or len(k.shape) < 2 or tuple(cache.shape[2:]) != tuple(k.shape[-2:]):
            raise ValueError(
                f"{name}: shape is {tuple(cache.shape)}; expected (pages, page size, heads, head size), of which k, "
                f"of shape {tuple(k.shape)}, has the last two"
            )
    if not keep_heads and (k_out is not None or v_out is not None):
        raise ValueError(
            f"{'k_out' if v_out is None else 'v_out'}: is given without keep_heads=True; pass both or none"
        )


def scale_of_heads(scale: Any, name: str, k: Any) -> Any:
    """A one-dimensional scale with one element, or one per head; ValueError if it is neither."""
    check_shaped(scale, name)
    check_shaped(k, "k")
    heads = k.shape[-2] if len(k.shape) > 1 else 1
    if len(scale.shape) == 0:
        return scale.reshape(1)
    if len(scale.shape) != 1 or scale.shape[0] not in (1, heads):
        raise ValueError(f"{name}: shape is {tuple(scale.shape)}; expected (1,), or ({heads},), one for each head")
    return scale
