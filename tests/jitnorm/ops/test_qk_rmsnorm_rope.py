"""qk_rmsnorm_rope and its form in FP8: norms of heads, rotated by the positions of their tokens."""

# ruff: noqa: E501 - in the table below a line is a case

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from expected import assert_same_bytes
from frameworks import CPU_FRAMEWORKS, to_torch
from hypothesis import given, settings
from hypothesis import strategies as st
from inputs import ALL_DTYPES, INPUT_KINDS, in_turn, make_frequencies, make_input, make_weight
from jitnorm.kernels.config import KernelConfig
from placement import assert_written_exactly, place, placements

from jitnorm import FP8_TENSOR, qk_rmsnorm, qk_rmsnorm_rope, qk_rmsnorm_rope_quant, quantize, reference

TOKENS = 6
POSITIONS = np.array([3, 0, 9, 4, 10, -1])  # the last two are not in the table
FP8 = ml_dtypes.float8_e4m3fn


def heads_of(kind: str, heads: int, size: int, dtype: str, seed: int = 0) -> Any:
    return make_input(kind, TOKENS * heads, size, dtype, seed).reshape(TOKENS, heads, size)


def table_of(size: int, dtype: str) -> Any:
    if dtype == "int32":
        return make_frequencies(size)
    turns = np.random.default_rng(3).uniform(0, 2 * np.pi, (10, size // 2))
    return np.hstack([np.cos(turns), np.sin(turns)]).astype(ALL_DTYPES[dtype])


def turned(
    x: Any, weight: Any, table: Any, positions: Any = POSITIONS, *, rounding: str = "once", unit_bias: bool = False,
    is_neox: bool = True, eps: float = 1e-6,
) -> Any:  # fmt: skip
    """The reference's result for heads of tokens, in float32."""
    steps: Any = "once" if rounding == "output" else rounding
    rows = x.reshape(-1, x.shape[-1])
    y = reference.rmsnorm_f32(rows, weight, eps, weight_bias=float(unit_bias), rounding=steps)
    of_rows = np.repeat(positions, x.shape[-2])
    found = reference.rotate_f32(y, table, of_rows, is_neox=is_neox, rounding=steps, dtype=x.dtype)
    return found.reshape(x.shape)


SIZES = [
    (64, 64),
    (80, 80),
    (96, 96),
    (112, 112),
    (128, 128),
    (192, 64),
    (256, 256),
    (512, 512),
    (17, 10),
    (2, 2),
    (40, 24),
]


@pytest.mark.parametrize(
    ("size", "rotary_size", "dtype", "angles", "is_neox", "rounding"),
    [
        (*sizes, *others)
        for sizes, others in in_turn(
            SIZES[::2],
            [
                ("float16", "float16", True, "once"),
                ("bfloat16", "float32", False, "hf"),
                ("float32", "float32", True, "once"),
                ("bfloat16", "bfloat16", True, "hf"),
                ("bfloat16", "int32", True, "once"),
                ("float16", "float32", False, "once"),
            ],
        )
    ],
)
def test_the_outputs_are_the_reference_s(
    size: int, rotary_size: int, dtype: str, angles: str, is_neox: bool, rounding: str
) -> None:
    weights, table = (make_weight(size, dtype), make_weight(size, dtype, 2)), table_of(rotary_size, angles)
    for kind, positions in in_turn(INPUT_KINDS, [POSITIONS, POSITIONS.astype(np.int32)]):
        inputs = heads_of(kind, 3, size, dtype), heads_of(kind, 2, size, dtype, 1)
        found = qk_rmsnorm_rope(*inputs, *weights, table, positions, is_neox=is_neox, rounding=rounding)
        for got, x, weight in zip(found, inputs, weights, strict=True):
            expected = turned(x, weight, table, is_neox=is_neox, rounding=rounding)
            assert_same_bytes(got, reference.round_to(expected, x.dtype), kind)


@pytest.mark.parametrize("rounding", ["once", "output", "hf"])
def test_codes_are_those_of_what_is_turned(rounding: str) -> None:
    scales = {"q_scale": np.full(1, 0.05, np.float32), "k_scale": np.full((), 0.3, np.float32)}
    weights, table = (make_weight(80, "float32"), make_weight(80, "float32", 2)), table_of(48, "bfloat16")
    for kind in INPUT_KINDS:
        inputs = heads_of(kind, 3, 80, "bfloat16"), heads_of(kind, 1, 80, "bfloat16", 1)
        call = {"rounding": rounding, "unit_bias": True}
        found = qk_rmsnorm_rope_quant(*inputs, *weights, table, POSITIONS, **scales, **call)
        for got, x, weight, scale in zip(found, inputs, weights, scales.values(), strict=True):
            y = turned(x, weight, table, **call)
            y = y if rounding == "once" else reference.round_to(y, x.dtype).astype(np.float32)
            assert got.dtype == FP8
            codes = reference.quantize_fp8_static(y.reshape(-1, 80), float(scale.reshape(())))
            assert_same_bytes(got.view(np.uint8).reshape(codes.shape), codes, kind)


@pytest.mark.parametrize(
    ("heads", "size", "rotary_size", "is_neox", "rounding"),
    [(5, 64, 64, True, "once"), (3, 16, 12, False, "hf")],
)
def test_heads_that_share_a_row_are_normalized_together_and_turned_alone(
    heads: int, size: int, rotary_size: int, is_neox: bool, rounding: Any
) -> None:
    weights = [make_weight(heads * size, "bfloat16", seed) for seed in (0, 1)]
    table, scale = table_of(rotary_size, "float32"), np.full(1, 0.05, np.float32)
    for kind in INPUT_KINDS:
        inputs = [heads_of(kind, 1, heads * size, "bfloat16", seed) for seed in (0, 1)]
        call = {"is_neox": is_neox, "rounding": rounding, "head_size": size}
        found = qk_rmsnorm_rope(*inputs, *weights, table, POSITIONS, **call)
        codes = qk_rmsnorm_rope_quant(*inputs, *weights, table, POSITIONS, scale, scale, **call)
        for got, code, x, weight in zip(found, codes, inputs, weights, strict=True):
            y = reference.rmsnorm_f32(x.reshape(TOKENS, -1), weight, 1e-6, rounding=rounding)
            of_heads = np.repeat(POSITIONS, heads)
            turns = {"is_neox": is_neox, "rounding": rounding, "dtype": x.dtype}
            expected = reference.rotate_f32(y.reshape(-1, size), table, of_heads, **turns)
            assert_same_bytes(got, reference.round_to(expected, x.dtype).reshape(x.shape), kind)
            expected_codes = reference.quantize_fp8_static(expected.reshape(TOKENS, -1), 0.05)
            assert_same_bytes(code.view(np.uint8), expected_codes.reshape(x.shape), kind)


def test_output_rounding_is_the_op_and_then_quantize() -> None:
    q, k, weight, scale = (
        heads_of("random", 4, 64, "float16"),
        heads_of("random", 1, 64, "float16", 1),
        ones(64),
        ones(1, "float32"),
    )
    call = (q, k, weight, weight, table_of(64, "float32"), POSITIONS)
    for got, unquantized in zip(
        qk_rmsnorm_rope_quant(*call, scale, scale, rounding="output"), qk_rmsnorm_rope(*call), strict=True
    ):
        assert_same_bytes(got, quantize(unquantized, spec=FP8_TENSOR, scale=scale).data)


def test_without_a_turn_it_is_qk_rmsnorm() -> None:
    q, k, weight = (
        heads_of("random", 3, 64, "float16"),
        heads_of("random", 2, 64, "float16", 1),
        make_weight(64, "float16"),
    )
    table = np.hstack([np.ones((10, 32)), np.zeros((10, 32))]).astype(np.float32)
    found = qk_rmsnorm_rope(q, k, weight, 2 * weight, table, np.zeros(TOKENS, np.int64))
    for got, alone in zip(found, qk_rmsnorm(q, k, weight, 2 * weight), strict=True):
        assert (got == alone).all()


@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 3)])
def test_tokens_may_have_any_dimensions_and_heads_be_missing(shape: tuple[int, ...]) -> None:
    tokens = int(np.prod(shape))
    q, k = (make_input("random", tokens * heads, 40, "float16", heads).reshape(*shape, heads, 40) for heads in (3, 0))
    weight, table, positions = ones(40), table_of(40, "float32"), np.arange(tokens).reshape(shape or (1,))
    q_out, k_out = qk_rmsnorm_rope(q, k, weight, weight, table, positions)
    assert k_out.shape == k.shape
    if tokens:
        assert_same_bytes(q_out, reference.round_to(turned(q, weight, table, positions.ravel()), q.dtype))


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_strides_and_alignment_change_nothing(data: st.DataObject) -> None:
    """Inputs, outputs and the table vary; only the rows of outputs are written."""
    weights = make_weight(64, "float16"), make_weight(64, "float16", 2)
    shapes, inputs, outputs, spots = [(TOKENS, 3, 64), (TOKENS, 1, 64)], [], [], []
    for seed, shape in enumerate(shapes):
        spot, spot_of_output = (data.draw(placements(2, (0, 1, 4, 8))) for _ in range(2))
        inputs.append(place(shape, np.float16, spot))
        inputs[-1].view[...] = heads_of("random", shape[1], 64, "float16", seed)
        outputs.append(place(shape, np.float16, spot_of_output))
        spots.append(spot_of_output)
    table = place((10, 64), np.float32, data.draw(placements(1, (0, 1, 4))))
    table.view[...] = table_of(64, "float32")
    q, k, q_out, k_out = (x.view for x in (*inputs, *outputs))
    qk_rmsnorm_rope(q, k, *weights, table.view, POSITIONS, q_out=q_out, k_out=k_out)
    for x, out, weight, spot in zip((q, k), outputs, weights, spots, strict=True):
        expected = turned(np.ascontiguousarray(x), weight, np.ascontiguousarray(table.view))
        assert_written_exactly(out, reference.round_to(expected, x.dtype), spot)


