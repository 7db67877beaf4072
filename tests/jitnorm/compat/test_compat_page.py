"""jitnorm.compat.flashinfer.page: tokens appended to caches in NVFP4, compared with the definition and a loop."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from paged_tokens import INDICES, INDPTR, PAGE, PAGES, PLACES, REQUESTS, SLOTS, filled, has_tokens
from turned_heads import codes

from jitnorm import reference
from jitnorm.compat import flashinfer

TOKENS, HEADS, SIZE = 7, 2, 64
K_SCALE, V_SCALE = 0.01, 0.03


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def nvfp4(x: torch.Tensor, scale: float) -> list[torch.Tensor]:
    """Codes and scales, as bytes, by the definition."""
    options: Any = {"block_size": 16, "scale_format": "e4m3", "global_scale": float(1 / np.float32(scale))}
    made = reference.quantize_fp4(x.float().reshape(-1, x.shape[-1]).numpy(), **options)
    return [torch.from_numpy(each).view(*x.shape[:-1], -1) for each in made]


def caches(layout: str = "NHD", is_stacked: bool = False, pages: int = PAGES) -> list[Any]:
    """Codes and scales of keys and values, of which every byte is 99."""
    made: list[Any] = []
    for columns, dtype in ((SIZE // 2, torch.uint8), (SIZE // 16, torch.float8_e4m3fn)):
        shape = (PAGE, HEADS) if layout == "NHD" else (HEADS, PAGE)
        stacked = filled(pages, 2, *shape, columns, dtype=dtype)
        made.append(stacked if is_stacked else tuple(each.contiguous() for each in stacked.unbind(1)))
    return made


def check(made: list[Any], layout: str, k: torch.Tensor, v: torch.Tensor) -> None:
    expected = nvfp4(k, K_SCALE), nvfp4(v, V_SCALE)
    for which, cache in enumerate(made):  # codes, then scales
        for i, found in enumerate(cache if isinstance(cache, tuple) else cache.unbind(1)):
            assert has_tokens(found if layout == "NHD" else found.transpose(1, 2), expected[i][which])


@pytest.mark.parametrize("layout", ["NHD", "HND"])
@pytest.mark.parametrize("is_stacked", [True, False])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_tokens_are_appended_to_the_pages_of_their_requests(layout: str, is_stacked: bool, dtype: torch.dtype) -> None:
    packed = normal(TOKENS, 3 * HEADS * SIZE, dtype=dtype)  # both are parts of a wider tensor
    k, v = (part.unflatten(-1, (HEADS, SIZE)) for part in packed.chunk(3, -1)[1:])
    made, last_page = caches(layout, is_stacked), torch.tensor([4, 3]).int()
    flashinfer.nvfp4_quantize_append_paged_kv_cache(
        k, v, REQUESTS, PLACES, *made, INDICES, INDPTR, last_page, K_SCALE, V_SCALE, layout
    )
    check(made, layout, k, v)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_slots_past_the_cache_are_skipped_and_there_may_be_more_tokens_than_slots(dtype: torch.dtype) -> None:
    k, v, made = normal(TOKENS + 2, HEADS, SIZE), normal(TOKENS + 2, HEADS, SIZE, seed=1), caches()
    slots = torch.where(SLOTS < 0, PAGES * PAGE, SLOTS).to(dtype)
    scales = torch.tensor([K_SCALE]), torch.tensor(V_SCALE)
    flashinfer.nvfp4_quantize_append_paged_kv_cache_with_slot_mapping(k, v, slots, *made, *scales)
    check(made, "NHD", k, v)
    before = [each.clone() for pair in made for each in pair]
    flashinfer.nvfp4_quantize_append_paged_kv_cache_with_slot_mapping(k, v, slots - 1000, *made, 1.0, 1.0)
    assert all(
        torch.equal(one.view(torch.uint8), other.view(torch.uint8))
        for one, other in zip(before, [each for pair in made for each in pair], strict=True)
    )


def test_an_empty_cache_takes_nothing() -> None:
    made = caches(pages=0)
    flashinfer.nvfp4_quantize_append_paged_kv_cache_with_slot_mapping(
        *[normal(TOKENS, HEADS, SIZE)] * 2, SLOTS, *made, 1.0, 1.0
    )
    assert made[0][0].numel() == 0


def test_there_may_be_no_tokens() -> None:
    made, x, none = caches(), normal(0, HEADS, SIZE), torch.empty(0, dtype=torch.int32)
    flashinfer.nvfp4_quantize_append_paged_kv_cache(
        x, x, none, none, *made, INDICES, INDPTR, INDPTR[1:], K_SCALE, V_SCALE
    )  # fmt: skip
    latents = filled(PAGES, PAGE, 48, dtype=torch.uint8), filled(PAGES, PAGE, 6), filled(PAGES, PAGE, 32)
    flashinfer.nvfp4_quantize_append_paged_mla_kv_cache(
        normal(0, 96), normal(0, 32), none, none, *latents, INDICES, INDPTR, INDPTR[1:], K_SCALE, 0.25
    )
    for cache in (*(each for pair in made for each in pair), *latents):
        assert cache.view(torch.uint8).eq(99).all()


def test_rotated_elements_of_mla_are_in_fp8() -> None:
    ckv, kpe = normal(TOKENS, 96), normal(TOKENS, 32, seed=1)
    caches = filled(PAGES, PAGE, 48, dtype=torch.uint8), filled(PAGES, PAGE, 6), filled(PAGES, PAGE, 32)
    flashinfer.page.nvfp4_quantize_append_paged_mla_kv_cache(
        ckv, kpe, REQUESTS, PLACES, *caches, INDICES, INDPTR, INDPTR[1:], K_SCALE, 0.25
    )
    expected = *nvfp4(ckv, K_SCALE), codes(kpe, 4)
    assert all(map(has_tokens, caches, expected))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"append_key": normal(TOKENS, SIZE)}, "append_key: is torch.bfloat16 of shape"),
        ({"append_value": normal(TOKENS - 1, HEADS, SIZE)}, "append_value: is torch.bfloat16 of shape"),
        ({"append_value": normal(TOKENS, HEADS, SIZE).float()}, "append_value: is torch.float32 of shape"),
        ({"k_scale": 0.0}, "k_scale: is 0.0; allowed is a positive finite global decode scale"),
        ({"k_scale": float("nan")}, "k_scale: is nan"),
        ({"v_scale": float("inf")}, "v_scale: is inf"),
        ({"v_scale": torch.tensor([-1.0])}, "v_scale: is -1.0"),
        ({"v_scale": torch.ones(2)}, "v_scale: has 2 elements"),
        ({"kv_layout": "HN"}, "kv_layout: is 'HN'"),
        ({"kv_cache_sf": caches()[0]}, "kv_cache_sf: is torch.uint8 of shape"),
    ],
)
def test_other_arguments_are_refused(change: dict[str, Any], message: str) -> None:
    codes, scales = caches()
    call = {
        "append_key": normal(TOKENS, HEADS, SIZE), "append_value": normal(TOKENS, HEADS, SIZE), "slot_mapping": SLOTS,
        "paged_kv_cache": codes, "kv_cache_sf": scales, "k_scale": 1.0, "v_scale": 1.0, "kv_layout": "NHD",
    }  # fmt: skip
    with pytest.raises(ValueError, match=f"^{message}"):
        flashinfer.nvfp4_quantize_append_paged_kv_cache_with_slot_mapping(**{**call, **change})
    for cache in (*codes, *scales):
        assert cache.view(torch.uint8).eq(99).all()


def test_each_part_of_mla_s_cache_gets_as_many_tokens_as_there_are() -> None:
    caches = filled(PAGES, PAGE, 48, dtype=torch.uint8), filled(PAGES, PAGE, 6), filled(PAGES, PAGE, 32)
    with pytest.raises(ValueError, match=r"^kpe_cache: gets 1 tokens, but there are \d+ slots"):
        flashinfer.nvfp4_quantize_append_paged_mla_kv_cache(
            normal(TOKENS, 96), normal(1, 32), REQUESTS, PLACES, *caches, INDICES, INDPTR, INDPTR[1:], K_SCALE, 0.25
        )
    for cache in caches:
        assert cache.view(torch.uint8).eq(99).all()


@pytest.mark.gpu
def test_the_gpu_s_bytes_are_the_cpu_s() -> None:
    k, v = normal(TOKENS, HEADS, SIZE), normal(TOKENS, HEADS, SIZE, seed=1)
    made = [tuple(each.cuda() for each in pair) for pair in caches()]
    flashinfer.nvfp4_quantize_append_paged_kv_cache_with_slot_mapping(
        k.cuda(), v.cuda(), SLOTS.cuda(), *made, K_SCALE, V_SCALE
    )
    check([tuple(each.cpu() for each in pair) for pair in made], "NHD", k, v)
