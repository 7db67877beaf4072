"""FP8 and INT8 with given scales for rows, columns, groups and blocks."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from encoded import normalized
from expected import assert_same_bytes
from frameworks import CPU_FRAMEWORKS
from inputs import ALL_DTYPES, INPUT_KINDS, in_turn, make_input, make_weight
from numpy.typing import NDArray

import jitnorm
from jitnorm import FP8_BLOCK, FP8_GROUP, FP8_TENSOR, FP8_TOKEN, INT8_GROUP, MXFP8, QuantSpec
from jitnorm.reference import (
    decode_e4m3,
    dequantize_fp8,
    dequantize_int8,
    quantize_fp8_static,
    quantize_int8_static,
    relu2_f32,
    round_to,
    spread_scales,
    swiglu_f32,
)

Array = NDArray[Any]
# Every kind of block, with rows of which some end within a chunk.
BLOCKS = [
    ("row", 40), ("column", 40), ("column", 512), (128, 384), ("128x128", 256), ("4x256", 512),
    ("allx128", 256), ("3xall", 17), ("1x48", 96),
]  # fmt: skip
ELEMENTS = ["e4m3", "e5m2", "int8"]
OUTLIERS = np.array([0, np.inf, np.nan, -1, 1e-42, 3e38], np.float32)


def given_spec(block_size: int | str, element: str = "e4m3") -> QuantSpec:
    return QuantSpec(element, block_size, "f32", global_scale="given")


def sizes_of(spec: QuantSpec, rows: int, columns: int) -> tuple[int, int]:
    block = spec.given_block
    return block[0] or rows, block[1] or columns


def scales_for(spec: QuantSpec, rows: int, columns: int, seed: int = 0) -> Array:
    """Positive scales of every magnitude, including useless ones if there are many."""
    r, c = sizes_of(spec, rows, columns)
    generator = np.random.default_rng(seed)
    scales = np.exp2(generator.uniform(-12, 4, (-(-rows // r), columns // c))).astype(np.float32)
    if scales.size > 20:
        scales.reshape(-1)[7 : 7 + len(OUTLIERS)] = OUTLIERS
    return scales


def spread(scales: Array, spec: QuantSpec, rows: int, columns: int) -> Array:
    return spread_scales(scales, (rows, columns), *sizes_of(spec, rows, columns))


def codes_of(y: Array, full: Array, element: str) -> Array:
    with np.errstate(all="ignore"):
        if element == "int8":
            return quantize_int8_static(y, full)
        return quantize_fp8_static(y, full, element)  # type: ignore[arg-type]


def decoded(codes: Array, full: Array, element: str) -> Array:
    with np.errstate(all="ignore"):
        if element == "int8":
            return dequantize_int8(codes, full)
        return dequantize_fp8(codes.view(np.uint8), full, element)  # type: ignore[arg-type]


@pytest.mark.parametrize(("block", "element", "dtype"), [
    (*pair, list(ALL_DTYPES)[number % len(ALL_DTYPES)])
    for number, pair in enumerate(in_turn(BLOCKS, ELEMENTS))
], ids=str)  # fmt: skip
def test_codes_and_values_are_the_reference_s(block: tuple[int | str, int], element: str, dtype: str) -> None:
    (block_size, size), rows = block, 11
    spec = given_spec(block_size, element)
    scales = scales_for(spec, rows, size)
    full = spread(scales, spec, rows, size)
    for kind in INPUT_KINDS:
        x = make_input(kind, rows, size, dtype)
        q = jitnorm.quantize(x, spec=spec, scale=scales)
        assert q.spec == spec
        assert q.scale is scales
        assert_same_bytes(q.data, codes_of(x.astype(np.float32), full, element), f"{kind}, {dtype}")
        y = q.dequantize(dtype="float16")
        with np.errstate(all="ignore"):
            assert_same_bytes(y, round_to(decoded(np.asarray(q.data), full, element), np.float16), kind)


def test_norms_and_gates_take_them_too() -> None:
    x, w = make_input("random", 5, 192, "bfloat16"), make_weight(192, "bfloat16")
    residual, gates = make_input("real", 5, 192, "bfloat16"), make_input("random", 5, 384, "bfloat16")
    calls: list[tuple[int | str, Any, Array]] = [
        ("column", partial(jitnorm.norm_quantize, x, w, residual=residual.copy()), normalized(x, w, residual)),
        ("row", partial(jitnorm.norm_quantize, x, w), normalized(x, w)),
        ("2x64", partial(jitnorm.silu_and_mul_quantize, gates), swiglu_f32(gates)),
        (64, partial(jitnorm.quantize, x, activation="relu2"), relu2_f32(x)),
    ]
    for block_size, call, y in calls:
        spec = given_spec(block_size)
        scales = scales_for(spec, 5, 192)
        found = call(spec=spec, scale=scales).data
        assert_same_bytes(found, codes_of(y, spread(scales, spec, 5, 192), "e4m3"), str(block_size))


@pytest.mark.parametrize("spec", [FP8_TOKEN, FP8_BLOCK, INT8_GROUP], ids=str)
def test_the_scales_that_were_found_give_the_same_codes(spec: QuantSpec) -> None:
    """An argument suffices to pass scales with a spec that normally computes them."""
    x = make_input("real", 130, 256, "float16")
    found = jitnorm.quantize(x, spec=spec)
    q = jitnorm.quantize(x, spec=spec, scale=found.scale)
    assert q.spec == spec.with_global_scale("given")
    assert_same_bytes(q.data, found.data)
    assert_same_bytes(q.dequantize(), found.dequantize())


def test_one_scale_for_all_is_that_of_the_tensor() -> None:
    x, scale = make_input("random", 6, 40, "float16"), np.array([0.03], np.float32)
    q = jitnorm.quantize(x, spec=FP8_TENSOR, scale=scale)
    for block_size, count in (("row", 6), ("column", 40)):
        same = jitnorm.quantize(x, spec=given_spec(block_size), scale=np.full(count, scale[0]))
        assert_same_bytes(same.data, q.data, str(block_size))


@pytest.mark.parametrize("block_size", ["column", "2x64"])
def test_a_batch_has_the_bytes_of_its_matrices(block_size: int | str) -> None:
    spec, x = given_spec(block_size), make_input("random", 15, 128, "float16").reshape(3, 5, 128)
    scales = np.stack([scales_for(spec, 5, 128, seed=b) for b in range(3)])
    q = jitnorm.quantize(x, spec=spec, scale=scales, batched=True)
    y = q.dequantize()
    for b in range(3):
        alone = jitnorm.quantize(x[b], spec=spec, scale=scales[b])
        assert_same_bytes(q.data[b], alone.data, str(b))
        assert_same_bytes(y[b], alone.dequantize(), str(b))
    masked = jitnorm.quantize(x, spec=spec, scale=scales, batched=True, mask=np.array([5, 2, 0], np.int32))
    assert_same_bytes(masked.data[1, :2], q.data[1, :2])


@pytest.mark.parametrize("framework", CPU_FRAMEWORKS)
def test_every_framework_gets_the_same_bytes(framework: str) -> None:
    make, x = CPU_FRAMEWORKS[framework], make_input("real", 4, 64, "float16")
    spec = given_spec("column")
    scales = scales_for(spec, 4, 64)
    q = jitnorm.quantize(make(x), spec=spec, scale=make(scales))
    assert_same_bytes(q.data, jitnorm.quantize(x, spec=spec, scale=scales).data, framework)


def test_scales_of_columns_may_lie_anywhere() -> None:
    spec, x = given_spec("column"), make_input("random", 3, 64, "float16")
    memory = np.ones(65, np.float32)
    memory[1:] = scales_for(spec, 3, 64)[0]
    assert_same_bytes(
        jitnorm.quantize(x, spec=spec, scale=memory[1:]).data,
        jitnorm.quantize(x, spec=spec, scale=memory[1:].copy()).data,
    )


def test_a_mapped_batch_does_not_share_blocks_of_rows() -> None:
    jax = pytest.importorskip("jax")
    x = make_input("random", 9, 64, "float16").reshape(3, 3, 64)
    for spec in (given_spec("2x16"), given_spec("column")):
        scales = scales_for(spec, 3, 64)
        mapped = jax.vmap(lambda each, s=scales, spec=spec: jitnorm.quantize(each, spec=spec, scale=s).data)
        expected = np.stack([np.asarray(jitnorm.quantize(each, spec=spec, scale=scales).data) for each in x])
        assert_same_bytes(np.asarray(mapped(jax.numpy.asarray(x))), expected, str(spec))


def test_no_rows_and_one_column() -> None:
    spec = given_spec("column")
    none = jitnorm.quantize(np.empty((0, 64), np.float16), spec=spec, scale=np.ones(64, np.float32))
    assert none.data.shape == (0, 64)
    one = jitnorm.quantize(np.full((2, 1), 3, np.float16), spec=spec, scale=np.full(1, 0.5, np.float32))
    assert decode_e4m3(one.data.view(np.uint8)).tolist() == [[6.0], [6.0]]


def test_a_tensor_of_torch_is_an_operand_with_given_scales() -> None:
    x = torch.from_numpy(make_input("random", 16, 64, "float32"))
    q = jitnorm.quantize(x, spec=FP8_TOKEN, scale=torch.full((16,), 0.5))
    assert q.scaled_mm_operand().scale[0].shape == (16, 1)


@pytest.mark.parametrize(
    ("spec", "keywords", "message"),
    [
        (given_spec("column"), {}, "scale: is None, but the scales of e4m3/column/f32/linear/given are given"),
        (given_spec("row"), {"scale": np.ones(3, np.float32)}, r"scale: .*\(3,\).*2"),
        (MXFP8, {"scale": np.ones(4, np.float32)}, "scale: is given, but the other options leave no use for it"),
        (FP8_GROUP.with_layout("column"), {"scale": np.ones(2, np.float32)}, "scale: is given, but"),
        (FP8_TOKEN.with_scale_floor(0.1), {"scale": np.ones(2, np.float32)}, "scale: is given, but"),
        (FP8_TOKEN, {"scale": np.ones(2, np.float32), "out_scale": np.ones(2, np.float32)}, "out_scale: is given, but"),
        (FP8_TOKEN, {"scale": np.ones(2, np.float32), "scale_ub": np.ones(1, np.float32)}, "scale_ub: is given, but"),
        (FP8_TOKEN, {"global_scale": np.ones(2, np.float32)}, "global_scale: is given, but .* has none; pass scale"),
        (given_spec("4x96"), {"scale": np.ones(1, np.float32)}, "not a multiple of block_size 96"),
    ],
)
def test_what_does_not_fit_is_refused(spec: QuantSpec, keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        jitnorm.quantize(np.ones((2, 128), np.float16), spec=spec, **keywords)


@pytest.mark.parametrize("block_size", ["4x8", "allxall", "0x16", "4x0", "axb", "4x16x1", "04x16", "row x16"])
def test_other_blocks_are_refused(block_size: str) -> None:
    with pytest.raises(ValueError, match="block_size: is"):
        given_spec(block_size)
    with pytest.raises(ValueError, match=r"global_scale: is 'none', .*allowed then are 'given'"):
        QuantSpec("e4m3", "column", "f32")
