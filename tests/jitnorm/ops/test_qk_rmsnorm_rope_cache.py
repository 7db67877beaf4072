"""qk_rmsnorm_rope_cache and its form in FP8: rotated heads in paged caches of keys and values."""

# ruff: noqa: E501 - in the table below a line is a case

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from expected import assert_same_bytes
from frameworks import CPU_FRAMEWORKS, to_torch
from inputs import ALL_DTYPES, INPUT_KINDS, make_input, make_weight
from jitnorm.kernels.config import KernelConfig
from placement import Placement, assert_written_exactly, place

import jitnorm
from jitnorm import qk_rmsnorm_rope_cache, qk_rmsnorm_rope_cache_quant, reference

TOKENS, Q_HEADS, HEADS, PAGES, PAGE_SIZE = 6, 3, 2, 3, 4
POSITIONS = np.array([3, 0, 9, 4, 10, -1])  # the last two are not in the table
SLOTS = np.array([7, -1, 0, PAGES * PAGE_SIZE, 11])  # nothing for the second and the fourth, and none for the last
FP8 = ml_dtypes.float8_e4m3fn
# In order, with gaps and an odd address; pages within heads, the tokens of a page backwards.
SPOTS = (
    Placement((0, 1, 2), (1, 1, 0), 1, 1, (False, False, False)),
    Placement((1, 0, 2), (0, 1, 1), 8, 8, (False, False, True)),
)
SCALES = {"one": np.full(1, 0.05, np.float32), "of heads": np.array([0.05, 3.0], np.float32)}


