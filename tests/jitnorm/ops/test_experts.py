"""Experts' rows, one expert after another: each gets the same result as alone, and nothing else is touched."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from encoded import encoded, given_keywords
from expected import as_bytes, assert_same_bytes
from frameworks import CPU_FRAMEWORKS, to_torch
from hypothesis import given, settings
from hypothesis import strategies as st
from inputs import INPUT_KINDS, make_input
from jitnorm.kernels.quant_spec import FP8_GROUP, FP8_TENSOR, FP8_TOKEN, MXFP4, MXFP8, NVFP4, QuantSpec
from placement import poisoned

from jitnorm import grouped_quantize, quantize, silu_and_mul_grouped_quantize, silu_and_mul_quantize
from jitnorm.reference import gated_f32, swizzle_scales

TILED = NVFP4.with_layout("128x4")
# Every kind of scale and of layout that experts have.
SPECS = [
    TILED,
    TILED.with_global_scale("given"),
    NVFP4.with_layout("8x4").with_global_scale("row"),
    MXFP4,
    MXFP8.with_layout("128x4"),
    FP8_GROUP,
    FP8_TOKEN,
]
# Experts without rows, with part of a tile, with several; rows before the first and behind the last.
OFFSETS = [3, 3, 140, 140, 147, 278]
ROWS = 280
EXPERTS = 5


def int32(*values: int) -> Any:
    return np.array(values, np.int32)


def tile_offsets(spec: QuantSpec, offsets: list[int]) -> Any:
    """The offset of each expert's scales if they are contiguous; None where they are not padded."""
    tile = spec.row_multiple
    counts = [max(0, after - first) for first, after in pairwise(offsets)]
    padded = [-(-count // tile) * tile for count in counts]
    return int32(*np.cumsum([0, *padded])) if spec.is_swizzled else None


def poisoned_outputs(spec: QuantSpec, rows: int, size: int, experts: int) -> dict[str, Any]:
    """Poisoned codes and scales."""
    code_bytes = size // 2 if spec.element == "e2m1" else size
    dtype = {"e2m1": np.uint8, "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "int8": np.int8}
    out = poisoned(rows * code_bytes).view(dtype[spec.element]).reshape(rows, code_bytes)
    if not spec.has_blocks:
        return {"out": out, "out_scale": poisoned(rows * 4).view(np.float32) if spec.block_size == "row" else None}
    columns, item = size // spec.block_columns, 4 if spec.scale_format.startswith("f32") else 1
    if spec.is_swizzled:
        rows, columns = (-(-rows // spec.row_multiple) + experts) * spec.row_multiple, -(-columns // 4) * 4
    scales = poisoned(rows * columns * item).reshape(rows, -1)
    return {"out": out, "out_scale": scales.view(np.float32) if item == 4 else scales}


def expected(spec: QuantSpec, y: Any, offsets: list[int], outputs: dict[str, Any], tiles: Any) -> tuple[Any, Any]:
    """The expected outputs, computed by the reference for each expert."""
    codes = as_bytes(outputs["out"]).copy()
    scales = None if outputs["out_scale"] is None else as_bytes(outputs["out_scale"]).copy()
    for e, (first, after) in enumerate(pairwise(offsets)):
        if after <= first:
            continue
        own = encoded(y[first:after], spec, np.float32(0.37))
        codes[first:after] = as_bytes(own["data"])
        if scales is not None and spec.is_swizzled:
            own_scales = as_bytes(own["scale"]).reshape(-1, scales.shape[-1])
            scales[tiles[e] : tiles[e] + len(own_scales)] = own_scales
        elif scales is not None:
            scales.reshape(len(codes), -1)[first:after] = as_bytes(own["scale"]).reshape(after - first, -1)
    return codes, scales


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_each_expert_gets_what_it_gets_alone_and_nothing_else_is_touched(spec: QuantSpec) -> None:
    kind = INPUT_KINDS[SPECS.index(spec) % len(INPUT_KINDS)]
    x, tiles = make_input(kind, ROWS, 128 if spec == FP8_GROUP else 64, "float16"), tile_offsets(spec, OFFSETS)
    outputs = poisoned_outputs(spec, ROWS, x.shape[1], EXPERTS)
    codes, scales = expected(spec, x.astype(np.float32), OFFSETS, outputs, tiles)
    made = grouped_quantize(x, int32(*OFFSETS), scale_offsets=tiles, **given_keywords(spec), **outputs)
    assert_same_bytes(made[0], codes, "codes")
    if scales is not None:
        assert_same_bytes(made[1], scales, "scales")


@pytest.mark.parametrize("spec", [TILED, MXFP4.with_layout("8x4"), FP8_GROUP], ids=str)
def test_gates_come_first(spec: QuantSpec) -> None:
    size = 128
    x, tiles = make_input("random", ROWS, 2 * size, "bfloat16"), tile_offsets(spec, OFFSETS)
    outputs = poisoned_outputs(spec, ROWS, size, EXPERTS)
    codes, scales = expected(spec, gated_f32(x, "silu"), OFFSETS, outputs, tiles)
    made = silu_and_mul_grouped_quantize(x, int32(*OFFSETS), spec=spec, scale_offsets=tiles, **outputs)
    assert_same_bytes(made[0], codes, "codes")
    assert_same_bytes(made[1], scales, "scales")


def test_options_of_activations_are_those_of_the_plain_forms() -> None:
    x = make_input("random", 12, 128, "float16")
    options: dict[str, Any] = {"activation": "gelu", "rounding": "hf", "granularity": 8}
    made = silu_and_mul_grouped_quantize(x, int32(0, 12), spec=MXFP4, **options)
    alone = silu_and_mul_quantize(x, spec=MXFP4, **options)
    assert_same_bytes(made[0], alone.data)
    assert_same_bytes(made[1], alone.scale)
    made = grouped_quantize(x, int32(0, 12), spec=MXFP4, activation="relu2", rounding="output")
    assert_same_bytes(made[0], quantize(x, spec=MXFP4, activation="relu2", rounding="output").data)


@pytest.mark.parametrize("spec", [TILED, FP8_TENSOR], ids=str)
def test_each_expert_may_have_a_given_scale_of_its_own(spec: QuantSpec) -> None:
    name = "scale" if spec == FP8_TENSOR else "global_scale"
    x, given_scales = make_input("random", 20, 64, "float16"), np.array([0.5, 3, 17], np.float32)
    made = grouped_quantize(
        x, int32(0, 4, 9, 20), spec=spec, scale_offsets=int32(0, 128, 256, 384) if spec == TILED else None,
        **{name: given_scales},
    )  # fmt: skip
    for e, (first, after) in enumerate(((0, 4), (4, 9), (9, 20))):
        alone = quantize(x[first:after], spec=spec, **{name: given_scales[e : e + 1]})
        assert_same_bytes(made[0][first:after], alone.data)
        if spec == TILED:
            assert_same_bytes(made[1][e * 128 : e * 128 + 128].ravel(), alone.scale)


def test_all_outputs_of_an_encoding_are_returned() -> None:
    x, offsets, tiles = make_input("random", 20, 64, "float16"), int32(0, 20), int32(0, 128)
    spec = NVFP4.with_layout("linear+128x4")
    codes, swizzled, linear, row_scale = grouped_quantize(
        x, offsets, spec=spec, scale_offsets=tiles, global_scale="row"
    )
    alone = quantize(x, spec=spec, global_scale="row")
    assert_same_bytes(codes, alone.data)
    assert_same_bytes(swizzled[:128].ravel(), alone.scale)
    assert_same_bytes(linear, alone.scale_unswizzled)
    assert_same_bytes(row_scale, alone.row_scale)


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_whatever_the_offsets_are_nothing_outside_is_touched(data: st.DataObject) -> None:
    """Experts that do not overlap get the reference's result for clamped offsets."""
    rows, experts = data.draw(st.integers(0, 140)), EXPERTS
    numbers = st.one_of(st.integers(-3, rows + 3), st.sampled_from([-(2**31), 2**31 - 1, 128, 256, 384, 700]))
    offsets = data.draw(st.lists(numbers, min_size=experts + 1, max_size=experts + 1))
    tiles = data.draw(st.lists(numbers, min_size=experts + 1, max_size=experts + 1))
    x = make_input("random", rows, 64, "float16")
    tile_rows = (-(-rows // 128) + experts) * 128
    guarded_codes, guarded_scales = poisoned((rows + 2) * 32), poisoned((tile_rows + 2) * 4)
    made = grouped_quantize(
        x, int32(*offsets), spec=TILED, scale_offsets=int32(*tiles),
        out=guarded_codes[32 : (rows + 1) * 32].reshape(rows, 32),
        out_scale=guarded_scales[4 : (tile_rows + 1) * 4].reshape(tile_rows, 4),
    )  # fmt: skip
    for guarded, width in ((guarded_codes, 32), (guarded_scales, 4)):
        assert set(guarded[:width]) | set(guarded[-width:]) == {0xA5}
    clamped = np.clip(offsets, 0, rows)
    counts = [max(0, int(after - first)) for first, after in pairwise(clamped)]
    starts = [
        int(np.clip(first, 0, tile_rows - -(-n // 128) * 128)) // 128 for first, n in zip(tiles, counts, strict=False)
    ]
    owners = [set(range(first, first + n)) for first, n in zip(map(int, clamped), counts, strict=False)]
    tiles_of = [{start + i for i in range(-(-n // 128))} for start, n in zip(starts, counts, strict=True)]
    for e, (first, n) in enumerate(zip(map(int, clamped), counts, strict=False)):
        others = [f for f in range(experts) if f != e]
        if n and not any(owners[e] & owners[f] or tiles_of[e] & tiles_of[f] for f in others):
            alone = quantize(x[first : first + n], spec=TILED)
            assert_same_bytes(made[0][first : first + n], alone.data)
            assert_same_bytes(made[1][starts[e] * 128 :][: alone.scale.size // 4].ravel(), alone.scale)


@pytest.mark.parametrize("name", CPU_FRAMEWORKS)
def test_every_framework_gets_the_same(name: str) -> None:
    convert = CPU_FRAMEWORKS[name]
    x = make_input("random", 300, 64, "float16")
    offsets, tiles = int32(0, 130, 300, 300, 300, 300), int32(0, 256, 512, 512, 512, 512)
    made = grouped_quantize(convert(x), convert(offsets), spec=TILED, scale_offsets=convert(tiles))
    assert tuple(made[1].shape) == (1024, 4)
    scales = as_bytes(made[1])
    for first, after, tile in ((0, 130, 0), (130, 300, 256)):
        alone = quantize(x[first:after], spec=TILED)
        assert_same_bytes(as_bytes(made[0])[first:after], as_bytes(alone.data))
        assert_same_bytes(scales[tile : tile + 256].ravel(), alone.scale)


def test_threads_of_the_cpu_share_experts() -> None:
    offsets, x = [0, 5000, 5001, 5001, 5001, 20000], make_input("random", 20000, 64, "float16")
    made = grouped_quantize(x, int32(*offsets), spec=TILED, scale_offsets=tile_offsets(TILED, offsets))
    assert_same_bytes(made[0], quantize(x, spec=TILED).data)
    linear = quantize(x, spec=NVFP4).scale.view(np.uint8)
    tiles = [swizzle_scales(linear[a:b], "128x4") for a, b in pairwise(offsets)]
    wanted = np.concatenate(tiles)
    assert_same_bytes(as_bytes(made[1]).ravel()[: wanted.size], wanted)


def good() -> dict[str, Any]:
    return {"input": np.ones((5, 64), np.float16), "offsets": int32(0, 2, 5), "spec": NVFP4}


TILES = {"spec": TILED, "scale_offsets": int32(0, 128, 256)}
BAD: list[tuple[str, dict[str, Any], str, Any]] = [
    ("none", {"offsets": None}, "offsets: is .*None.*; expected a tensor", TypeError),
    ("shape", {"offsets": int32(1)}, r"offsets: shape is \(1,\), expected \(E \+ 1,\) for 1 to 1024", ValueError),
    ("dtype", {"offsets": np.zeros(3, np.int64)}, "offsets: dtype is int64, expected int32", ValueError),
    ("experts", {"offsets": np.zeros(1026, np.int32)}, r"offsets: shape is \(1026,\), expected", ValueError),
    ("no_tiles", {"spec": TILED}, "scale_offsets: is None, but scales are in the layout 128x4", ValueError),
    ("tiles", {"scale_offsets": int32(0, 2, 5)}, "scale_offsets: is given, but linear scales", ValueError),
    ("tiles_shape", {**TILES, "scale_offsets": int32(0, 1)}, r"scale_offsets: shape is \(2,\), expected", ValueError),
    ("scales", {"global_scale": np.ones(3, np.float32)}, r"global_scale: shape is \(3,\), expected", ValueError),
    ("tensor", {"global_scale": "tensor"}, "the amax of a tensor is that of all its rows", ValueError),
    ("columns", {"spec": FP8_GROUP.with_layout("column")}, "is 'column', which does not keep experts'", ValueError),
    ("dims", {"input": np.ones((5, 4, 64), np.float16)[:, :2]}, "only encoded rows at one stride", ValueError),
    ("out_scale", {**TILES, "out_scale": np.ones((128, 4), np.uint8)}, r"out_scale: shape is \(128, 4\)", ValueError),
]


@pytest.mark.parametrize(("change", "message", "error"), [pytest.param(*case[1:], id=case[0]) for case in BAD])
def test_bad_input_is_refused(change: dict[str, Any], message: str, error: Any) -> None:
    with pytest.raises(error, match=message):
        grouped_quantize(**(good() | change))


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("shift", [1, 4, 8])
@pytest.mark.parametrize("layout", ["128x4", "8x4"])
def test_scales_may_begin_at_any_byte(layout: str, shift: int, device: str) -> None:
    spec, size = NVFP4.with_layout(layout), 448
    x, tiles = make_input("random", ROWS, size, "bfloat16"), tile_offsets(spec, OFFSETS)
    outputs = poisoned_outputs(spec, ROWS, size, EXPERTS)
    codes, scales = expected(spec, x.astype(np.float32), OFFSETS, outputs, tiles)
    placed = to_torch(np.resize(outputs["out_scale"], scales.size + shift), device)[shift:].view(scales.shape)
    made = grouped_quantize(
        to_torch(x, device), to_torch(int32(*OFFSETS), device), spec=spec, scale_offsets=to_torch(tiles, device),
        out=to_torch(outputs["out"], device), out_scale=placed,
    )  # fmt: skip
    assert_same_bytes(made[0], codes, "codes")
    assert_same_bytes(made[1], scales, "scales")


@pytest.mark.gpu
@pytest.mark.parametrize("spec", [*SPECS[1:4], MXFP4.with_layout("8x4"), FP8_GROUP], ids=str)
@pytest.mark.parametrize("size", [256, 1024, 7168, 65536])
def test_the_gpu_s_bytes_are_the_cpu_s(size: int, spec: QuantSpec) -> None:
    """This includes many experts with few rows, whose tiles are mostly padding, and offsets past the rows."""
    many = [min(13, 2 * i) for i in range(257)]
    for offsets in (OFFSETS, many, [0, 40, 40, 300, 1 << 30, 1 << 30]) if size < 65536 else (OFFSETS[:3],):
        rows = max(9, min(ROWS, max(offsets)))
        x, tiles = make_input("random", rows, size, "bfloat16"), tile_offsets(spec, offsets)
        runs = []
        for device in ("cpu", "cuda"):
            outputs = {
                name: None if array is None else to_torch(array, device)
                for name, array in poisoned_outputs(spec, rows, size, len(offsets) - 1).items()
            }
            given_tiles = None if tiles is None else to_torch(tiles, device)
            keywords = given_keywords(spec, lambda array, device=device: to_torch(array, device))
            made = grouped_quantize(
                to_torch(x, device), to_torch(int32(*offsets), device), scale_offsets=given_tiles, **keywords, **outputs
            )
            runs.append(made)
        assert_same_bytes(runs[1][0], runs[0][0], "codes")
        assert_same_bytes(runs[1][1], runs[0][1], "scales")