def test_views_of_a_packed_tensor_are_turned_in_place_by_one_kernel(prepared: list[KernelConfig]) -> None:
    packed = heads_of("random", 16, 64, "float16")
    before, weight, table = packed.copy(), make_weight(64, "float16"), table_of(32, "float16")
    q, k = packed[:, :8], packed[:, 8:12]
    made = qk_rmsnorm_rope(q, k, weight, 2 * weight, table, POSITIONS, q_out=q, k_out=k)
    assert (made[0] is q, made[1] is k) == (True, True)
    assert [(config.row_dims, config.angles, config.positions) for config in prepared] == [(2, "float16", "int64")]
    assert_same_bytes(q, reference.round_to(turned(before[:, :8], weight, table), np.float16))
    assert_same_bytes(k, reference.round_to(turned(before[:, 8:12], 2 * weight, table), np.float16))
    assert_same_bytes(packed[:, 12:], before[:, 12:])


@pytest.mark.parametrize("name", CPU_FRAMEWORKS)
def test_every_framework_gets_the_same_bytes(name: str) -> None:
    q, k, weight = heads_of("random", 3, 64, "bfloat16"), heads_of("random", 1, 64, "bfloat16", 1), ones(64, "bfloat16")
    table, positions = table_of(64, "float32"), POSITIONS.astype(np.int32)
    made = qk_rmsnorm_rope(*map(CPU_FRAMEWORKS[name], (q, k, weight, weight, table, positions)))
    for got, x in zip(made, (q, k), strict=True):
        assert_same_bytes(got, reference.round_to(turned(x, weight, table), x.dtype))


