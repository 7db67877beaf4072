"""rmsnorm_fp4quant on the CPU returns the bytes of the reference: codes, scales and their padding."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from expected import (
    FORMATS,
    LAYOUTS,
    MXFP4,
    NVFP4,
    Fp4Options,
    assert_all_same,
    assert_same_bytes,
    expected_fp4,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from inputs import DTYPES, INPUT_KINDS, in_turn, make_input, make_weight
from placement import Placement, assert_written_exactly, place, placements

from jitnorm import rmsnorm_fp4quant
from jitnorm.reference import swizzle_scales, unswizzle_scales

SMALL = 96  # six block columns of 16, three of 32: neither fills the layout's columns
ALL_OPTIONS = [
    replace(spec, layout=layout, global_scale=scale)
    for spec in FORMATS
    for layout in LAYOUTS
    for scale in ((None, 0.75) if spec.scale_format == "e4m3" else (None,))
]


def run(x: Any, weight: Any, options: Fp4Options, **keywords: Any) -> Any:
    scale = options.given_global_scale()
    return rmsnorm_fp4quant(x, weight, global_scale=scale, **options.keywords, **keywords)


@pytest.mark.parametrize("options", ALL_OPTIONS, ids=str)
def test_every_format_and_layout_gives_the_reference_s_bytes(options: Fp4Options) -> None:
    weight = make_weight(SMALL, "bfloat16")
    for kind in INPUT_KINDS:
        for rows in (1, 130):
            x = make_input(kind, rows, SMALL, "bfloat16")
            assert_all_same(run(x, weight, options), expected_fp4(x, weight, options))


@pytest.mark.parametrize(
    ("hidden_size", "dtype", "weight_dtype"),
    [
        *in_turn([64, 384, 65536], ["float16"], ["float16", "float32"]),
        *in_turn([160, 4096, 64], ["bfloat16"], ["float32", "bfloat16"]),
    ],
)
def test_every_hidden_size_and_dtype_gives_the_reference_s_bytes(
    hidden_size: int, dtype: str, weight_dtype: str
) -> None:
    weight = make_weight(hidden_size, weight_dtype)
    options = ALL_OPTIONS[(hidden_size + len(dtype) + len(weight_dtype)) % len(ALL_OPTIONS)]
    for kind in INPUT_KINDS:
        x = make_input(kind, 6, hidden_size, dtype)
        assert_all_same(run(x, weight, options), expected_fp4(x, weight, options))


@pytest.mark.parametrize("block_size", [16, 32])
def test_the_block_size_chooses_the_scale_format(block_size: int) -> None:
    x, weight = make_input("random", 2, SMALL, "float16"), make_weight(SMALL, "float16")
    options = NVFP4 if block_size == 16 else MXFP4
    assert_all_same(rmsnorm_fp4quant(x, weight, block_size=block_size), expected_fp4(x, weight, options))


@pytest.mark.parametrize(
    "global_scale",
    [1.0, 2688.0, 1e-20, 1e30, 1e-42, 0.0, -0.0, -1.5, float("inf"), float("-inf"), float("nan")],
)
def test_any_global_scale_gives_the_reference_s_bytes(global_scale: float) -> None:
    options = replace(NVFP4, global_scale=global_scale)
    weight = make_weight(SMALL, "bfloat16")
    for kind in ("random", "zeros", "huge", "nan", "inf"):
        x = make_input(kind, 4, SMALL, "bfloat16")
        assert_all_same(run(x, weight, options), expected_fp4(x, weight, options))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(), (3,), (0,), (2, 3), (2, 0), (2, 1, 3)])
def test_any_number_of_leading_dimensions(shape: tuple[int, ...], layout: str) -> None:
    x = make_input("random", int(np.prod(shape)), SMALL, "bfloat16").reshape(*shape, SMALL)
    options, weight = replace(NVFP4, layout=layout), make_weight(SMALL, "bfloat16")
    assert_all_same(run(x, weight, options), expected_fp4(x, weight, options))


@pytest.mark.parametrize("rows", [0, 1, 31, 32, 127, 128, 129, 257])
@pytest.mark.parametrize("options", [NVFP4, MXFP4], ids=str)
def test_swizzled_scales_are_the_linear_ones_rearranged_and_their_padding_is_zero(
    options: Fp4Options, rows: int
) -> None:
    """The given tensor is poisoned: the padding between scales must be written, too."""
    x, weight = make_input("real", rows, SMALL, "bfloat16"), make_weight(SMALL, "bfloat16")
    columns = SMALL // options.block_size
    swizzled = np.full(-(-rows // 128) * 128 * -(-columns // 4) * 4, 0xA5, np.uint8)
    linear = np.full((rows, columns), 0xA5, np.uint8)
    both = replace(options, layout="both")
    run(x, weight, both, block_scale=swizzled, block_scale_unswizzled=linear)
    assert_same_bytes(linear, run(x, weight, options)[1])
    assert_same_bytes(swizzled, swizzle_scales(linear, "128x4"))
    assert_same_bytes(unswizzle_scales(swizzled, rows, columns, "128x4"), linear)


@settings(deadline=None, max_examples=80)
@given(data=st.data())
def test_strides_and_alignment_change_nothing(data: st.DataObject) -> None:
    """Only the codes and the scales are written: all of them are surrounded by guard bytes."""
    options = replace(MXFP4, layout="128x4")
    leading = tuple(data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=3)))
    where = data.draw(placements(len(leading), (0, 1, 2, 4)))
    where_codes = data.draw(placements(len(leading), (0, 1, 2, 3, 4)))
    x = place((*leading, SMALL), DTYPES["bfloat16"], where)
    x.view[...] = make_input("random", int(np.prod(leading)), SMALL, "bfloat16").reshape(x.view.shape)
    before, weight = x.buffer.copy(), make_weight(SMALL, "bfloat16")
    codes_expected, scales_expected = expected_fp4(x.view, weight, options)
    codes = place(codes_expected.shape, np.uint8, where_codes)
    dense = Placement(
        tuple(range(scales_expected.ndim - 1)), (0,) * (scales_expected.ndim - 1), 0, data.draw(st.integers(0, 3)),
        (False,) * (scales_expected.ndim - 1),
    )  # fmt: skip
    scales = place(scales_expected.shape, np.uint8, dense)
    returned = run(x.view, weight, options, y_fp4=codes.view, block_scale=scales.view)
    assert returned[0] is codes.view
    assert returned[1] is scales.view
    assert_written_exactly(codes, codes_expected, where_codes)
    assert_written_exactly(scales, scales_expected, dense)
    assert x.buffer.tobytes() == before.tobytes()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_views_cut_out_of_a_packed_tensor(layout: str) -> None:
    packed = torch.from_numpy(make_input("random", 2 * 5 * 3 * 4, 64, "float16").reshape(2, 5, 3, 4, 64))
    options, weight = replace(NVFP4, layout=layout), make_weight(64, "float16")
    for view in (packed[:, :, 1], packed[:, :, 1, :2], packed[:, :, 1].transpose(1, 2)):
        outputs = rmsnorm_fp4quant(view, torch.from_numpy(weight), **options.keywords)
        assert_all_same(outputs, expected_fp4(view.numpy(), weight, options))


def test_a_broadcast_input_is_read_as_it_looks() -> None:
    x = np.broadcast_to(make_input("random", 1, SMALL, "bfloat16"), (3, 4, SMALL))
    weight = make_weight(SMALL, "bfloat16")
    assert_all_same(run(x, weight, NVFP4), expected_fp4(np.ascontiguousarray(x), weight, NVFP4))


@pytest.mark.parametrize("options", ALL_OPTIONS, ids=str)
def test_given_outputs_get_what_allocated_ones_get(options: Fp4Options) -> None:
    x, weight = make_input("real", 5, SMALL, "bfloat16"), make_weight(SMALL, "bfloat16")
    allocated = run(x, weight, options)
    given_ones = [np.full_like(output.view(np.uint8), 0xA5) for output in allocated]
    names = ("y_fp4", "block_scale", "block_scale_unswizzled")
    returned = run(x, weight, options, **dict(zip(names, given_ones, strict=False)))
    assert all(a is b for a, b in zip(returned, given_ones, strict=True))
    assert_all_same(given_ones, allocated)


def test_some_outputs_may_be_given_and_others_allocated() -> None:
    x, weight = make_input("real", 5, SMALL, "bfloat16"), make_weight(SMALL, "bfloat16")
    scales = np.full((5, SMALL // 16), 0xA5, np.uint8)
    codes, returned = rmsnorm_fp4quant(x, weight, block_scale=scales)
    assert returned is scales
    assert_all_same((codes, scales), expected_fp4(x, weight, NVFP4))


@pytest.mark.parametrize("kind", ["real", "nan", "spiky"])
@pytest.mark.parametrize("options", FORMATS, ids=str)
def test_a_row_s_result_does_not_depend_on_its_batch(options: Fp4Options, kind: str) -> None:
    x, weight = make_input(kind, 20, SMALL, "bfloat16"), make_weight(SMALL, "bfloat16")
    batch = run(x, weight, options)
    for i, row in enumerate(x):
        assert_all_same(run(row, weight, options), [output[i] for output in batch])


@settings(deadline=None, max_examples=60)
@given(exponent=st.integers(-20, 20), seed=st.integers(0, 2**32 - 1))
def test_a_power_of_two_in_the_weight_moves_mxfp4_scales_and_nothing_else(exponent: int, seed: int) -> None:
    x = make_input("random", 4, SMALL, "bfloat16", seed)
    weight = make_weight(SMALL, "bfloat16")
    scaled = (weight.astype(np.float32) * 2.0**exponent).astype(weight.dtype)
    codes, scales = run(x, weight, MXFP4)
    scaled_codes, scaled_scales = run(x, scaled, MXFP4)
    assert_same_bytes(scaled_codes, codes)
    assert (scaled_scales.astype(int) == scales.astype(int) + exponent).all()


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_blocks_do_not_see_each_other_s_weights(data: st.DataObject) -> None:
    """Changing one block's weights changes only that block's codes and scale."""
    x, weight = make_input("random", 3, SMALL, "bfloat16"), make_weight(SMALL, "bfloat16")
    changed, block = weight.copy(), data.draw(st.integers(0, SMALL // 16 - 1))
    changed[block * 16 : block * 16 + 16] = data.draw(st.sampled_from([0.0, 3.0, np.nan]))
    codes, scales = run(x, weight, NVFP4)
    new_codes, new_scales = run(x, changed, NVFP4)
    others = np.arange(SMALL // 16) != block
    assert (new_scales.view(np.uint8)[:, others] == scales.view(np.uint8)[:, others]).all()
    by_block = (3, SMALL // 16, 8)
    assert (new_codes.reshape(by_block)[:, others] == codes.reshape(by_block)[:, others]).all()
