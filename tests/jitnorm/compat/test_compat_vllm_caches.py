"""jitnorm.compat.vllm: insertion into caches of MLA, and gathering from them, compared with loops over tokens."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from paged_tokens import PAGE, PAGES, SLOTS, filled, has_tokens
from turned_heads import codes

from jitnorm.compat import vllm as ops

TOKENS, RANK, TURNED = 7, 96, 32
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
POSITIONS = torch.tensor([3, 0, 8, 1, 1, 5, 2])


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def by_steps(x: torch.Tensor, table: torch.Tensor, is_neox: bool) -> torch.Tensor:
    """Heads, (tokens, heads, size), turned in their dtype: torch rounds each product and sum."""
    cos, sin = table[POSITIONS].to(x.dtype)[:, None].chunk(2, -1)
    first, second = x.chunk(2, -1) if is_neox else (x[..., ::2], x[..., 1::2])
    both = first * cos - second * sin, second * cos + first * sin
    return torch.cat(both, -1) if is_neox else torch.stack(both, -1).flatten(-2)


@pytest.mark.parametrize("is_neox", [True, False])
@pytest.mark.parametrize("kv_cache_dtype", ["auto", "fp8", "fp8_e5m2"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_latents_and_turned_keys_share_a_cache(is_neox: bool, kv_cache_dtype: str, dtype: torch.dtype) -> None:
    q, k = normal(TOKENS, 4, TURNED, seed=1, dtype=dtype), normal(TOKENS, TURNED + RANK, seed=2, dtype=dtype)
    table, scale = normal(9, TURNED, seed=3, dtype=dtype), torch.tensor([0.25])
    turned = by_steps(q, table, is_neox), by_steps(k[:, None, :TURNED], table, is_neox).squeeze(1)
    values = torch.cat([k[:, TURNED:], turned[1]], -1)
    k_pe, latents = k.clone().split([TURNED, RANK], -1)
    if kv_cache_dtype == "auto":
        cache, expected = filled(PAGES, PAGE, 2 * (RANK + TURNED), dtype=dtype), values.view(torch.uint8)
    else:
        cache = filled(PAGES, PAGE, RANK + TURNED, dtype=torch.uint8)
        expected = codes(values, 4, E4M3 if kv_cache_dtype == "fp8" else E5M2)
    assert ops.concat_and_cache_mla_rope_fused(
        POSITIONS, q, k_pe, latents, table, is_neox, SLOTS, cache, kv_cache_dtype, scale
    ) is None  # fmt: skip
    assert torch.equal(q, turned[0])
    assert torch.equal(k_pe, turned[1])
    assert has_tokens(cache.view(torch.uint8), expected)


def test_tokens_past_the_slots_are_not_touched() -> None:
    q, k, latents = normal(TOKENS, 4, TURNED, seed=1), normal(TOKENS, TURNED, seed=2), normal(TOKENS, RANK)
    before, cache = (q.clone(), k.clone()), torch.zeros(PAGES, PAGE, RANK + TURNED).bfloat16()
    table = normal(9, TURNED, seed=3)
    ops.concat_and_cache_mla_rope_fused(
        POSITIONS, q, k, latents, table, True, torch.tensor([5, 2]), cache, "auto", torch.ones(1)
    )
    assert torch.equal(q[2:], before[0][2:])
    assert torch.equal(k[2:], before[1][2:])
    assert torch.equal(cache[1, 1], torch.cat([latents[0], k[0]]))
    assert torch.equal(cache[0, 2], torch.cat([latents[1], k[1]]))
    assert cache.ne(0).any(-1).sum() == 2


def indexer_keys(k: torch.Tensor, size: int, kind: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes and scales, as bytes, of each token."""
    groups = k.float().unflatten(-1, (-1, size))
    scales = groups.abs().amax(-1).clamp(min=1e-4) / 448
    if kind != "fp8":
        scales = torch.exp2(torch.ceil(torch.log2(scales)))
    found = codes((groups * (1 / scales)[..., None]).flatten(-2), 1)
    if kind == "mxfp8":
        return found, (torch.log2(scales) + 127).byte().expand(-1, 4)
    return found, scales.view(torch.uint8)


