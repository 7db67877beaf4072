"""vLLM's gathering of tokens from paged caches: torch gathers the codes, which are then decoded.

Tokens that no page holds are not written.
"""

from __future__ import annotations

import torch

import jitnorm
from jitnorm.compat.arguments import as_scale, spec_of
from jitnorm.compat.paged import gathered
from jitnorm.compat.vllm.conversions import decode_fp8, fp8_element
from jitnorm.compat.vllm.mla_cache import indexer_pages

_PLAIN = ("auto", "float16", "bfloat16")
_SIZE, _TURNED = 512, 64  # of a latent of MLA, and of its rotated elements


def gather_and_maybe_dequant_cache(
    src_cache: torch.Tensor,
    dst: torch.Tensor,
    block_table: torch.Tensor,
    cu_seq_lens: torch.Tensor,
    token_to_seq: torch.Tensor,
    num_tokens: int,
    kv_cache_dtype: str,
    scale: torch.Tensor,
    seq_starts: torch.Tensor | None = None,
) -> None:
    """Gather the tokens of requests, one request after another, and decode them if they are in FP8.

    Args:
        src_cache: (pages, page size, size), in the dtype of `dst`, or bytes of FP8.
        dst: where to write the tokens, (tokens, size).
        block_table: the pages of each request, (requests, most pages).
        cu_seq_lens: where the tokens of each request begin in `dst`, and where the last ones end, (requests + 1,).
        token_to_seq: ignored.
        num_tokens: the number of tokens to gather, at most.
        kv_cache_dtype: ``"auto"``, or ``"fp8"``, ``"fp8_e4m3"`` or ``"fp8_e5m2"``.
        scale: the factor of FP8, one element.
        seq_starts: the first token of each request to gather, (requests,); None for 0.
    """
    element = None if kv_cache_dtype in _PLAIN else fp8_element("kv_cache_dtype", kv_cache_dtype)
    found, is_there = gathered(src_cache, block_table, cu_seq_lens, num_tokens, seq_starts)
    if element is not None:
        decoded = torch.empty(found.shape, dtype=dst.dtype, device=dst.device)
        decode_fp8(found, as_scale(scale, found).reshape(1), decoded, element)
        found = decoded
    if found.dtype != dst.dtype:
        raise ValueError(f"src_cache: is {found.dtype}; expected {dst.dtype}, that of dst, for {kv_cache_dtype!r}")
    _write(dst[:num_tokens].view(found.shape), found, is_there)


def cp_gather_and_upconvert_fp8_kv_cache(
    src_cache: torch.Tensor,
    dst: torch.Tensor,
    block_table: torch.Tensor,
    workspace_starts: torch.Tensor,
    batch_size: int,
    seq_starts: torch.Tensor | None = None,
    host_cache: torch.Tensor | None = None,
    host_row_ids: torch.Tensor | None = None,
    device_row_ids: torch.Tensor | None = None,
) -> None:
    """Gather and decode MLA's tokens: 512 codes in E4M3, 4 float32 scales, 64 rotated elements in bfloat16.

    Args:
        src_cache: bytes, (pages, page size, 656).
        dst: where to write, bfloat16 (tokens, 576).
        block_table: the pages of each request.
        workspace_starts: where the tokens of each request begin in `dst`, (requests,).
        batch_size: the number of requests.
        seq_starts: the first token of each request to gather; None for 0.
        host_cache: has to be None, like those that follow.
        host_row_ids: likewise.
        device_row_ids: likewise.
    """
    for name, given in (("host_cache", host_cache), ("host_row_ids", host_row_ids), ("device_row_ids", device_row_ids)):
        if given is not None:
            raise ValueError(f"{name}: is given; rows are gathered from src_cache alone, so pass None")
    found, is_there = _mla_tokens(src_cache, dst, block_table, workspace_starts[:batch_size], seq_starts, 656)
    codes, scales, rest = found.split([_SIZE, 16, 2 * _TURNED], -1)
    spec = spec_of("e4m3", 128)
    data = codes.contiguous().view(torch.float8_e4m3fn)
    q = jitnorm.QuantizedTensor(
        data, scales.contiguous().view(torch.float32), None, None, None, spec, tuple(codes.shape)
    )
    turned = rest.contiguous().view(torch.bfloat16)
    _write(dst, torch.cat([q.dequantize(dtype="bfloat16"), turned], -1), is_there)


