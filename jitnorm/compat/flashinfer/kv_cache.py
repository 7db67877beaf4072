"""FlashInfer's NVFP4 for key-value caches: its global scales multiply codes, as decode scales do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

import jitnorm
from jitnorm.compat.arguments import as_bytes, as_scale
from jitnorm.compat.paged import is_tokens_first
from jitnorm.ops.dequantize import dequantize_rows
from jitnorm.ops.pairs import fp4_quantize_pair

__all__ = ["nvfp4_kv_dequantize", "nvfp4_kv_dequantize_paged", "nvfp4_kv_quantize", "nvfp4_quantize_paged_kv_cache"]

_BLOCK = 16
# With a decode scale for the tensor.
_DECODED = replace(jitnorm.NVFP4, global_scale="tensor")
_DTYPES = {torch.bfloat16: "bfloat16", torch.float16: "float16"}
# An amax of zero counts as this.
_LEAST_AMAX = 1e-12
# The scales of values are stored for this many tokens together.
_TOKENS_TOGETHER = 4

Pair = tuple[torch.Tensor, torch.Tensor]
"""Of keys and of values."""


def nvfp4_kv_quantize(input: torch.Tensor, global_scale: torch.Tensor) -> Pair:
    """NVFP4 with linear scales, given the decode scale: codes (M, K / 2) and scales (M, K / 16), as bytes."""
    return fp4_quantize_pair(input, global_scale, _BLOCK, False, False, False, is_inverse=True)


def nvfp4_kv_dequantize(
    fp4_data: torch.Tensor,
    block_scales: torch.Tensor,
    global_scale: torch.Tensor,
    output_dtype: torch.dtype = torch.bfloat16,
) -> torch.Tensor:
    """Decode NVFP4 with linear scales: ``(code * scale) * global_scale``, with any leading dimensions."""
    dtype = _DTYPES.get(output_dtype)
    if dtype is None:
        raise ValueError(f"output_dtype: is {output_dtype}; allowed are {', '.join(map(str, _DTYPES))}")
    codes = fp4_data
    if codes.dtype is not torch.uint8:  # as bytes, because narrow dtypes support few views
        if codes.dtype.itemsize != 1:
            raise ValueError(f"fp4_data: is {codes.dtype}; expected uint8, two codes in each")
        codes = codes.view(torch.uint8)
    decoded: torch.Tensor = dequantize_rows(
        codes.contiguous(), as_bytes(block_scales).contiguous(), global_scale, _DECODED, dtype
    )
    return decoded


def nvfp4_quantize_paged_kv_cache(
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    kv_layout: str = "HND",
    k_global_sf: torch.Tensor | None = None,
    v_global_sf: torch.Tensor | None = None,
) -> tuple[Pair, Pair, float, float]:
    """Encode a paged cache for TRT-LLM's attention: codes, E4M3 scales, and both decode scales on the host.

    The global scales are encode scales, by default ``448 / amax``. The scales of values are stored for four tokens
    together.
    """
    is_nhd = is_tokens_first(kv_layout)
    pages, head_size = k_cache.shape[1 if is_nhd else 2], k_cache.shape[-1]
    if pages % _TOKENS_TOGETHER or head_size % (_TOKENS_TOGETHER * _BLOCK):
        raise ValueError(
            f"k_cache: has pages of {pages} tokens and heads of {head_size}; expected multiples of {_TOKENS_TOGETHER} "
            f"and {_TOKENS_TOGETHER * _BLOCK}"
        )
    codes, scales, decode_scales = [], [], []
    for cache, given in ((k_cache, k_global_sf), (v_cache, v_global_sf)):
        encode_scale = _encode_scale_of(cache) if given is None else as_scale(given, cache)
        found = jitnorm.fp4_quantize(cache, encode_scale, is_sf_swizzled_layout=False)
        codes.append(found[0])
        scales.append(found[1].view((*cache.shape[:-1], -1)))
        decode_scales.append(float(1 / encode_scale))
    of_values = _tokens_together(scales[1], is_nhd)
    k_scales, v_scales = (each.view(torch.float8_e4m3fn) for each in (scales[0], of_values))
    return (codes[0], codes[1]), (k_scales, v_scales), decode_scales[0], decode_scales[1]


def nvfp4_kv_dequantize_paged(
    paged_kv_cache: torch.Tensor | Pair,
    kv_cache_sf: torch.Tensor | Pair,
    block_tables: torch.Tensor,
    seq_lens: torch.Tensor,
    k_scale: torch.Tensor,
    v_scale: torch.Tensor,
    output_k: torch.Tensor,
    output_v: torch.Tensor,
    kv_layout: str = "NHD",
) -> None:
    """Decode the pages of each sequence into (batch, tokens, heads, head size); other tokens stay as they are.

    torch gathers the codes and scales of the pages first.
    """
    is_nhd = is_tokens_first(kv_layout)
    caches, scales = halves(paged_kv_cache), halves(kv_cache_sf)
    page_size, tokens = caches[0].shape[1 if is_nhd else 2], torch.arange(output_k.shape[1], device=output_k.device)
    if block_tables.shape[1] * page_size < len(tokens):
        raise ValueError(
            f"block_tables: has {block_tables.shape[1]} pages of {page_size} tokens for a sequence, output_k "
            f"{len(tokens)} tokens"
        )
    pages = block_tables[:, tokens // page_size].long()
    is_there = (tokens < seq_lens[:, None]) & (pages >= 0) & (pages < len(caches[0]))
    at = torch.where(is_there, pages, 0), tokens % page_size
    factors = _scalar("k_scale", k_scale, caches[0]), _scalar("v_scale", v_scale, caches[1])
    for cache, scale, factor, output in zip(caches, scales, factors, (output_k, output_v), strict=True):
        codes, of_blocks = (each.view(torch.uint8) for each in (cache, scale))
        if not is_nhd:
            codes, of_blocks = codes.transpose(1, 2), of_blocks.transpose(1, 2)
        found = nvfp4_kv_dequantize(codes[at], of_blocks[at], factor, output.dtype)
        output.copy_(torch.where(is_there[..., None, None], found, output))


def _scalar(name: str, scale: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """A global scale, (1,)."""
    if (found := as_scale(scale, like)).numel() != 1:
        raise ValueError(f"{name}: has {found.numel()} elements; pass one, that of the tensor")
    return found if found.ndim == 1 else found.reshape(1)


def halves(cache: torch.Tensor | Pair) -> Any:
    """Keys and values of a cache that has both, in its second dimension or as two tensors."""
    return cache.unbind(1) if isinstance(cache, torch.Tensor) else cache


def _encode_scale_of(cache: torch.Tensor) -> torch.Tensor:
    amax: torch.Tensor = jitnorm.compute_amax(cache)
    return 448 / amax.clamp(min=_LEAST_AMAX)


def _tokens_together(scales: torch.Tensor, is_nhd: bool) -> torch.Tensor:
    """Transpose the scales of each four tokens, S per token: scale s of token t becomes number ``4 * s + t`` of the
    four.

    Args:
        scales: (pages, heads, tokens, S), or with tokens before heads for NHD.
        is_nhd: whether the layout is NHD.
    """
    of_heads = scales.transpose(1, 2) if is_nhd else scales
    four = of_heads.unflatten(2, (-1, _TOKENS_TOGETHER)).unflatten(4, (_TOKENS_TOGETHER, -1))
    moved = four.permute(0, 1, 2, 4, 5, 3).reshape(of_heads.shape)
    return (moved.transpose(1, 2) if is_nhd else moved).contiguous()