def test_jax_maps_heads_at_positions_that_are_shared_and_that_are_not() -> None:
    jax = pytest.importorskip("jax")
    q, k = (np.stack([heads_of("random", 2, 64, "float16", seed + i) for i in (0, 1)]) for seed in (0, 2))
    weight, table, positions = (
        ones(64),
        table_of(64, "float32"),
        np.stack([POSITIONS, POSITIONS[::-1]]).astype(np.int32),
    )

    def turn(q: Any, k: Any, positions: Any) -> Any:
        return qk_rmsnorm_rope(q, k, weight, weight, table, positions)

    for axis, of in ((None, positions[[0, 0]]), (0, positions)):
        made = jax.jit(jax.vmap(turn, (0, 0, axis)))(q, k, of if axis == 0 else of[0])
        for got, x in zip(made, (q, k), strict=True):
            for i in (0, 1):
                assert_same_bytes(got[i], reference.round_to(turned(x[i], weight, table, of[i]), x.dtype))


def ones(size: int, dtype: str = "float16") -> Any:
    return np.ones(size, ALL_DTYPES[dtype])


def good() -> dict[str, Any]:
    q, k = heads_of("random", 3, 64, "float16"), heads_of("random", 2, 64, "float16")
    return {
        "q": q,
        "k": k,
        "q_weight": ones(64),
        "k_weight": ones(64),
        "cos_sin_cache": table_of(64, "float32"),
        "positions": POSITIONS,
    }


