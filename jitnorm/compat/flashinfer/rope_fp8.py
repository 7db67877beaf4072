"""FlashInfer's rotation of queries and keys with FP8 encoding, and their insertion into paged caches.

Elements that are not rotated come in tensors of their own, and each is encoded in its own launch.
"""

from __future__ import annotations

from typing import Any

import torch

import jitnorm
from jitnorm.compat.arguments import as_hint, as_scale, element_of, given_spec
from jitnorm.compat.paged import insert, slots_of, tokens_first

Four = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
"""Of rotated queries and keys, and of the rest of queries and keys."""


def rope_quantize_fp8(
    q_rope: torch.Tensor,
    k_rope: torch.Tensor,
    q_nope: torch.Tensor | None,
    k_nope: torch.Tensor | None,
    cos_sin_cache: torch.Tensor,
    pos_ids: torch.Tensor,
    is_neox: bool = True,
    quantize_dtype: torch.dtype | None = None,
    quant_scale_q: float = 1.0,
    quant_scale_kv: float = 1.0,
    q_rope_out: torch.Tensor | None = None,
    k_rope_out: torch.Tensor | None = None,
    q_nope_out: torch.Tensor | None = None,
    k_nope_out: torch.Tensor | None = None,
    enable_pdl: bool = False,
    backend: str = "cuda",
) -> Four:
    """Rotate queries and keys and encode them, and the elements that are not rotated, in FP8.

    For E5M2, heads are rotated in float32 and encoded in another launch.

    Args:
        q_rope: rotated elements of queries, (tokens, heads, rotary size).
        k_rope: rotated elements of keys, likewise, or (tokens, rotary size) for one head, as in MLA.
        q_nope: the other elements of queries; None for none.
        k_nope: the other elements of keys, with as many dimensions as `k_rope`; None for none.
        cos_sin_cache: cosines, then sines, by position.
        pos_ids: position of each token.
        is_neox: as of `jitnorm.rope`.
        quantize_dtype: torch.float8_e4m3fn or torch.float8_e5m2; None: that of the first given output, or E4M3.
        quant_scale_q: queries are multiplied by the reciprocal of the float32 nearest to its inverse.
        quant_scale_kv: likewise for keys.
        q_rope_out: where to write, like `q_rope`; heads at any stride. None allocates. So for the others.
        k_rope_out: like `k_rope`.
        q_nope_out: like `q_nope`.
        k_nope_out: like `k_nope`.
        enable_pdl: whether to use programmatic dependent launch.
        backend: ``"cuda"`` or ``"cutile"``; changes nothing.

    Returns:
        The four outputs; those of elements that do not exist are empty.
    """
    if backend not in ("cuda", "cutile"):
        raise ValueError(f"backend: is {backend!r}; allowed are 'cuda' and 'cutile'")
    q_nope, k_nope = _or_none(q_nope, q_rope), _or_none(k_nope, k_rope)
    inputs, given = (q_rope, k_rope, q_nope, k_nope), (q_rope_out, k_rope_out, q_nope_out, k_nope_out)
    dtype = quantize_dtype or next((out.dtype for out in given if out is not None), torch.float8_e4m3fn)
    outputs = tuple(
        torch.empty_like(x, dtype=dtype) if out is None else out for x, out in zip(inputs, given, strict=True)
    )
    q, k, q_rest, k_rest = map(_with_heads, inputs)
    q_out, k_out, q_rest_out, k_rest_out = map(_with_heads, outputs)
    scales = _divisor("quant_scale_q", quant_scale_q, q), _divisor("quant_scale_kv", quant_scale_kv, q)
    hint = as_hint(enable_pdl)
    _turn(dtype, (q, k), cos_sin_cache, pos_ids, scales, is_neox, (q_out, k_out), hint)
    _encode(dtype, q_rest, scales[0], q_rest_out, hint)
    _encode(dtype, k_rest, scales[1], k_rest_out, hint)
    return outputs


def mla_rope_quantize_fp8(
    q_rope: torch.Tensor,
    k_rope: torch.Tensor,
    q_nope: torch.Tensor,
    k_nope: torch.Tensor,
    cos_sin_cache: torch.Tensor,
    pos_ids: torch.Tensor,
    is_neox: bool = True,
    quantize_dtype: torch.dtype | None = None,
    quant_scale_q: float = 1.0,
    quant_scale_kv: float = 1.0,
    q_rope_out: torch.Tensor | None = None,
    k_rope_out: torch.Tensor | None = None,
    q_nope_out: torch.Tensor | None = None,
    k_nope_out: torch.Tensor | None = None,
    enable_pdl: bool = False,
) -> Four:
    """`rope_quantize_fp8` for MLA: keys have one head, and no dimension for it."""
    return rope_quantize_fp8(
        q_rope, k_rope, q_nope, k_nope, cos_sin_cache, pos_ids, is_neox, quantize_dtype, quant_scale_q, quant_scale_kv,
        q_rope_out, k_rope_out, q_nope_out, k_nope_out, enable_pdl,
    )  # fmt: skip