@pytest.mark.parametrize(("kind", "size"), [("ue8m0", 128), ("fp8", 64), ("mxfp8", 128)])
def test_an_indexer_s_pages_have_codes_and_then_scales(kind: str, size: int) -> None:
    k = normal(TOKENS, 128)
    k[3] = 1e-6  # the smallest amax is 1e-4
    scale_bytes = 4 * 128 // size
    cache = filled(PAGES, PAGE, 128 + scale_bytes, dtype=torch.uint8)
    ops.indexer_k_quant_and_cache(k, cache, SLOTS, size, kind)
    expected = indexer_keys(k, size, kind)
    flat = cache.view(PAGES, -1)
    assert has_tokens(flat[:, : PAGE * 128].reshape(PAGES, PAGE, 128), expected[0])
    assert has_tokens(flat[:, PAGE * 128 :].reshape(PAGES, PAGE, scale_bytes), expected[1])
    # Requests of 2 and 3 tokens: those in page 3, and those in pages 5 and 1, of which two are 99s.
    tables, starts = torch.tensor([[3, -1], [5, 1]]).int(), torch.tensor([0, 3, 8]).int()
    outputs = torch.zeros(9, 128, dtype=torch.uint8).view(E4M3), torch.zeros(9, scale_bytes, dtype=torch.uint8)
    ops.cp_gather_indexer_k_quant_cache(cache, *outputs, tables, starts)
    for output, values in zip(outputs, expected, strict=True):
        found = output.view(torch.uint8)
        for place, token in ((0, 3), (2, 4), (6, 0), (7, 1)):
            assert torch.equal(found[place], values[token])
        assert found[1].eq(99).all()
        assert found[8].eq(0).all()


TABLES, LENGTHS, FIRST = torch.tensor([[4, 0, 1], [2, 9, 3]]).int(), (9, 7), torch.tensor([0, 2]).int()
"""Of two requests; page 9 does not exist."""
STARTS = torch.tensor([0, 9, 16]).int()


