"""jitnorm.compat.flashinfer.rope: rotated heads in FP8, also in paged caches, compared with torch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from paged_tokens import INDICES, INDPTR, PAGE, PAGES, PLACES, REQUESTS, filled, has_tokens
from turned_heads import codes, turned

from jitnorm.compat import flashinfer

TOKENS, TURNED, REST = 7, 32, 48
Q_SCALE, KV_SCALE = 0.5, 4.0
POSITIONS = torch.tensor([3, 0, 8, 1, 1, 5, 2])
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


TABLE = normal(9, TURNED, seed=9, dtype=torch.float32)


def heads_of(x: torch.Tensor) -> torch.Tensor:
    return x if x.ndim == 3 else x[:, None]


def expected_codes(x: torch.Tensor, factor: float, is_neox: bool, dtype: torch.dtype = E4M3) -> torch.Tensor:
    """Codes of heads whose first elements are turned."""
    return codes(turned(heads_of(x), TABLE[POSITIONS], is_neox), factor, dtype).view(x.shape)


@pytest.mark.parametrize("is_mla", [True, False])
@pytest.mark.parametrize("is_neox", [True, False])
@pytest.mark.parametrize("dtype", [E4M3, E5M2])
def test_all_elements_are_encoded_and_some_are_turned_first(is_mla: bool, is_neox: bool, dtype: torch.dtype) -> None:
    q = normal(TOKENS, 4, TURNED + REST, seed=1)
    k = normal(TOKENS, *([] if is_mla else [2]), TURNED + REST, seed=2)
    parts = [part for i in (0, 1) for part in (q.split([TURNED, REST], -1)[i], k.split([TURNED, REST], -1)[i])]
    function = flashinfer.mla_rope_quantize_fp8 if is_mla else flashinfer.rope_quantize_fp8
    factors = {"quant_scale_q": Q_SCALE, "quant_scale_kv": KV_SCALE}
    made = function(*parts, TABLE, POSITIONS, is_neox, dtype, **factors, enable_pdl=True)
    expected = expected_codes(q, Q_SCALE, is_neox, dtype), expected_codes(k, KV_SCALE, is_neox, dtype)
    for found, wanted in zip((made[::2], made[1::2]), expected, strict=True):
        assert found[0].dtype == dtype
        assert torch.equal(torch.cat(found, -1).view(torch.uint8), wanted)
    # Outputs may be parts of wider ones; they say the dtype.
    outputs = [torch.zeros(each.shape, dtype=dtype) for each in (q, k)]
    given = [part for i in (0, 1) for part in (each.split([TURNED, REST], -1)[i] for each in outputs)]
    returned = function(*parts, TABLE, POSITIONS, is_neox, None, Q_SCALE, KV_SCALE, *given)
    assert all(one is other for one, other in zip(returned, given, strict=True))
    for output, wanted in zip(outputs, expected, strict=True):
        assert torch.equal(output.view(torch.uint8), wanted)


def test_there_may_be_no_other_elements() -> None:
    q, k = normal(TOKENS, 4, TURNED), normal(TOKENS, 2, TURNED)
    made = flashinfer.rope_quantize_fp8(q, k, None, None, TABLE, POSITIONS)
    assert torch.equal(made[0].view(torch.uint8), expected_codes(q, 1, True))
    assert [tuple(each.shape) for each in made[2:]] == [(TOKENS, 4, 0), (TOKENS, 2, 0)]


@pytest.mark.parametrize("layout", ["NHD", "HND"])
@pytest.mark.parametrize("rest", [REST, 0])
def test_keys_and_values_are_inserted_into_pages(layout: str, rest: int) -> None:
    q, k, v = (normal(TOKENS, n, TURNED + rest, seed=n) for n in (4, 2, 2))
    parts = [q[..., :TURNED], k[..., :TURNED], *([q[..., TURNED:], k[..., TURNED:]] if rest else [None, None])]
    caches = [filled(PAGES, PAGE, 2, TURNED + rest) for _ in (k, v)]
    given = tuple(each if layout == "NHD" else each.transpose(1, 2).contiguous() for each in caches)
    made = flashinfer.rope_quantize_fp8_append_paged_kv_cache(
        *parts, v, TABLE, POSITIONS, given, INDICES, INDPTR, REQUESTS, PLACES, False, None, Q_SCALE, KV_SCALE, PAGE,
        layout,
    )  # fmt: skip
    assert torch.equal(torch.cat(made, -1).view(torch.uint8), expected_codes(q, Q_SCALE, False))
    found = given if layout == "NHD" else [each.transpose(1, 2) for each in given]
    assert has_tokens(found[0], expected_codes(k, KV_SCALE, False))
    assert has_tokens(found[1], codes(v, KV_SCALE))


def test_mla_has_one_cache_for_turned_elements_and_one_for_the_others() -> None:
    q, k = normal(TOKENS, 4, TURNED + REST, seed=1), normal(TOKENS, TURNED + REST, seed=2)
    parts = q[..., :TURNED], k[..., :TURNED], q[..., TURNED:], k[..., TURNED:]
    caches = filled(PAGES, PAGE, REST, dtype=E5M2), filled(PAGES, PAGE, TURNED, dtype=E5M2)
    flashinfer.rope_quantize_fp8_append_paged_kv_cache(
        *parts, None, TABLE, POSITIONS, caches, INDICES, INDPTR, REQUESTS, PLACES, quantize_dtype=E5M2,
        quant_scale_kv=KV_SCALE, page_size=PAGE,
    )  # fmt: skip
    expected = expected_codes(k, KV_SCALE, True, E5M2)
    assert has_tokens(caches[0], expected[:, TURNED:])
    assert has_tokens(caches[1], expected[:, :TURNED])


def test_nothing_is_inserted_when_no_token_has_a_request() -> None:
    q, k = normal(TOKENS, 4, TURNED), normal(TOKENS, TURNED)
    cache, none = filled(PAGES, PAGE, TURNED), torch.full_like(REQUESTS, -1)
    flashinfer.rope_quantize_fp8_append_paged_kv_cache(
        q, k, None, None, None, TABLE, POSITIONS, (filled(PAGES, PAGE, 0), cache), INDICES, INDPTR, none, PLACES,
        page_size=PAGE,
    )  # fmt: skip
    assert cache.view(torch.uint8).eq(99).all()


def test_there_may_be_no_tokens() -> None:
    q, k, none, cache = normal(0, 4, TURNED), normal(0, TURNED), REQUESTS[:0], filled(PAGES, PAGE, TURNED)
    made = flashinfer.rope_quantize_fp8_append_paged_kv_cache(
        q, k, q, k, None, TABLE, POSITIONS[:0], (cache, cache), INDICES, INDPTR, none, none, page_size=PAGE
    )  # fmt: skip
    assert [tuple(each.shape) for each in made] == [(0, 4, TURNED)] * 2
    assert cache.view(torch.uint8).eq(99).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"quantize_dtype": torch.float16}, "quantize_dtype: is torch.float16"),
        ({"quant_scale_q": 0.0}, "quant_scale_q: is 0.0"),
        ({"backend": "triton"}, "backend: is 'triton'"),
    ],
)
def test_other_arguments_are_refused(options: dict[str, Any], message: str) -> None:
    q, k = normal(TOKENS, 4, TURNED), normal(TOKENS, 2, TURNED)
    with pytest.raises(ValueError, match=message):
        flashinfer.rope_quantize_fp8(q, k, None, None, TABLE, POSITIONS, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"v": None}, "v: is None"),
        ({"kv_layout": "DNH"}, "kv_layout: is 'DNH'"),
        ({"page_size": 16}, "page_size: is 16"),
        ({"quantize_dtype": E5M2}, "paged_kv_cache: is torch.float8_e4m3fn of shape"),
    ],
)
def test_other_arguments_of_caches_are_refused(options: dict[str, Any], message: str) -> None:
    q, k = normal(TOKENS, 4, TURNED), normal(TOKENS, 2, TURNED)
    caches = filled(PAGES, PAGE, 2, TURNED), filled(PAGES, PAGE, 2, TURNED)
    with pytest.raises(ValueError, match=message):
        flashinfer.rope_quantize_fp8_append_paged_kv_cache(
            q, k, None, None, cos_sin_cache=TABLE, pos_ids=POSITIONS, paged_kv_cache=caches, kv_indices=INDICES,
            kv_indptr=INDPTR, batch_indices=REQUESTS, positions=PLACES, **{"v": k, "page_size": PAGE, **options},
        )  # fmt: skip


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [E4M3, E5M2])
def test_the_gpu_s_bytes_are_the_cpu_s(dtype: torch.dtype) -> None:
    q, k = normal(TOKENS, 4, TURNED + REST, seed=1), normal(TOKENS, 2, TURNED + REST, seed=2)
    found = []
    for device in ("cpu", "cuda"):
        moved = q.to(device), k.to(device)
        caches = [filled(PAGES, PAGE, 2, TURNED + REST, dtype=dtype).to(device) for _ in moved]
        parts = [each[..., slice(*part)] for part in ((0, TURNED), (TURNED, None)) for each in moved]
        where = [each.to(device) for each in (TABLE, POSITIONS)]
        places = [each.to(device) for each in (INDICES, INDPTR, REQUESTS, PLACES)]
        made = flashinfer.rope_quantize_fp8_append_paged_kv_cache(
            *parts, moved[1], *where, tuple(caches), *places, False, dtype, Q_SCALE, KV_SCALE, PAGE
        )
        found.append([each.cpu().view(torch.uint8) for each in (*made, *caches)])
    assert all(map(torch.equal, *found))