def rope_quantize_fp8_append_paged_kv_cache(
    q_rope: torch.Tensor,
    k_rope: torch.Tensor,
    q_nope: torch.Tensor | None,
    k_nope: torch.Tensor | None,
    v: torch.Tensor | None,
    cos_sin_cache: torch.Tensor,
    pos_ids: torch.Tensor,
    paged_kv_cache: tuple[torch.Tensor, torch.Tensor],
    kv_indices: torch.Tensor,
    kv_indptr: torch.Tensor,
    batch_indices: torch.Tensor,
    positions: torch.Tensor,
    is_neox: bool = True,
    quantize_dtype: torch.dtype | None = None,
    quant_scale_q: float = 1.0,
    quant_scale_kv: float = 1.0,
    page_size: int = 16,
    kv_layout: str = "NHD",
    q_rope_out: torch.Tensor | None = None,
    q_nope_out: torch.Tensor | None = None,
    enable_pdl: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """`rope_quantize_fp8`, whose keys torch inserts, and values in FP8, into a paged cache.

    Args:
        q_rope: as in `rope_quantize_fp8`, like all arguments not described here.
        k_rope: likewise; with two dimensions, it is MLA's.
        q_nope: likewise.
        k_nope: likewise.
        v: values, (tokens, heads, head size); None for MLA.
        cos_sin_cache: as in `rope_quantize_fp8`.
        pos_ids: likewise.
        paged_kv_cache: keys and values, (pages, page size, heads, head size) or, for HND, (pages, heads, page size,
            head size); for MLA, the other elements of keys and the rotated ones, (pages, page size, size).
        kv_indices: the pages of all requests, one request after another.
        kv_indptr: where the pages of each request begin in `kv_indices`.
        batch_indices: the request of each token; tokens with a negative one are not inserted.
        positions: of each token in its request.
        is_neox: as in `rope_quantize_fp8`.
        quantize_dtype: likewise.
        quant_scale_q: likewise.
        quant_scale_kv: likewise, and for values.
        page_size: tokens of a page.
        kv_layout: ``"NHD"`` or ``"HND"``; MLA ignores it.
        q_rope_out: as in `rope_quantize_fp8`.
        q_nope_out: likewise.
        enable_pdl: whether to use programmatic dependent launch.

    Returns:
        the rotated and the other elements of queries.
    """
    is_mla, (first, second) = k_rope.ndim == 2, paged_kv_cache
    if is_mla != (v is None):
        raise ValueError(
            f"v: is {'given' if is_mla else 'None'}; pass values unless k_rope has two dimensions, as MLA's"
        )
    dims = 3 if is_mla else 4
    given = (out.dtype for out in (q_rope_out, q_nope_out) if out is not None)
    dtype = quantize_dtype or next(given, torch.float8_e4m3fn)
    for cache in paged_kv_cache:
        if cache.dtype != dtype or cache.ndim != dims:
            raise ValueError(
                f"paged_kv_cache: is {cache.dtype} of shape {tuple(cache.shape)}; expected {dtype} of {dims} dimensions"
            )
    caches = (second, first) if is_mla else (tokens_first(first, kv_layout), tokens_first(second, kv_layout))
    if caches[0].shape[1] != page_size:
        raise ValueError(f"page_size: is {page_size}; the pages of paged_kv_cache have {caches[0].shape[1]} tokens")
    q_out, k_out, q_rest, k_rest = rope_quantize_fp8(
        q_rope, k_rope, q_nope, k_nope, cos_sin_cache, pos_ids, is_neox, dtype, quant_scale_q, quant_scale_kv,
        q_rope_out, None, q_nope_out, None, enable_pdl,
    )  # fmt: skip
    slots = slots_of(batch_indices, positions, kv_indices, kv_indptr, page_size)
    if v is None:
        parts = [(caches[0], k_out), (caches[1], k_rest)]
    else:
        size, values = k_out.shape[-1], torch.empty_like(v, dtype=dtype)
        _encode(dtype, v, _divisor("quant_scale_kv", quant_scale_kv, v), values, as_hint(enable_pdl))
        parts = [(caches[0][..., :size], k_out), (caches[0][..., size:], k_rest), (caches[1], values)]
    insert(slots, *(("paged_kv_cache", *part) for part in parts))
    return q_out, q_rest


def _or_none(x: torch.Tensor | None, like: torch.Tensor) -> torch.Tensor:
    return like[..., :0] if x is None else x


def _with_heads(x: torch.Tensor) -> torch.Tensor:
    return x.unsqueeze(1) if x.ndim == 2 else x


def _divisor(name: str, scale: Any, like: torch.Tensor) -> torch.Tensor:
    """The divisor of a factor."""
    if not isinstance(scale, torch.Tensor) and not scale > 0:
        raise ValueError(f"{name}: is {scale!r}; allowed are positive numbers")
    return as_scale(1 / scale, like).reshape(1)


def _turn(
    dtype: torch.dtype, heads: tuple[torch.Tensor, torch.Tensor], cos_sin_cache: torch.Tensor, pos_ids: torch.Tensor,
    scales: tuple[torch.Tensor, torch.Tensor], is_neox: bool, outputs: tuple[torch.Tensor, torch.Tensor],
    enable_pdl: bool | None,
) -> None:  # fmt: skip
    """Write the rotated codes of queries and keys."""
    if element_of(dtype, "quantize_dtype") == "e4m3":
        jitnorm.rope_quant(*heads, cos_sin_cache, pos_ids, *scales, is_neox, *outputs, enable_pdl)
        return
    q, k = heads[0].float(), heads[1].float()
    wide = jitnorm.rope(q, k, cos_sin_cache, pos_ids, is_neox, enable_pdl=enable_pdl)
    for turned, scale, output in zip(wide, scales, outputs, strict=True):
        _encode(dtype, turned, scale, output, enable_pdl)


def _encode(
    dtype: torch.dtype, x: torch.Tensor, scale: torch.Tensor, output: torch.Tensor, enable_pdl: bool | None
) -> None:
    if x.shape[-1]:
        spec = given_spec(element_of(dtype, "quantize_dtype"), "tensor")
        jitnorm.quantize(x, spec=spec, scale=scale, out=output, enable_pdl=enable_pdl)
