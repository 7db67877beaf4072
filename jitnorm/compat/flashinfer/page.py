"""The functions of `flashinfer.page` that encode new tokens in NVFP4; torch inserts the codes and scales.

`batch_indices` and `positions` say which request a token belongs to and where in it, `kv_indices` and `kv_indptr` which
pages a request has; `kv_last_page_len` is not needed. Tokens without a request or a page are skipped. Scales are decode
scales.
"""

from __future__ import annotations

import math
from typing import Any

import torch

import jitnorm
from jitnorm.compat.arguments import as_scale, given_spec
from jitnorm.compat.flashinfer.kv_cache import Pair, halves, nvfp4_kv_quantize
from jitnorm.compat.paged import insert, slots_of, tokens_first

__all__ = [
    "nvfp4_quantize_append_paged_kv_cache",
    "nvfp4_quantize_append_paged_kv_cache_with_slot_mapping",
    "nvfp4_quantize_append_paged_mla_kv_cache",
]

Part = tuple[str, torch.Tensor, torch.Tensor]
"""A cache's name, the cache, and what is inserted into it."""


def nvfp4_quantize_append_paged_kv_cache(
    append_key: torch.Tensor,
    append_value: torch.Tensor,
    batch_indices: torch.Tensor,
    positions: torch.Tensor,
    paged_kv_cache: torch.Tensor | Pair,
    kv_cache_sf: torch.Tensor | Pair,
    kv_indices: torch.Tensor,
    kv_indptr: torch.Tensor,
    kv_last_page_len: torch.Tensor,
    k_scale: float,
    v_scale: float,
    kv_layout: str = "NHD",
) -> None:
    """Encode keys and values, (tokens, heads, head size), and insert them by their requests and positions."""
    page_size = tokens_first(halves(paged_kv_cache)[0], kv_layout).shape[1]
    slots = slots_of(batch_indices, positions, kv_indices, kv_indptr, page_size)
    nvfp4_quantize_append_paged_kv_cache_with_slot_mapping(
        append_key, append_value, slots, paged_kv_cache, kv_cache_sf, k_scale, v_scale, kv_layout
    )


def nvfp4_quantize_append_paged_kv_cache_with_slot_mapping(
    append_key: torch.Tensor,
    append_value: torch.Tensor,
    slot_mapping: torch.Tensor,
    paged_kv_cache: torch.Tensor | Pair,
    kv_cache_sf: torch.Tensor | Pair,
    k_scale: float | torch.Tensor,
    v_scale: float | torch.Tensor,
    kv_layout: str = "NHD",
) -> None:
    """Encode as many keys and values, (tokens, heads, head size), as there are slots, and insert them there.

    Args:
        append_key: float16 or bfloat16.
        append_value: likewise.
        slot_mapping: ``page * page size + offset`` of each token; negative ones are skipped.
        paged_kv_cache: codes, uint8, of keys and of values, (pages, page size, heads, head size / 2) or, for HND,
            (pages, heads, page size, head size / 2); as two tensors, or as one with both in its second dimension.
        kv_cache_sf: scales, float8_e4m3fn, likewise, with head size / 16.
        k_scale: the decode scale of keys.
        v_scale: the decode scale of values.
        kv_layout: ``"NHD"`` or ``"HND"``.
    """
    tokens, caches, scales = len(slot_mapping), halves(paged_kv_cache), halves(kv_cache_sf)
    parts: list[Part] = []
    for name, x, scale, i in (("key", append_key, k_scale, 0), ("value", append_value, v_scale, 1)):
        if x.ndim != 3 or len(x) < tokens or x.dtype not in (torch.float16, torch.bfloat16):
            raise ValueError(
                f"append_{name}: is {x.dtype} of shape {tuple(x.shape)}; expected float16 or bfloat16 of shape "
                f"(tokens, heads, head_dim), with {tokens} tokens or more, as many as slots"
            )
        divisor = _checked(f"{name[0]}_scale", scale, x)
        where = tokens_first(caches[i], kv_layout), tokens_first(scales[i], kv_layout)
        parts += _nvfp4(x[:tokens], divisor, ("paged_kv_cache", "kv_cache_sf"), where)
    insert(slot_mapping, *parts)


def nvfp4_quantize_append_paged_mla_kv_cache(
    append_ckv: torch.Tensor,
    append_kpe: torch.Tensor,
    batch_indices: torch.Tensor,
    positions: torch.Tensor,
    ckv_cache: torch.Tensor,
    ckv_sf_cache: torch.Tensor,
    kpe_cache: torch.Tensor,
    kv_indices: torch.Tensor,
    kv_indptr: torch.Tensor,
    kv_last_page_len: torch.Tensor,
    ckv_scale: float,
    kpe_scale: float,
) -> None:
    """Insert MLA's latents, (tokens, size), in NVFP4, and its rotated elements, (tokens, rotary size), in FP8.

    `ckv_cache` is uint8, (pages, page size, size / 2), `ckv_sf_cache` float8_e4m3fn with size / 16, `kpe_cache`
    float8_e4m3fn, (pages, page size, rotary size).
    """
    slots = slots_of(batch_indices, positions, kv_indices, kv_indptr, ckv_cache.shape[1])
    latents = _nvfp4(
        append_ckv, _checked("ckv_scale", ckv_scale, append_ckv), ("ckv_cache", "ckv_sf_cache"),
        (ckv_cache, ckv_sf_cache),
    )  # fmt: skip
    divisor = _checked("kpe_scale", kpe_scale, append_kpe)
    turned = jitnorm.quantize(append_kpe, spec=given_spec("e4m3", "tensor"), scale=divisor).data
    insert(slots, *latents, ("kpe_cache", kpe_cache, turned))


def _nvfp4(x: torch.Tensor, scale: torch.Tensor, names: tuple[str, str], where: Pair) -> list[Part]:
    """Codes and scales, and the caches that they belong into."""
    codes, of_blocks = nvfp4_kv_quantize(x, scale)
    made = codes, of_blocks.view(*x.shape[:-1], x.shape[-1] // 16).view(torch.float8_e4m3fn)
    return list(zip(names, where, made, strict=True))


def _checked(name: str, scale: Any, like: torch.Tensor) -> torch.Tensor:
    """A scale of one element; unless it is on a GPU, where nothing looks at it, it must be positive and finite."""
    found = as_scale(scale, like)
    if found.numel() != 1:
        raise ValueError(f"{name}: has {found.numel()} elements; pass one, the decode scale of the tensor")
    if not isinstance(scale, torch.Tensor) or scale.device.type == "cpu":
        value = float(scale)
        if not 0 < value < math.inf:
            raise ValueError(f"{name}: is {value!r}; allowed is a positive finite global decode scale")
    return found.reshape(1)