def call_of(kind: str, size: int, dtype: str, rotary_size: int | None = None) -> dict[str, Any]:
    """The arguments of a call; queries, keys and values are views of a packed tensor."""
    packed = make_input(kind, TOKENS * (Q_HEADS + 2 * HEADS), size, dtype).reshape(TOKENS, -1, size)
    q, k, v = np.split(packed, [Q_HEADS, Q_HEADS + HEADS], axis=1)
    turns = np.random.default_rng(3).uniform(0, 2 * np.pi, (10, (rotary_size or size) // 2))
    return {
        "q": q, "k": k, "v": v, "q_weight": make_weight(size, dtype), "k_weight": make_weight(size, dtype, 2),
        "cos_sin_cache": np.hstack([np.cos(turns), np.sin(turns)]).astype(np.float32), "positions": POSITIONS,
    }  # fmt: skip


def turned(call: dict[str, Any], *, rounding: Any = "once", is_neox: bool = True) -> list[Any]:
    """Rotated queries and keys in float32, not rounded at the end."""
    found = []
    for name in "qk":
        x = call[name]
        y = reference.rmsnorm_f32(x.reshape(-1, x.shape[-1]), call[f"{name}_weight"], 1e-6, rounding=rounding)
        options = {"is_neox": is_neox, "rounding": rounding, "dtype": x.dtype}
        of_rows = np.repeat(POSITIONS, x.shape[1])
        found.append(reference.rotate_f32(y, call["cos_sin_cache"], of_rows, **options).reshape(x.shape))
    return found


def rounded(call: dict[str, Any], **options: Any) -> list[Any]:
    """The result of qk_rmsnorm_rope."""
    return [reference.round_to(y, call["q"].dtype) for y in turned(call, **options)]


def filled(size: int, dtype: Any, fill: int = 1) -> Any:
    """A cache that is not empty."""
    return np.full((PAGES, PAGE_SIZE, HEADS, size), fill, dtype)


def codes_of(heads: Any, scales: Any) -> Any:
    """The codes of (tokens, heads, size), with a scale for each head."""
    by_head = np.broadcast_to(scales, (HEADS,))
    found = [reference.quantize_fp8_static(heads[:, i].astype(np.float32), float(by_head[i])) for i in range(HEADS)]
    return np.stack(found, 1)


@pytest.mark.parametrize(
    ("size", "rotary_size", "dtype", "slots", "options"),
    [
        (64, 64, "float16", SLOTS, {}),
        (17, 10, "bfloat16", SLOTS.astype(np.int32), {"rounding": "hf", "is_neox": False}),
    ],
)
def test_keys_and_values_are_in_their_slots(size: int, rotary_size: int, dtype: str, slots: Any, options: Any) -> None:
    for kind in INPUT_KINDS:
        call = call_of(kind, size, dtype, rotary_size)
        keys, values = filled(size, ALL_DTYPES[dtype]), filled(size, ALL_DTYPES[dtype], 2)
        q, k = rounded(call, **options)
        expected = reference.insert_heads(keys, k, slots), reference.insert_heads(values, call["v"], slots)
        kept = qk_rmsnorm_rope_cache(
            **call, slot_mapping=slots, key_cache=keys, value_cache=values, keep_heads=True, **options
        )
        for got, wanted in zip((*kept, keys, values), (q, k, call["v"], *expected), strict=True):
            assert_same_bytes(got, wanted, kind)


@pytest.mark.parametrize("rounding", ["once", "output"])
def test_codes_are_those_of_keys_and_values(rounding: str) -> None:
    names = [("one", "of heads"), ("of heads", "one")] * len(INPUT_KINDS)
    for kind, (k_scale, v_scale) in zip(INPUT_KINDS, names, strict=False):
        call, scales = call_of(kind, 80, "float16"), {"k_scale": SCALES[k_scale], "v_scale": SCALES[v_scale]}
        keys, values = filled(80, np.uint8), filled(80, np.uint8, 2).view(FP8)
        encoded = turned(call)[1] if rounding == "once" else rounded(call)[1]
        expected = [
            reference.insert_heads(cache.view(np.uint8), codes_of(heads, scale), SLOTS)
            for cache, heads, scale in zip((keys, values), (encoded, call["v"]), scales.values(), strict=True)
        ]
        made = qk_rmsnorm_rope_cache_quant(
            **call, slot_mapping=SLOTS, key_cache=keys, value_cache=values, **scales, rounding=rounding
        )
        assert made[1:] == (None, None)
        for got, wanted in zip((made[0], keys, values.view(np.uint8)), (rounded(call)[0], *expected), strict=True):
            assert_same_bytes(got, wanted, kind)


@pytest.mark.parametrize("spot", SPOTS)
def test_strides_and_alignment_of_caches_change_nothing(spot: Any) -> None:
    """Heads precede the tokens of a page; nothing else in the memory of caches is written."""
    call = call_of("random", 64, "float16")
    placed = [place((PAGES, HEADS, PAGE_SIZE, 64), np.float16, spot) for _ in range(2)]
    for each in placed:
        each.view[...] = 1
    keys, values = (each.view.swapaxes(1, 2) for each in placed)
    qk_rmsnorm_rope_cache(**call, slot_mapping=SLOTS, key_cache=keys, value_cache=values, keep_heads=True)
    for each, heads in zip(placed, (rounded(call)[1], call["v"]), strict=True):
        assert_written_exactly(each, reference.insert_heads(filled(64, np.float16), heads, SLOTS).swapaxes(1, 2), spot)


def test_one_packed_tensor_and_one_cache_of_both_are_written_by_one_kernel(prepared: list[KernelConfig]) -> None:
    call = call_of("random", 64, "float16")
    q, k, v = (call[name] for name in "qkv")
    expected = [*rounded(call), v.copy()]
    both = np.ones((PAGES, 2, PAGE_SIZE, HEADS, 64), np.float16)
    made = qk_rmsnorm_rope_cache(
        **call, slot_mapping=SLOTS, key_cache=both[:, 0], value_cache=both[:, 1], q_out=q, keep_heads=True, k_out=k,
        v_out=v,
    )  # fmt: skip
    assert [each is view for each, view in zip(made, (q, k, v), strict=True)] == [True] * 3
    assert [(config.row_dims, config.slots, config.quant) for config in prepared] == [(2, "int64", None)]
    for got, wanted in zip((q, k, v), expected, strict=True):
        assert_same_bytes(got, wanted)
    for i, heads in enumerate(expected[1:]):
        assert_same_bytes(both[:, i], reference.insert_heads(filled(64, np.float16), heads, SLOTS))


@pytest.mark.parametrize("name", [name for name in CPU_FRAMEWORKS if name != "jax"])
def test_every_framework_gets_the_same_bytes(name: str) -> None:
    call, convert = call_of("random", 64, "float16"), CPU_FRAMEWORKS[name]
    keys, values = convert(filled(64, np.float16)), convert(filled(64, np.float16))
    given = {key: convert(np.ascontiguousarray(value)) for key, value in call.items()}
    made = qk_rmsnorm_rope_cache(**given, slot_mapping=convert(SLOTS), key_cache=keys, value_cache=values)
    q, k = rounded(call)
    assert_same_bytes(made[0], q)
    assert_same_bytes(keys, reference.insert_heads(filled(64, np.float16), k, SLOTS))
    assert_same_bytes(values, reference.insert_heads(filled(64, np.float16), call["v"], SLOTS))


def test_jax_arrays_cannot_be_written() -> None:
    jax = pytest.importorskip("jax")
    call = {name: jax.numpy.asarray(value) for name, value in call_of("random", 64, "float16").items()}
    cache = jax.numpy.ones((PAGES, PAGE_SIZE, HEADS, 64), "float16")
    with pytest.raises(TypeError, match=r"key_cache: is written, but JAX arrays are .*qk_rmsnorm_rope, which"):
        qk_rmsnorm_rope_cache(**call, slot_mapping=jax.numpy.asarray(SLOTS), key_cache=cache, value_cache=cache)


def test_transforms_of_torch_cannot_write_parts() -> None:
    call = {name: to_torch(value) for name, value in call_of("random", 64, "float16").items()}
    keys, values = (torch.ones(PAGES, PAGE_SIZE, HEADS, 64).half() for _ in range(2))

    def insert(q: Any) -> Any:
        return qk_rmsnorm_rope_cache(
            **{**call, "q": q}, slot_mapping=to_torch(SLOTS), key_cache=keys, value_cache=values
        )[0]

    with pytest.raises(TypeError, match=r"key_cache: is written in part, which transforms of torch.func do not allow"):
        torch.func.vmap(insert)(call["q"][None])


def test_nothing_is_written_without_tokens_or_pages() -> None:
    call = call_of("random", 64, "float16")
    none = {name: value[:0] if name in ("q", "k", "v", "positions") else value for name, value in call.items()}
    keys, values = filled(64, np.float16), filled(64, np.float16)
    made = qk_rmsnorm_rope_cache(**none, slot_mapping=SLOTS[:0], key_cache=keys, value_cache=values, keep_heads=True)
    assert made[0].shape == (0, Q_HEADS, 64)
    assert (keys == 1).all()
    q, *_ = qk_rmsnorm_rope_cache(
        **call, slot_mapping=SLOTS, key_cache=keys[:0], value_cache=values[:, :0], keep_heads=True
    )
    assert_same_bytes(q, rounded(call)[0])


BAD: list[tuple[str, dict[str, Any], str, Any]] = [
    ("heads", {"key_cache": np.ones((3, 4, 3, 64), np.float16)}, r"key_cache: shape is \(3, 4, 3, 64\); expected \(pages, page size, heads, head size\), of which k, of shape \(\.\.\., 2, 64\)", ValueError),
    ("rank", {"value_cache": np.ones((12, 2, 64), np.float16)}, r"value_cache: shape is \(12, 2, 64\); expected \(pages", ValueError),
    ("none", {"key_cache": None}, "key_cache: is None; expected a tensor", TypeError),
    ("dtype", {"key_cache": np.ones((3, 4, 2, 64), np.float32)}, "key_cache: dtype is float32, expected float16", ValueError),
    ("v_heads", {"v": np.ones((6, 3, 64), np.float16)}, r"v: shape is \(6, 3, 64\), expected \(6, 2, 64\)", ValueError),
    ("slots_rank", {"slot_mapping": np.ones((6, 1), np.int64)}, r"slot_mapping: shape is \(6, 1\), expected \(6,\)", ValueError),
    ("slots_dtype", {"slot_mapping": SLOTS.astype(np.int16)}, "slot_mapping dtype: is 'int16'; allowed are 'int32', 'int64'", ValueError),
    ("one_cache", {"value_cache": "key_cache"}, "(key|value)_cache: overlaps the memory of (key|value)_cache", ValueError),
    ("k_out", {"k_out": np.ones((6, 2, 64), np.float16)}, "k_out: is given, but keep_heads is False; pass None or keep_heads=True", ValueError),
    ("shared_row", {"cos_sin_cache": np.ones((10, 66), np.float32)}, "cos_sin_cache: its last dimension is 66; an even", ValueError),
]  # fmt: skip


@pytest.mark.parametrize(("change", "message", "error"), [pytest.param(*case[1:], id=case[0]) for case in BAD])
def test_bad_input_is_refused(change: dict[str, Any], message: str, error: Any) -> None:
    call = {**call_of("random", 64, "float16"), "slot_mapping": SLOTS, "key_cache": filled(64, np.float16)}
    call |= {"value_cache": filled(64, np.float16)} | change
    given = {name: call[value] if isinstance(value, str) else value for name, value in call.items()}
    with pytest.raises(error, match=message):
        qk_rmsnorm_rope_cache(**given)


def test_scales_are_one_or_those_of_heads() -> None:
    cache = filled(64, np.uint8)
    call = {**call_of("random", 64, "float16"), "slot_mapping": SLOTS, "key_cache": cache, "value_cache": cache.copy()}
    with pytest.raises(ValueError, match=r"v_scale: shape is \(3,\); expected \(1,\), or \(2,\), one for each head"):
        qk_rmsnorm_rope_cache_quant(**call, k_scale=SCALES["one"], v_scale=np.ones(3, np.float32))
    with pytest.raises(TypeError, match=r"k_scale: is None; expected a tensor"):
        qk_rmsnorm_rope_cache_quant(**call, k_scale=None, v_scale=SCALES["one"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rmsnorm:hidden_size=64,pair=true,paged=true", "paged: is True, which takes rope and rows"),
        ("rmsnorm:hidden_size=64,pair=true,rope=neox,keep_heads=true", "keep_heads, slots: are given without paged"),
    ],
)
def test_configurations_of_no_kernel_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        KernelConfig.parse(text)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("size", "is_neox"), [(64, True), (128, True), (80, False), (17, False), (192, True), (512, True)]
)
@pytest.mark.parametrize("is_encoded", [True, False])
def test_the_gpu_s_bytes_are_the_cpu_s(size: int, is_neox: bool, is_encoded: bool) -> None:
    for kind in INPUT_KINDS:
        call = {name: to_torch(value) for name, value in call_of(kind, size, "bfloat16", size // 4 * 2).items()}
        call["slot_mapping"] = to_torch(SLOTS)
        if is_encoded:
            call |= {"k_scale": to_torch(SCALES["of heads"]), "v_scale": to_torch(SCALES["one"])}
        runs = []
        for device in ("cpu", "cuda"):
            moved = {name: value.to(device) for name, value in call.items()}
            caches = torch.ones(PAGES, 2, PAGE_SIZE, HEADS, size, device=device)
            caches = caches.to(torch.uint8 if is_encoded else torch.bfloat16)
            function = qk_rmsnorm_rope_cache_quant if is_encoded else qk_rmsnorm_rope_cache
            moved |= {"key_cache": caches[:, 0], "value_cache": caches[:, 1]}
            runs.append((*function(**moved, is_neox=is_neox, keep_heads=True), caches))
        for on_cpu, on_gpu in zip(*runs, strict=True):
            assert_same_bytes(on_gpu, on_cpu, kind)


@pytest.mark.gpu
@pytest.mark.parametrize("normalizes", [True, False])
@pytest.mark.parametrize("is_encoded", [True, False])
def test_many_tokens_write_what_they_write_in_parts(normalizes: bool, is_encoded: bool) -> None:
    """Kernels for many tokens request heads in another order."""
    tokens, size, heads = 1536, 128, (28, 7, 7)
    packed = torch.randn(tokens, sum(heads), size, device="cuda").bfloat16()
    weights = (torch.rand(size, device="cuda").bfloat16(),) * 2 if normalizes else ()
    table = torch.randn(tokens, size, device="cuda").bfloat16()
    positions = torch.randperm(tokens, device="cuda") - 1
    slots = torch.randperm(tokens, device="cuda")
    name = ("qk_rmsnorm_rope" if normalizes else "rope") + ("_cache_quant" if is_encoded else "_cache")
    scales = (torch.full((1,), 0.05, device="cuda"),) * 2 if is_encoded else ()

    def written(parts: int) -> list[torch.Tensor]:
        dtype = torch.uint8 if is_encoded else torch.bfloat16
        caches = [torch.zeros(tokens // 16, 16, 7, size, device="cuda", dtype=dtype) for _ in range(2)]
        typed = [cache.view(torch.float8_e4m3fn) if is_encoded else cache for cache in caches]
        queries = []
        for part, at, slot in zip(packed.chunk(parts), positions.chunk(parts), slots.chunk(parts), strict=True):
            q, k, v = part.split(heads, 1)
            found = getattr(jitnorm, name)(q, k, v, *weights, table, at, slot, *typed, *scales)
            queries.append(found[0] if isinstance(found, tuple) else found)
        return [torch.cat(queries).view(torch.int16), *(cache.view(torch.uint8) for cache in caches)]

    for whole, in_parts in zip(written(1), written(12), strict=True):
        assert torch.equal(whole, in_parts)