def cp_gather_and_upconvert_nvfp4_kv_cache(
    src_cache: torch.Tensor,
    dst: torch.Tensor,
    block_table: torch.Tensor,
    workspace_starts: torch.Tensor,
    batch_size: int,
) -> None:
    """Gather and decode MLA's tokens: 512 codes in E2M1, 64 rotated elements in E4M3, 32 E4M3 scales.

    `src_cache` is uint8, (pages, page size, 352): the scale of block b is byte ``8 * (b % 4) + b // 4`` of the scales.
    All else is as in `cp_gather_and_upconvert_fp8_kv_cache`.
    """
    found, is_there = _mla_tokens(src_cache, dst, block_table, workspace_starts[:batch_size], None, 352)
    codes, rest, stored = found.split([_SIZE // 2, _TURNED, _SIZE // 16], -1)
    scales = stored.unflatten(-1, (4, 8)).transpose(-1, -2).flatten(-2).contiguous()
    q = jitnorm.QuantizedTensor(codes.contiguous(), scales, None, None, None, jitnorm.NVFP4, (*codes.shape[:-1], _SIZE))
    turned = rest.contiguous().view(torch.float8_e4m3fn).to(torch.bfloat16)
    _write(dst, torch.cat([q.dequantize(dtype="bfloat16"), turned], -1), is_there)


def cp_gather_indexer_k_quant_cache(
    kv_cache: torch.Tensor,
    dst_k: torch.Tensor,
    dst_scale: torch.Tensor,
    block_table: torch.Tensor,
    cu_seq_lens: torch.Tensor,
) -> None:
    """Gather the codes and scales that `indexer_k_quant_and_cache` inserted.

    Args:
        kv_cache: as there.
        dst_k: where to write codes, bytes or FP8, (tokens, head size).
        dst_scale: where to write scales, bytes, (tokens, 4 for each group); or of another dtype with as many.
        block_table: the pages of each request.
        cu_seq_lens: where the tokens of each request begin, and where the last ones end, (requests + 1,).
    """
    outputs = dst_k.view(torch.uint8), dst_scale.view(torch.uint8)
    pages = indexer_pages(kv_cache, outputs[0].shape[-1], outputs[1].shape[-1])
    for cache, output in zip(pages, outputs, strict=True):
        _write(output, *gathered(cache.view(torch.uint8), block_table, cu_seq_lens, len(output)))


def _mla_tokens(
    cache: torch.Tensor, dst: torch.Tensor, block_table: torch.Tensor, starts: torch.Tensor,
    seq_starts: torch.Tensor | None, size: int,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """The bytes of as many tokens as `dst` has, and whether each was found."""
    if cache.ndim != 3 or cache.shape[2] != size or cache.element_size() != 1:
        raise ValueError(
            f"src_cache: is {cache.dtype} of shape {tuple(cache.shape)}; expected bytes, (pages, page size, {size})"
        )
    if dst.dtype != torch.bfloat16 or dst.shape[1:] != (_SIZE + _TURNED,):
        raise ValueError(
            f"dst: is {dst.dtype} of shape {tuple(dst.shape)}; expected bfloat16, (tokens, {_SIZE + _TURNED})"
        )
    ends = torch.nn.functional.pad(starts, (0, 1), value=len(dst))
    return gathered(cache.view(torch.uint8), block_table, ends, len(dst), seq_starts)


def _write(output: torch.Tensor, found: torch.Tensor, is_there: torch.Tensor) -> None:
    is_there = is_there.view(-1, *[1] * (found.ndim - 1))
    output.copy_(torch.where(is_there, found, output))
