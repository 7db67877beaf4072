"""qk_rmsnorm_rope_cache and its form in FP8: heads, turned, in paged caches of keys and values."""

# ruff: noqa: E501 - in the table below a line is a case

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from expected import assert_same_bytes
from frameworks import CPU_FRAMEWORKS, to_torch
from hypothesis import given, settings
from hypothesis import strategies as st
from inputs import ALL_DTYPES, INPUT_KINDS, make_input, make_weight
from jitnorm.kernels.config import KernelConfig
from placement import assert_written_exactly, place, placements

from jitnorm import qk_rmsnorm_rope, qk_rmsnorm_rope_cache, qk_rmsnorm_rope_cache_quant, reference

TOKENS, Q_HEADS, HEADS, PAGES, PAGE_SIZE = 6, 3, 2, 3, 4
POSITIONS = np.array([3, 0, 9, 4, 10, -1])  # the last two are not in the table
SLOTS = np.array([7, -1, 0, PAGES * PAGE_SIZE, 11])  # nothing for the second and the fourth, and none for the last
FP8 = ml_dtypes.float8_e4m3fn
SCALES = {"one": np.full(1, 0.05, np.float32), "of heads": np.array([0.05, 3.0], np.float32)}


def call_of(kind: str, size: int, dtype: str, rotary_size: int | None = None) -> dict[str, Any]:
    packed = make_input(kind, TOKENS * (Q_HEADS + 2 * HEADS), size, dtype).reshape(TOKENS, -1, size)
    q, k, v = np.split(packed, [Q_HEADS, Q_HEADS + HEADS], axis=1)
    turns = np.random.default_rng(3).uniform(0, 2 * np.pi, (10, (rotary_size or size) // 2))
    return {
        "q": q, "k": k, "v": v, "q_weight": make_weight(size, dtype), "k_weight": make_weight(size, dtype, 2),
        "cos_sin_cache": np.hstack([np.cos(turns), np.sin(turns)]).astype(np.float32), "positions": POSITIONS,
    }  # fmt: skip


def turned(call: dict[str, Any], **options: Any) -> tuple[Any, Any]:
    """The queries and keys that qk_rmsnorm_rope gives."""
    return qk_rmsnorm_rope(**{name: value for name, value in call.items() if name != "v"}, **options)


def filled(size: int, dtype: Any, fill: int = 1) -> Any:
    """A cache that is not empty."""
    return np.full((PAGES, PAGE_SIZE, HEADS, size), fill, dtype)


def codes_of(heads: Any, scales: Any) -> Any:
    """Those of (tokens, heads, size), each head by its scale."""
    by_head = np.broadcast_to(scales, (HEADS,))
    found = [reference.quantize_fp8_static(heads[:, i].astype(np.float32), float(by_head[i])) for i in range(HEADS)]
    return np.stack(found, 1)


@pytest.mark.parametrize(
    ("size", "rotary_size", "dtype", "options"),
    [
        (64, 64, "bfloat16", {"is_neox": True}),
        (128, 96, "float16", {"is_neox": False, "unit_bias": True}),
        (17, 10, "float32", {"rounding": "hf"}),
    ],
)
def test_keys_and_values_are_in_their_slots(size: int, rotary_size: int, dtype: str, options: Any) -> None:
    for kind, slots in zip(INPUT_KINDS, [SLOTS, SLOTS.astype(np.int32)] * len(INPUT_KINDS), strict=False):
        call = call_of(kind, size, dtype, rotary_size)
        keys, values = filled(size, ALL_DTYPES[dtype]), filled(size, ALL_DTYPES[dtype], 2)
        q, k = turned(call, **options)
        expected = reference.insert_heads(keys, k, slots), reference.insert_heads(values, call["v"], slots)
        kept = qk_rmsnorm_rope_cache(
            **call, slot_mapping=slots, key_cache=keys, value_cache=values, keep_heads=True, **options
        )
        for got, wanted in zip((*kept, keys, values), (q, k, call["v"], *expected), strict=True):
            assert_same_bytes(got, wanted, kind)


@pytest.mark.parametrize(("size", "dtype"), [(64, "bfloat16"), (80, "float16")])
def test_codes_are_those_of_what_is_kept(size: int, dtype: str) -> None:
    for kind, (k_scale, v_scale) in zip(INPUT_KINDS, [("one", "of heads"), ("of heads", "one")] * 10, strict=False):
        call, scales = call_of(kind, size, dtype), {"k_scale": SCALES[k_scale], "v_scale": SCALES[v_scale]}
        keys, values = filled(size, np.uint8), filled(size, np.uint8, 2).view(FP8)
        q, k = turned(call)
        expected = [
            reference.insert_heads(cache.view(np.uint8), codes_of(heads, scale), SLOTS)
            for cache, heads, scale in zip((keys, values), (k, call["v"]), scales.values(), strict=True)
        ]
        made = qk_rmsnorm_rope_cache_quant(
            **call, slot_mapping=SLOTS, key_cache=keys, value_cache=values, **scales, rounding="output"
        )
        assert made[1:] == (None, None)
        for got, wanted in zip((made[0], keys, values.view(np.uint8)), (q, *expected), strict=True):
            assert_same_bytes(got, wanted, kind)


def test_codes_are_of_unrounded_keys() -> None:
    call, scale = call_of("random", 64, "float16"), SCALES["one"].reshape(())
    keys, values = filled(64, np.uint8), filled(64, np.uint8)
    _, k, _ = qk_rmsnorm_rope_cache_quant(
        **call, slot_mapping=SLOTS, key_cache=keys, value_cache=values, k_scale=scale, v_scale=scale, keep_heads=True
    )
    y = reference.rmsnorm_f32(call["k"].reshape(-1, 64), call["k_weight"], 1e-6)
    unrounded = reference.rotate_f32(y, call["cos_sin_cache"], np.repeat(POSITIONS, HEADS)).reshape(k.shape)
    assert_same_bytes(k, reference.round_to(unrounded, np.float16))
    assert_same_bytes(keys, reference.insert_heads(filled(64, np.uint8), codes_of(unrounded, scale), SLOTS))


@settings(deadline=None, max_examples=20)
@given(data=st.data())
def test_strides_and_alignment_change_nothing(data: st.DataObject) -> None:
    """Also of caches whose heads stand before the tokens of a page; nothing else in their memory is written."""
    call = call_of("random", 64, "float16")
    spots = [data.draw(placements(3, (0, 1, 4, 8))) for _ in range(2)]
    is_transposed = data.draw(st.booleans())
    shape = (PAGES, HEADS, PAGE_SIZE, 64) if is_transposed else (PAGES, PAGE_SIZE, HEADS, 64)
    placed = [place(shape, np.float16, spot) for spot in spots]
    views = [each.view.swapaxes(1, 2) if is_transposed else each.view for each in placed]
    for view in views:
        view[...] = 1
    spot = data.draw(placements(2, (0, 1, 4, 8)))
    v = place(call["v"].shape, np.float16, spot)
    v.view[...] = call["v"]
    qk_rmsnorm_rope_cache(**{**call, "v": v.view}, slot_mapping=SLOTS, key_cache=views[0], value_cache=views[1])
    for each, heads, spot in zip(placed, (turned(call)[1], call["v"]), spots, strict=True):
        expected = reference.insert_heads(filled(64, np.float16), heads, SLOTS)
        assert_written_exactly(each, expected.swapaxes(1, 2) if is_transposed else expected, spot)


def test_one_packed_tensor_and_one_cache_of_both_are_written_by_one_kernel(prepared: list[KernelConfig]) -> None:
    call = call_of("random", 64, "float16")
    packed = make_input("random", TOKENS * 7, 64, "float16").reshape(TOKENS, 7, 64)
    q, k, v = packed[:, :3], packed[:, 3:5], packed[:, 5:]
    expected, before = turned({**call, "q": q.copy(), "k": k.copy()}), packed.copy()
    prepared.clear()
    both = np.ones((PAGES, 2, PAGE_SIZE, HEADS, 64), np.float16)
    made = qk_rmsnorm_rope_cache(
        **{**call, "q": q, "k": k, "v": v}, slot_mapping=SLOTS, key_cache=both[:, 0], value_cache=both[:, 1], q_out=q,
        keep_heads=True, k_out=k, v_out=v,
    )  # fmt: skip
    assert [each is view for each, view in zip(made, (q, k, v), strict=True)] == [True] * 3
    assert [(config.row_dims, config.slots, config.quant) for config in prepared] == [(2, "int64", None)]
    for got, wanted in zip((q, k, v), (*expected, before[:, 5:]), strict=True):
        assert_same_bytes(got, wanted)
    for i, heads in enumerate((expected[1], before[:, 5:])):
        assert_same_bytes(both[:, i], reference.insert_heads(filled(64, np.float16), heads, SLOTS))


@pytest.mark.parametrize("name", [name for name in CPU_FRAMEWORKS if name != "jax"])
def test_every_framework_gets_the_same_bytes(name: str) -> None:
    call, convert = call_of("random", 64, "float16"), CPU_FRAMEWORKS[name]
    keys, values = convert(filled(64, np.float16)), convert(filled(64, np.float16))
    made = qk_rmsnorm_rope_cache(
        **{key: convert(value) for key, value in call.items()}, slot_mapping=convert(SLOTS), key_cache=keys,
        value_cache=values,
    )  # fmt: skip
    q, k = turned(call)
    assert_same_bytes(made[0], q)
    assert_same_bytes(keys, reference.insert_heads(filled(64, np.float16), k, SLOTS))
    assert_same_bytes(values, reference.insert_heads(filled(64, np.float16), call["v"], SLOTS))


def test_jax_arrays_cannot_be_written() -> None:
    jax = pytest.importorskip("jax")
    call = {name: jax.numpy.asarray(value) for name, value in call_of("random", 64, "float16").items()}
    cache = jax.numpy.ones((PAGES, PAGE_SIZE, HEADS, 64), "float16")
    with pytest.raises(TypeError, match=r"key_cache: is written, but JAX arrays are .*qk_rmsnorm_rope, which"):
        qk_rmsnorm_rope_cache(**call, slot_mapping=jax.numpy.asarray(SLOTS), key_cache=cache, value_cache=cache)


def test_nothing_is_written_without_tokens_or_pages() -> None:
    call = call_of("random", 64, "float16")
    none = {name: value[:0] if name in ("q", "k", "v", "positions") else value for name, value in call.items()}
    keys, values = filled(64, np.float16), filled(64, np.float16)
    made = qk_rmsnorm_rope_cache(**none, slot_mapping=SLOTS[:0], key_cache=keys, value_cache=values)
    assert made[0].shape == (0, Q_HEADS, 64)
    assert (keys == 1).all()
    q, *_ = qk_rmsnorm_rope_cache(**call, slot_mapping=SLOTS, key_cache=keys[:0], value_cache=values[:, :0])
    assert_same_bytes(q, turned(call)[0])


BAD: list[tuple[str, dict[str, Any], str, Any]] = [
    ("heads", {"key_cache": np.ones((3, 4, 3, 64), np.float16)}, r"key_cache: shape is \(3, 4, 3, 64\); expected \(pages, page size, heads, head size\), of which k, of shape \(6, 2, 64\)", ValueError),
    ("rank", {"value_cache": np.ones((12, 2, 64), np.float16)}, r"value_cache: shape is \(12, 2, 64\); expected \(pages", ValueError),
    ("none", {"key_cache": None}, "key_cache: is a .*NoneType; expected a tensor", TypeError),
    ("dtype", {"key_cache": np.ones((3, 4, 2, 64), np.float32)}, "key_cache: dtype is float32, expected float16", ValueError),
    ("v_heads", {"v": np.ones((6, 3, 64), np.float16)}, r"v: shape is \(6, 3, 64\), expected \(6, 2, 64\)", ValueError),
    ("slots_rank", {"slot_mapping": np.ones((6, 1), np.int64)}, r"slot_mapping: shape is \(6, 1\), expected \(6,\)", ValueError),
    ("slots_dtype", {"slot_mapping": SLOTS.astype(np.int16)}, "slot_mapping dtype: is 'int16'; allowed are 'int32', 'int64'", ValueError),
    ("one_cache", {"value_cache": "key_cache"}, "(key|value)_cache: overlaps the memory of (key|value)_cache", ValueError),
    ("k_out", {"k_out": np.ones((6, 2, 64), np.float16)}, "k_out: is given without keep_heads=True; pass both or none", ValueError),
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
    with pytest.raises(TypeError, match=r"k_scale: is a .*NoneType; expected a tensor"):
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