BAD: list[tuple[str, Callable[[Any], dict[str, Any]], str, Any]] = [
    ("q_rank", lambda c: {"q": c["q"][0, 0]}, r"q: shape is \(64,\), expected \(..., heads, head size\)", ValueError),
    ("k_tokens", lambda c: {"k": c["k"][1:]}, "k: has heads of 5 tokens, q of 6", ValueError),
    ("k_rank", lambda c: {"k": c["k"][:, 0]}, "k: has heads of 1 tokens, q of 6", ValueError),
    ("head_size", lambda c: {"q": np.ones((6, 3, 513), np.float16)}, r"q: its last dimension \(head size\) is 513; up to 512", ValueError),
    ("too_large", lambda c: {"cos_sin_cache": table_of(66, "float32")}, "cos_sin_cache: its last dimension is 66; an even number from 2 to the head size 64", ValueError),
    ("odd", lambda c: {"cos_sin_cache": np.ones((9, 33), np.float32)}, r"cos_sin_cache: shape is \(9, 33\); .* of which the second is even", ValueError),
    ("table_rank", lambda c: {"cos_sin_cache": ones(64)}, r"cos_sin_cache: shape is \(64,\); expected \(max_position, rotary_size\)", ValueError),
    ("table_none", lambda c: {"cos_sin_cache": None}, "cos_sin_cache: is None; expected a tensor", TypeError),
    ("table_dtype", lambda c: {"cos_sin_cache": np.ones((9, 64))}, "cos_sin_cache dtype: is 'float64'; allowed are", ValueError),
    ("table_stride", lambda c: {"cos_sin_cache": np.ones((9, 128), np.float32)[:, ::2]}, "cos_sin_cache: the stride of its last dimension is 2", ValueError),
    ("positions_few", lambda c: {"positions": POSITIONS[1:]}, r"positions: shape is \(5,\), expected \(6,\)", ValueError),
    ("positions_dtype", lambda c: {"positions": POSITIONS.astype(np.int16)}, "positions dtype: is 'int16'; allowed are 'int32', 'int64'", ValueError),
    ("rounding", lambda c: {"rounding": "twice"}, "rounding: is 'twice'", ValueError),
    ("q_out_is_table", lambda c: {"q": ones(384).reshape(6, 1, 64), "q_out": (m := np.ones(640, np.float16))[:384].reshape(6, 1, 64), "cos_sin_cache": m.reshape(10, 64)}, "q_out: overlaps the memory of cos_sin_cache", ValueError),
]  # fmt: skip


