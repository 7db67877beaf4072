"""Checks of the shapes of arguments for rotated heads: tables of angles, caches, scales."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from jitnorm.ops.forms import Form, Kind, Shape, text_of


def rotary_size_of(table: Shape) -> int | None:
    """How many elements of a head a table of angles rotates; ValueError if it is not such a table."""
    rotary_size = table[-1] if len(table) == 2 else None
    if rotary_size is None or rotary_size < 2 or rotary_size % 2:
        raise ValueError(
            f"cos_sin_cache: shape is {text_of(table)}; expected (max_position, rotary_size), of which the second is "
            "even and not 0"
        )
    return rotary_size


def check_caches(k: Shape, key_cache: Shape, value_cache: Shape) -> None:
    """Raise ValueError if the caches do not hold heads like those of `k`, given the last two extents of each."""
    for name, cache in (("key_cache", key_cache), ("value_cache", value_cache)):
        if len(cache) != 4 or len(k) < 2 or cache[-2:] != k[-2:]:
            raise ValueError(
                f"{name}: shape is {text_of(cache)}; expected (pages, page size, heads, head size), of which k, "
                f"of shape {text_of(k)}, has the last two"
            )


def check_kept(keep_heads: bool, has_k: bool, has_v: bool) -> None:
    """Raise ValueError if outputs are given for heads that are not kept."""
    if not keep_heads and (has_k or has_v):
        raise ValueError(
            f"{'v_out' if has_v else 'k_out'}: is given, but keep_heads is False; pass None or keep_heads=True"
        )


def with_scales(form: Form, k: Shape, k_scale: Kind, v_scale: Kind) -> Form:
    """The form of calls with these scales; ValueError if one has neither one element nor one per head."""
    found = {"k_scale": k_scale, "v_scale": v_scale}
    for name, scale in found.items():
        if isinstance(scale, tuple) and scale not in ((), (1,), k[-2:-1]):
            heads = 1 if len(k) < 2 else k[-2]
            raise ValueError(f"{name}: shape is {text_of(scale)}; expected (1,), or ({heads},), one for each head")
    single = {name: _one_dimensional for name, scale in found.items() if scale == ()}
    return replace(form, converted=single) if single else form


def _one_dimensional(scale: Any, _: Any) -> Any:
    return scale.reshape(1)
