"""vLLM's insertion into caches of MLA and of its indexer; torch inserts what is encoded."""

from __future__ import annotations

import torch

import jitnorm
from jitnorm.compat.arguments import as_scale, spec_of
from jitnorm.compat.paged import insert
from jitnorm.compat.vllm.conversions import encode_fp8, fp8_element

_PLAIN = ("auto", "float16", "bfloat16")
_LEAST_AMAX = 1e-4  # of the indexer's keys
_MX_BLOCK = 32


def concat_and_cache_mla_rope_fused(
    positions: torch.Tensor,
    q_pe: torch.Tensor,
    k_pe: torch.Tensor,
    kv_c: torch.Tensor,
    cos_sin_cache: torch.Tensor,
    is_neox: bool,
    slot_mapping: torch.Tensor,
    kv_cache: torch.Tensor,
    kv_cache_dtype: str,
    kv_cache_scale: torch.Tensor,
) -> None:
    """Rotate queries and keys in place, rounding each step, and insert latents and keys.

    Args:
        positions: of each token, (tokens,).
        q_pe: the rotated elements of queries, (tokens, heads, rotary size).
        k_pe: those of keys, (tokens, rotary size).
        kv_c: latents, (tokens, rank).
        cos_sin_cache: cosines, then sines, by position.
        is_neox: as of `jitnorm.rope`.
        slot_mapping: of each token; negative for none. Only as many tokens as there are slots are taken; all of them
            are rotated.
        kv_cache: (pages, page size, rank + rotary size), of the dtype of `k_pe`, or bytes of FP8.
        kv_cache_dtype: ``"auto"``, or ``"fp8"``, ``"fp8_e4m3"`` or ``"fp8_e5m2"``.
        kv_cache_scale: the divisor of FP8, one element.
    """
    element = None if kv_cache_dtype in _PLAIN else fp8_element("kv_cache_dtype", kv_cache_dtype)
    tokens, rank = len(slot_mapping), kv_c.shape[-1]
    # All that is inserted is checked before heads are rotated in place: another try would rotate them twice.
    for name, x in (("q_pe", q_pe), ("kv_c", kv_c)):
        if len(x) < tokens:
            raise ValueError(f"slot_mapping: has {tokens} elements, but {name} {len(x)} tokens; pass at most as many")
    for name, x in (("kv_cache", kv_cache), ("kv_c", kv_c)) if element is None else ():
        if x.dtype != k_pe.dtype:
            raise ValueError(f"{name}: is {x.dtype}; expected {k_pe.dtype}, that of k_pe, for {kv_cache_dtype!r}")
    if element is not None and kv_cache.element_size() != 1:
        raise ValueError(f"kv_cache: is {kv_cache.dtype}; expected bytes for {kv_cache_dtype!r}")
    if kv_cache.ndim != 3 or kv_cache.shape[2] != rank + k_pe.shape[-1]:
        raise ValueError(
            f"kv_cache: shape is {tuple(kv_cache.shape)}; expected (pages, page size, {rank + k_pe.shape[-1]})"
        )
    q, k, latents = q_pe[:tokens], k_pe[:tokens].unsqueeze(1), kv_c[:tokens]
    jitnorm.rope(q, k, cos_sin_cache, positions[:tokens], is_neox, q, k, rounding="hf")
    for part, x in ((kv_cache[..., :rank], latents), (kv_cache[..., rank:], k.squeeze(1))):
        if element is not None:
            x = encode_fp8(x, as_scale(kv_cache_scale, x).reshape(1), element).view(kv_cache.dtype)
        insert(slot_mapping, ("kv_cache", part, x))


def indexer_k_quant_and_cache(
    k: torch.Tensor, kv_cache: torch.Tensor, slot_mapping: torch.Tensor, quant_block_size: int, kv_cache_dtype: str
) -> None:
    """Encode keys in FP8 groups, with an amax of at least 1e-4, and insert codes and scales.

    Args:
        k: (tokens, head size).
        kv_cache: uint8 (pages, page size, head size and 4 bytes for each group): all codes of a page, then its scales.
        slot_mapping: of each token; negative for none.
        quant_block_size: elements of a group.
        kv_cache_dtype: of scales: ``"ue8m0"`` for powers of two in float32; ``"mxfp8"`` for four equal bytes of
            UE8M0, of one group of 128; others for float32.
    """
    size, is_mx = k.shape[-1], kv_cache_dtype == "mxfp8"
    if is_mx and (size, quant_block_size) != (128, 128):
        raise ValueError(
            f"quant_block_size: is {quant_block_size} for keys of {size} elements; with 'mxfp8' both are 128"
        )
    scale_format = "f32_ue8m0" if is_mx or kv_cache_dtype == "ue8m0" else "f32"
    q = jitnorm.quantize(k, spec=spec_of("e4m3", quant_block_size, scale_format, scale_floor=_LEAST_AMAX / 448))
    scales = q.scale.view(len(k), size // quant_block_size)
    if is_mx:
        scales = ((scales.view(torch.int32) >> 23) & 0xFF).byte().expand(-1, size // _MX_BLOCK).contiguous()
    codes, of_groups = indexer_pages(kv_cache, size, scales.view(torch.uint8).shape[-1])
    slots = slot_mapping[: len(k)]
    insert(slots, ("kv_cache", codes, q.data.view(codes.dtype)), ("kv_cache", of_groups, scales.view(codes.dtype)))


def indexer_pages(kv_cache: torch.Tensor, size: int, scale_bytes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes, (pages, page size, size), and scales, (pages, page size, scale bytes), of an indexer's cache.

    Raises:
        ValueError: a page is not contiguous, or too short.
    """
    pages, page_size, stride = kv_cache.shape
    if kv_cache.stride()[1:] != (stride, 1) or stride < size + scale_bytes or kv_cache.element_size() != 1:
        raise ValueError(
            f"kv_cache: is {kv_cache.dtype} of shape {tuple(kv_cache.shape)}, strides {kv_cache.stride()}; expected "
            f"bytes, contiguous pages and {size + scale_bytes} or more for each token"
        )
    flat = kv_cache.view(pages, page_size * stride)
    codes, scales = flat[:, : page_size * size], flat[:, page_size * size : page_size * (size + scale_bytes)]
    return codes.unflatten(1, (page_size, size)), scales.unflatten(1, (page_size, scale_bytes))