def by_loop(tokens: torch.Tensor, first: torch.Tensor | None, other: torch.Tensor) -> torch.Tensor:
    """The tokens, (pages, page size, size), of both requests; `other` has the rows that no page holds."""
    found = []
    for request, length in enumerate(LENGTHS):
        for i in range(length):
            at = i + (0 if first is None else int(first[request]))
            page = int(TABLES[request, at // PAGE]) if at // PAGE < TABLES.shape[1] else -1
            found.append(tokens[page, at % PAGE] if 0 <= page < len(tokens) else other[len(found)])
    return torch.stack(found)


@pytest.mark.parametrize("first", [None, FIRST, FIRST * 3])
@pytest.mark.parametrize("kv_cache_dtype", ["auto", "fp8", "fp8_e5m2"])
def test_tokens_of_requests_are_gathered(first: torch.Tensor | None, kv_cache_dtype: str) -> None:
    x, scale = normal(PAGES, PAGE, 64), torch.tensor([0.3])
    other = torch.full((sum(LENGTHS), 64), 7.0).bfloat16()
    cache, tokens = x, x
    if kv_cache_dtype != "auto":
        cache = x.to(E4M3 if kv_cache_dtype == "fp8" else E5M2)
        tokens, cache = (cache.float() * scale).bfloat16(), cache.view(torch.uint8)
    out = other.clone()
    requests = torch.zeros(sum(LENGTHS), dtype=torch.int32)
    ops.gather_and_maybe_dequant_cache(
        cache, out, TABLES, STARTS, requests, sum(LENGTHS), kv_cache_dtype, scale, first
    )  # fmt: skip
    assert torch.equal(out, by_loop(tokens, first, other))


@pytest.mark.parametrize("first", [None, FIRST])
def test_latents_in_fp8_are_decoded(first: torch.Tensor | None) -> None:
    codes, scales = normal(PAGES, PAGE, 512).to(E4M3), normal(PAGES, PAGE, 4, dtype=torch.float32).exp()
    turned = normal(PAGES, PAGE, 64, seed=1)
    cache = torch.cat([each.view(torch.uint8) for each in (codes, scales, turned)], -1)
    values = (codes.float().unflatten(-1, (4, 128)) * scales[..., None]).flatten(-2).bfloat16()
    out = torch.full((sum(LENGTHS), 576), 7.0).bfloat16()
    expected = by_loop(torch.cat([values, turned], -1), first, out)
    ops.cp_gather_and_upconvert_fp8_kv_cache(cache, out, TABLES, STARTS[:2], 2, first)
    assert torch.equal(out, expected)


def test_latents_in_nvfp4_are_decoded() -> None:
    generator = torch.Generator().manual_seed(5)
    codes = torch.randint(256, (PAGES, PAGE, 256), generator=generator).byte()
    scales, turned = normal(PAGES, PAGE, 32).abs().to(E4M3), normal(PAGES, PAGE, 64, seed=1).to(E4M3)
    stored = torch.empty_like(scales)
    for block in range(32):
        stored.view(torch.uint8)[..., 8 * (block % 4) + block // 4] = scales.view(torch.uint8)[..., block]
    cache = torch.cat([each.view(torch.uint8) for each in (codes, turned, stored)], -1)
    magnitudes = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    e2m1 = torch.cat([magnitudes, -magnitudes])
    elements = torch.stack([e2m1[(codes & 15).long()], e2m1[(codes >> 4).long()]], -1).flatten(-2)
    values = (elements.unflatten(-1, (32, 16)) * scales.float()[..., None]).flatten(-2).bfloat16()
    out = torch.full((sum(LENGTHS), 576), 7.0).bfloat16()
    expected = by_loop(torch.cat([values, turned.bfloat16()], -1), None, out)
    ops.cp_gather_and_upconvert_nvfp4_kv_cache(cache, out, TABLES, STARTS[:2], 2)
    assert torch.equal(out, expected)


def test_there_may_be_no_tokens() -> None:
    none, cache = torch.empty(0, dtype=torch.int64), filled(PAGES, PAGE, RANK + TURNED, dtype=torch.uint8)
    parts = normal(0, 4, TURNED), normal(0, TURNED), normal(0, RANK)
    ops.concat_and_cache_mla_rope_fused(none, *parts, TABLE, True, none, cache, "fp8", torch.ones(1))
    keys = filled(PAGES, PAGE, 132, dtype=torch.uint8)
    for kind in ("fp8", "mxfp8"):
        ops.indexer_k_quant_and_cache(normal(0, 128), keys, none, 128, kind)
    assert cache.eq(99).all()
    assert keys.eq(99).all()
    starts = torch.zeros(3, dtype=torch.int32)
    ops.cp_gather_indexer_k_quant_cache(keys, keys[0, :0, :128], keys[0, :0, :4], TABLES, starts)
    ops.gather_and_maybe_dequant_cache(cache, OUT[:0, :128], TABLES, starts, starts, 0, "fp8", torch.ones(1))
    ops.cp_gather_and_upconvert_fp8_kv_cache(CACHE, OUT[:0], TABLES, starts[:2], 2)
    ops.cp_gather_and_upconvert_nvfp4_kv_cache(CACHE[..., :352].contiguous(), OUT[:0], TABLES, starts[:2], 2)


X, TABLE = normal(TOKENS, 2, TURNED), normal(9, TURNED)
CACHE, OUT = torch.zeros(PAGES, PAGE, 656, dtype=torch.uint8), torch.zeros(4, 576).bfloat16()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: ops.concat_and_cache_mla_rope_fused(
                POSITIONS, X, X[:, 0], X[:, 0], TABLE, True, SLOTS, normal(PAGES, PAGE, 64), "fp4", torch.ones(1)
            ),
            "kv_cache_dtype: is 'fp4'",
        ),
        (
            lambda: ops.concat_and_cache_mla_rope_fused(
                POSITIONS, X, X[:, 0], X[:, 0], TABLE, True, SLOTS, normal(PAGES, PAGE, 63), "auto", torch.ones(1)
            ),
            "kv_cache: shape is",
        ),
        (
            lambda: ops.concat_and_cache_mla_rope_fused(
                POSITIONS, X[:2], X[:2, 0], X[:2, 0], TABLE, True, SLOTS, CACHE, "auto", torch.ones(1)
            ),
            "slot_mapping: has 7 elements",
        ),
        (lambda: ops.indexer_k_quant_and_cache(normal(7, 64), CACHE, SLOTS, 64, "mxfp8"), "quant_block_size: is 64"),
        (lambda: ops.indexer_k_quant_and_cache(normal(7, 64), CACHE[..., 1:], SLOTS, 64, "fp8"), "kv_cache: is"),
        (
            lambda: ops.cp_gather_and_upconvert_fp8_kv_cache(CACHE, OUT, TABLES, STARTS[:2], 2, None, CACHE[0]),
            "host_cache: is given",
        ),
        (
            lambda: ops.cp_gather_and_upconvert_fp8_kv_cache(CACHE, OUT.half(), TABLES, STARTS[:2], 2),
            "dst: is torch.float16",
        ),
        (lambda: ops.cp_gather_and_upconvert_nvfp4_kv_cache(CACHE, OUT, TABLES, STARTS[:2], 2), "src_cache: is"),
        (
            lambda: ops.gather_and_maybe_dequant_cache(
                OUT[None].float(), OUT, TABLES, STARTS, STARTS, 4, "auto", torch.ones(1)
            ),
            "src_cache: is torch.float32",
        ),
    ],
)
def test_other_arguments_are_refused(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kv_cache": filled(PAGES, PAGE, RANK + TURNED, dtype=torch.uint8)}, r"^kv_cache: is torch\.uint8; expected"),
        ({"kv_cache_dtype": "fp8"}, r"^kv_cache: is torch\.bfloat16; expected bytes for 'fp8'"),
        ({"kv_c": normal(TOKENS, RANK).half()}, r"^kv_c: is torch\.float16; expected torch\.bfloat16, that of k_pe"),
        ({"kv_c": normal(TOKENS - 1, RANK)}, r"^slot_mapping: has 7 elements, but kv_c 6 tokens"),
    ],
)
def test_nothing_is_turned_in_place_by_a_refused_call(change: dict[str, Any], message: str) -> None:
    call: dict[str, Any] = {
        "positions": POSITIONS, "q_pe": normal(TOKENS, 4, TURNED, seed=1), "k_pe": normal(TOKENS, TURNED, seed=2),
        "kv_c": normal(TOKENS, RANK), "cos_sin_cache": TABLE, "is_neox": True, "slot_mapping": SLOTS,
        "kv_cache": torch.zeros(PAGES, PAGE, RANK + TURNED).bfloat16(), "kv_cache_dtype": "auto",
        "kv_cache_scale": torch.ones(1),
    }  # fmt: skip
    before = call["q_pe"].clone(), call["k_pe"].clone()
    with pytest.raises(ValueError, match=message):
        ops.concat_and_cache_mla_rope_fused(**{**call, **change})
    assert torch.equal(call["q_pe"], before[0])
    assert torch.equal(call["k_pe"], before[1])