@pytest.mark.parametrize(("change", "message", "error"), [pytest.param(*case[1:], id=case[0]) for case in BAD])
def test_bad_input_is_refused(change: Callable[[Any], Any], message: str, error: Any) -> None:
    call = good()
    with pytest.raises(error, match=message):
        qk_rmsnorm_rope(**{**call, **change(call)})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rmsnorm:hidden_size=64,rope=neox", "rope: is 'neox', but only the heads of a pair are rotated"),
        ("rmsnorm:hidden_size=64,pair=true,rope=half", "rope: is 'half'"),
        ("rmsnorm:hidden_size=64,pair=true,rotary_size=8", "rotary_size, head_size, angles, positions: are given with"),
        ("rmsnorm:hidden_size=96,pair=true,rope=neox,head_size=48", "head_size: is 48; allowed are 0, 16, 32, 64"),
        ("rmsnorm:hidden_size=96,pair=true,rope=neox,head_size=64", "q: its last dimension is 96; a multiple of head"),
        ("rmsnorm:hidden_size=128,pair=true,rope=neox,head_size=64,rotary_size=66", "from 2 to the head size 64"),
        (
            "rmsnorm:hidden_size=64,pair=true,quant=e4m3/row/f32",
            "pair: is True, which needs a plain rmsnorm or a rotation",
        ),
    ],
)
def test_configurations_of_no_kernel_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        KernelConfig.parse(text)


@pytest.mark.gpu
@pytest.mark.parametrize("angles", ["float32", "int32"])
@pytest.mark.parametrize(("size", "rotary_size", "is_neox"), [(*sizes, sizes[0] % 3 != 0) for sizes in SIZES])
def test_the_gpu_s_bytes_are_the_cpu_s(size: int, rotary_size: int, is_neox: bool, angles: str) -> None:
    weight, scale = to_torch(make_weight(size, "bfloat16")), torch.full((1,), 0.1)
    table, positions = to_torch(table_of(rotary_size, angles)), to_torch(POSITIONS)
    for kind in INPUT_KINDS:
        packed = to_torch(heads_of(kind, 12, size, "bfloat16"))
        runs = []
        for device in ("cpu", "cuda"):
            x, w, s = packed.clone().to(device), weight.to(device), scale.to(device)
            q, k, call = x[:, :8], x[:, 8:10], (w, 2 * w, table.to(device), positions.to(device))
            codes = qk_rmsnorm_rope_quant(q, k, *call, s, s, is_neox=is_neox, rounding="hf")
            qk_rmsnorm_rope(q, k, *call, is_neox=is_neox, q_out=q, k_out=k)
            runs.append((*codes, x))
        for on_cpu, on_gpu in zip(*runs, strict=True):
            assert_same_bytes(on_gpu, on_cpu, kind)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("heads", "size", "is_neox"), [(3, 16, True), (24, 128, False), (12, 128, True), (41, 256, True)]
)
def test_the_gpu_s_bytes_of_heads_that_share_a_row_are_the_cpu_s(heads: int, size: int, is_neox: bool) -> None:
    weight, scale = to_torch(make_weight(heads * size, "bfloat16")), torch.full((1,), 0.1)
    table, positions = to_torch(table_of(size - 4, "float32")), to_torch(POSITIONS)
    for kind in INPUT_KINDS:
        x = to_torch(heads_of(kind, 1, heads * size, "bfloat16"))
        runs = []
        for device in ("cpu", "cuda"):
            q, w, angles, at, s = (each.to(device) for each in (x, weight, table, positions, scale))
            call = (q, q, w, 2 * w, angles, at)
            options = {"is_neox": is_neox, "head_size": size}
            runs.append((*qk_rmsnorm_rope(*call, **options), *qk_rmsnorm_rope_quant(*call, s, s, **options)))
        for on_cpu, on_gpu in zip(*runs, strict=True):
            assert_same_bytes(on_gpu, on_cpu, kind)
