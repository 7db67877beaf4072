"""rope and its other forms: heads rotated without a norm, in the input's dtype, in FP8, and into paged caches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from expected import assert_same_bytes
from frameworks import CPU_FRAMEWORKS, to_torch
from inputs import ALL_DTYPES, INPUT_KINDS, make_frequencies, make_input
from jitnorm.kernels.config import KernelConfig

from jitnorm import reference, rope, rope_cache, rope_cache_quant, rope_quant

TOKENS, Q_HEADS, HEADS, PAGES, PAGE_SIZE = 6, 3, 2, 3, 4
POSITIONS = np.array([3, 0, 9, 4, 10, -1])  # the last two are not in the table
SLOTS = np.array([7, -1, 0, PAGES * PAGE_SIZE, 11])  # nothing for the second and the fourth, and none for the last
Q_SCALE, K_SCALE, V_SCALE = (np.full(1, scale, np.float32) for scale in (0.037, 1.5, 0.5))
# Size of a head, what is turned of it, dtype, and options of the call.
CASES: list[tuple[int, int, str, dict[str, Any]]] = [
    (128, 128, "bfloat16", {}),
    (64, 64, "float16", {"rounding": "hf"}),
    (96, 32, "float32", {"is_neox": False}),
    (17, 10, "bfloat16", {"rounding": "hf", "is_neox": False}),
]


def call_of(kind: str, size: int, rotary_size: int, dtype: str) -> dict[str, Any]:
    """Queries, keys and values as views of a packed tensor, and the angles of tokens."""
    packed = make_input(kind, TOKENS * (Q_HEADS + 2 * HEADS), size, dtype).reshape(TOKENS, -1, size)
    q, k, v = np.split(packed, [Q_HEADS, Q_HEADS + HEADS], axis=1)
    turns = np.random.default_rng(3).uniform(0, 2 * np.pi, (10, rotary_size // 2))
    table = np.hstack([np.cos(turns), np.sin(turns)]).astype(np.float32)
    return {"q": q, "k": k, "v": v, "cos_sin_cache": table, "positions": POSITIONS}


def turned(call: dict[str, Any], **options: Any) -> list[Any]:
    """Rotated queries and keys in float32, not rounded at the end."""
    return [
        reference.rotate_f32(
            x.reshape(-1, x.shape[-1]).astype(np.float32), call["cos_sin_cache"],
            np.repeat(call["positions"], x.shape[1]), dtype=x.dtype, **options,
        ).reshape(x.shape)
        for x in (call["q"], call["k"])
    ]  # fmt: skip


def codes_of(x: Any, scale: Any) -> Any:
    return reference.quantize_fp8_static(x.reshape(-1, x.shape[-1]), float(scale[0])).reshape(x.shape)


def assert_turned(call: dict[str, Any], kind: str, options: dict[str, Any]) -> None:
    """`rope` and `rope_quant` write what the reference does."""
    heads = {name: value for name, value in call.items() if name != "v"}
    expected = turned(call, **options)
    for got, wanted in zip(rope(**heads, **options), expected, strict=True):
        assert_same_bytes(got, reference.round_to(wanted, call["q"].dtype), kind)
    codes = rope_quant(**heads, q_scale=Q_SCALE, k_scale=K_SCALE, **options)
    for got, wanted, scale in zip(codes, expected, (Q_SCALE, K_SCALE), strict=True):
        assert_same_bytes(got.view(np.uint8), codes_of(wanted, scale), kind)


@pytest.mark.parametrize(("size", "rotary_size", "dtype", "options"), CASES)
def test_heads_are_turned_as_the_reference_turns_them(
    size: int, rotary_size: int, dtype: str, options: dict[str, Any]
) -> None:
    for kind in INPUT_KINDS:
        call = call_of(kind, size, rotary_size, dtype)
        assert_turned(call, kind, options)


@pytest.mark.parametrize(("size", "rotary_size", "dtype", "options"), CASES)
def test_angles_may_come_from_frequencies(size: int, rotary_size: int, dtype: str, options: dict[str, Any]) -> None:
    for kind, positions in (("random", POSITIONS), ("random", POSITIONS.astype(np.int32)), ("nan", POSITIONS << 32)):
        call = call_of(kind, size, rotary_size, dtype)
        call |= {"cos_sin_cache": make_frequencies(rotary_size), "positions": positions}
        assert_turned(call, kind, options)


@pytest.mark.parametrize(("size", "rotary_size", "dtype", "options"), CASES[::3])
def test_keys_and_values_are_in_their_slots(size: int, rotary_size: int, dtype: str, options: dict[str, Any]) -> None:
    for kind in INPUT_KINDS:
        call = call_of(kind, size, rotary_size, dtype)
        keys, values = (np.full((PAGES, PAGE_SIZE, HEADS, size), fill, ALL_DTYPES[dtype]) for fill in (1, 2))
        q, k = (reference.round_to(each, ALL_DTYPES[dtype]) for each in turned(call, **options))
        pages = reference.insert_heads(keys, k, SLOTS), reference.insert_heads(values, call["v"], SLOTS)
        made = rope_cache(**call, slot_mapping=SLOTS, key_cache=keys, value_cache=values, keep_heads=True, **options)
        for got, wanted in zip((*made, keys, values), (q, k, call["v"], *pages), strict=True):
            assert_same_bytes(got, wanted, kind)


@pytest.mark.parametrize("rounding", ["once", "output"])
def test_codes_are_those_of_keys_and_values(rounding: str) -> None:
    call = call_of("random", 80, 80, "float16")
    caches = [np.full((PAGES, PAGE_SIZE, HEADS, 80), 1, np.uint8) for _ in range(2)]
    q, k = turned(call)
    heads = k if rounding == "once" else reference.round_to(k, np.float16).astype(np.float32)
    encoded = codes_of(heads, K_SCALE), codes_of(call["v"].astype(np.float32), V_SCALE)
    expected = [reference.insert_heads(cache, codes, SLOTS) for cache, codes in zip(caches, encoded, strict=True)]
    options = {"k_scale": K_SCALE, "v_scale": V_SCALE, "rounding": rounding}
    made = rope_cache_quant(**call, slot_mapping=SLOTS, key_cache=caches[0], value_cache=caches[1], **options)
    assert made[1:] == (None, None)
    for got, wanted in zip((made[0], *caches), (reference.round_to(q, np.float16), *expected), strict=True):
        assert_same_bytes(got, wanted)


def test_a_packed_tensor_is_turned_in_place_by_one_kernel(prepared: list[KernelConfig]) -> None:
    call = call_of("random", 64, 64, "float16")
    expected, q, k, v = turned(call), call["q"], call["k"], call.pop("v")
    untouched = v.copy()
    made = rope(**call, q_out=q, k_out=k)
    assert [each is view for each, view in zip(made, (q, k), strict=True)] == [True, True]
    assert [(config.op, config.row_dims, config.normalizes) for config in prepared] == [("quantize", 2, False)]
    for got, wanted in zip(
        (q, k, v), (*(reference.round_to(each, np.float16) for each in expected), untouched), strict=True
    ):
        assert_same_bytes(got, wanted)


def test_a_quarter_of_a_turn_brings_a_pair_to_exactly_where_it_belongs() -> None:
    """This holds for any finite elements, because the other products are zero."""
    x = make_input("random", 4, 64, "bfloat16").reshape(2, 2, 64)
    quarter = np.concatenate([np.zeros((1, 32), np.float32), np.ones((1, 32), np.float32)], 1)
    q, k = rope(x, x, quarter, np.zeros(2, np.int32))
    assert_same_bytes(q, np.concatenate([-x[..., 32:], x[..., :32]], -1))
    assert_same_bytes(k, q)


@pytest.mark.parametrize("name", list(CPU_FRAMEWORKS))
def test_every_framework_gets_the_same_bytes(name: str) -> None:
    call, convert = call_of("random", 64, 64, "float16"), CPU_FRAMEWORKS[name]
    call.pop("v")
    made = rope(**{key: convert(np.ascontiguousarray(value)) for key, value in call.items()})
    for got, wanted in zip(made, turned(call), strict=True):
        assert_same_bytes(got, reference.round_to(wanted, np.float16))


def test_jax_arrays_cannot_be_written() -> None:
    jax = pytest.importorskip("jax")
    call = {name: jax.numpy.asarray(value) for name, value in call_of("random", 64, 64, "float16").items()}
    cache = jax.numpy.ones((PAGES, PAGE_SIZE, HEADS, 64), "float16")
    with pytest.raises(TypeError, match=r"key_cache: is written, but JAX arrays are .*jitnorm.rope, which"):
        rope_cache(**call, slot_mapping=jax.numpy.asarray(SLOTS), key_cache=cache, value_cache=cache)


def test_nothing_is_done_without_tokens() -> None:
    call = {
        name: value[:0] if name != "cos_sin_cache" else value
        for name, value in call_of("random", 64, 64, "float16").items()
    }
    call.pop("v")
    assert [each.shape for each in rope(**call)] == [(0, Q_HEADS, 64), (0, HEADS, 64)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cos_sin_cache": np.ones((10, 66), np.float32)}, "cos_sin_cache: its last dimension is 66; an even number"),
        ({"cos_sin_cache": np.ones(64, np.float32)}, r"cos_sin_cache: shape is \(64,\); expected \(max_position"),
        ({"cos_sin_cache": np.ones((2, 64), np.int32)}, r"cos_sin_cache: shape is \(2, 64\), expected \(1, 64\)"),
        ({"k": np.ones((6, 2, 32), np.float16)}, r"k: shape is \(6, 2, 32\), expected"),
        ({"positions": POSITIONS[:3]}, "positions: "),
        ({"positions": POSITIONS.astype(np.int16)}, "positions dtype: is 'int16'; allowed are 'int32', 'int64'"),
        ({"q": np.ones((6, 3, 64), np.int32)}, "q dtype: is 'int32'; allowed are 'float16'"),
        ({"rounding": "up"}, "rounding: is 'up'; allowed are 'once'"),
    ],
)  # fmt: skip
def test_bad_input_is_refused(change: dict[str, Any], message: str) -> None:
    call = call_of("random", 64, 64, "float16")
    call.pop("v")
    with pytest.raises(ValueError, match=message):
        rope(**(call | change))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("quantize:hidden_size=64,pair=true", "quantize need a QuantSpec"),
        ("quantize:hidden_size=64,pair=true,quant=fp8", "pair: is True, which needs a plain rmsnorm or a rotation"),
        ("quantize:hidden_size=64,rope=neox", "rope: is 'neox', but only the heads of a pair are rotated"),
        ("quantize:hidden_size=64,pair=true,rope=neox,head_size=32", "head_size: is 32, but only a norm takes heads"),
        ("quantize:hidden_size=64,pair=true,rope=neox,quant=nvfp4", "pair: is True, which needs"),
    ],
)  # fmt: skip
def test_configurations_of_no_kernel_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        KernelConfig.parse(text)


@pytest.mark.gpu
@pytest.mark.parametrize("has_frequencies", [False, True])
@pytest.mark.parametrize(("size", "is_neox"), [(64, True), (128, True), (80, False), (17, False), (512, True)])
def test_the_gpu_s_bytes_are_the_cpu_s(size: int, is_neox: bool, has_frequencies: bool) -> None:
    rotary_size = size // 4 * 2 if size < 64 else size
    for kind in INPUT_KINDS:
        given = call_of(kind, size, rotary_size, "bfloat16")
        if has_frequencies:
            given["cos_sin_cache"] = make_frequencies(rotary_size)
        call = {name: to_torch(value) for name, value in given.items()}
        slots, scales = to_torch(SLOTS), [to_torch(each) for each in (Q_SCALE, K_SCALE)]
        runs = []
        for device in ("cpu", "cuda"):
            moved = {name: value.to(device, copy=True) for name, value in call.items()}  # two are written in place
            v = moved.pop("v")
            caches = torch.ones(PAGES, 2, PAGE_SIZE, HEADS, size, device=device, dtype=torch.bfloat16)
            codes = rope_quant(**moved, q_scale=scales[0].to(device), k_scale=scales[1].to(device), is_neox=is_neox)
            inserted = rope_cache(
                **moved, v=v, slot_mapping=slots.to(device), key_cache=caches[:, 0], value_cache=caches[:, 1],
                is_neox=is_neox, keep_heads=True,
            )  # fmt: skip
            in_place = rope(**moved, is_neox=is_neox, q_out=moved["q"], k_out=moved["k"])
            runs.append((*codes, *inserted, caches, *in_place))
        for on_cpu, on_gpu in zip(*runs, strict=True):
            assert_same_bytes(on_gpu, on_cpu, kind)