@pytest.mark.gpu
def test_the_gpu_s_bytes_are_the_cpu_s() -> None:
    found = []
    for device in ("cpu", "cuda"):
        q, k, latents = (normal(*shape).to(device) for shape in ((TOKENS, 4, TURNED), (TOKENS, TURNED), (TOKENS, RANK)))
        cache = filled(PAGES, PAGE, RANK + TURNED, dtype=torch.uint8).to(device)
        where = POSITIONS.to(device), SLOTS.to(device), TABLE.to(device), torch.tensor([0.25], device=device)
        ops.concat_and_cache_mla_rope_fused(where[0], q, k, latents, where[2], True, where[1], cache, "fp8", where[3])
        out = torch.zeros(sum(LENGTHS), RANK + TURNED, dtype=torch.bfloat16, device=device)
        tables, starts = TABLES.to(device), STARTS.to(device)
        ops.gather_and_maybe_dequant_cache(cache, out, tables, starts, starts, len(out), "fp8", where[3])
        keys = filled(PAGES, PAGE, 132, dtype=torch.uint8).to(device)
        ops.indexer_k_quant_and_cache(normal(TOKENS, 128).to(device), keys, where[1], 128, "ue8m0")
        found.append([each.cpu() for each in (q, k, cache, out, keys)])
    assert all(map(torch.equal, *found))
