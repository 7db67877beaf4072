"""dequantize on the CPU returns the bytes of the reference, for every format and any bytes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from decoded import E2M1_SPECS, FLOAT_DTYPES, any_encoding, any_weight, decoded
from encoded import IN_BATCHES, KINDS, OF_TENSORS, dtype_of, given_keywords, hidden_size_of
from expected import assert_same_bytes
from frameworks import CPU_FRAMEWORKS
from hypothesis import given, settings
from hypothesis import strategies as st
from inputs import in_turn, make_input
from jitnorm.kernels.quant_spec import FP8_GROUP, FP8_TENSOR, FP8_TOKEN, MXFP4, MXFP8, NVFP4, QuantSpec
from placement import assert_written_exactly, place, placements

from jitnorm import (
    QuantizedTensor,
    SfLayout,
    dequantize,
    e2m1_and_ufp8sf_scale_to_float,
    mxfp4_dequantize,
    mxfp4_quantize,
    mxfp8_dequantize_host,
    quantize,
)
from jitnorm.catalogue.sf_layout import layout_name
from jitnorm.reference import dequantize_fp4, round_to, swizzle_scales

ROW = NVFP4.with_global_scale("row")
FEW = [NVFP4.with_layout("128x4"), ROW, MXFP8, FP8_TOKEN, FP8_GROUP.with_layout("column4")]


@pytest.mark.parametrize("spec", KINDS, ids=str)
def test_every_format_gives_the_reference_s_bytes(spec: QuantSpec) -> None:
    dtype = dtype_of(spec)
    for rows in (1, 130):
        q = any_encoding(spec, (rows,), seed=rows)
        with np.errstate(all="ignore"):
            assert_same_bytes(dequantize(q, dtype=dtype), round_to(decoded(q), FLOAT_DTYPES[dtype]), f"{rows} rows")


@pytest.mark.parametrize(("spec", "dtype"), in_turn(FEW, list(FLOAT_DTYPES)), ids=str)
def test_every_dtype_gives_the_reference_s_bytes(spec: QuantSpec, dtype: str) -> None:
    q = any_encoding(spec, (3,), hidden_size=512)
    with np.errstate(all="ignore"):
        assert_same_bytes(dequantize(q, dtype=dtype), round_to(decoded(q), FLOAT_DTYPES[dtype]), dtype)


@pytest.mark.parametrize(("spec", "shape"), in_turn(E2M1_SPECS, [(32, 1), (96, 37), (64, 300)]), ids=str)
def test_blocks_of_a_column_are_decoded_too(spec: QuantSpec, shape: tuple[int, int]) -> None:
    q = any_weight(spec, shape)
    assert_same_bytes(dequantize(q, dtype="float32"), np.ascontiguousarray(decoded(q)), str(shape))


@pytest.mark.parametrize(
    ("size", "spec"), in_turn([1, 15, 16, 17, 33], [FP8_TOKEN, FP8_TENSOR, QuantSpec("e5m2", "row", "f32")]), ids=str
)
def test_fp8_rows_may_have_any_length(size: int, spec: QuantSpec) -> None:
    q = any_encoding(spec, (5,), hidden_size=size)
    assert_same_bytes(dequantize(q, dtype="float32"), decoded(q), str(size))


@pytest.mark.parametrize("spec", FEW, ids=str)
@pytest.mark.parametrize("leading", [(), (3,), (0,), (2, 3), (2, 0)])
def test_any_number_of_leading_dimensions(leading: tuple[int, ...], spec: QuantSpec) -> None:
    q, dtype = any_encoding(spec, leading), dtype_of(spec)
    with np.errstate(all="ignore"):
        assert_same_bytes(dequantize(q, dtype=dtype), round_to(decoded(q), FLOAT_DTYPES[dtype]), str(leading))


@pytest.mark.parametrize("spec", [*IN_BATCHES[::2], *OF_TENSORS[::3]], ids=str)
def test_a_batch_is_decoded_as_its_matrices(spec: QuantSpec) -> None:
    dtype = dtype_of(spec)
    for leading in ((3, 5), (2, 2, 3)):
        x = make_input("real", np.prod(leading), hidden_size_of(spec), dtype).reshape(*leading, -1)
        batch = dequantize(quantize(x, batched=True, **given_keywords(spec)), dtype=dtype)
        if spec.needs_tensor_amax:
            assert_same_bytes(batch, dequantize(quantize(x, **given_keywords(spec)), dtype=dtype), str(leading))
            continue
        for b in range(leading[0]):
            alone = dequantize(quantize(x[b], **given_keywords(spec)), dtype=dtype)
            assert_same_bytes(batch[b], alone, f"{leading}, {b}")


@pytest.mark.parametrize("spec", [NVFP4.with_layout("128x4"), FP8_TENSOR], ids=str)
def test_each_matrix_may_have_a_given_scale_of_its_own(spec: QuantSpec) -> None:
    name = "scale" if spec == FP8_TENSOR else "global_scale"
    x, scales = make_input("real", 15, 64, "float16").reshape(3, 5, 64), np.array([0.5, 3.0, 17.0], np.float32)
    batch = dequantize(quantize(x, spec=spec, batched=True, **{name: scales}))
    for b in range(3):
        assert_same_bytes(batch[b], dequantize(quantize(x[b], spec=spec, **{name: scales[b : b + 1]})), str(b))


@pytest.mark.parametrize("spec", [NVFP4, FP8_TOKEN, FP8_GROUP], ids=str)
def test_a_nan_in_an_encoded_block_is_nan_throughout(spec: QuantSpec) -> None:
    x = make_input("random", 2, hidden_size_of(spec), dtype_of(spec))
    x[1, 3] = np.nan
    size = spec.block_size if isinstance(spec.block_size, int) else x.shape[1]
    y = dequantize(quantize(x, spec=spec))
    assert np.isnan(y[1, :size]).all()
    assert np.isfinite(y[0]).all()
    assert np.isfinite(y[1, size:]).all()


@settings(deadline=None, max_examples=40)
@given(placements(2, (0, 1, 3, 16)), placements(2, (0, 1, 8, 16)), st.sampled_from([FP8_TOKEN, ROW, MXFP8]))
def test_rows_of_codes_and_values_may_lie_anywhere(at: Any, out_at: Any, spec: QuantSpec) -> None:
    q = any_encoding(spec, (2, 3), hidden_size=64)
    codes = place(q.data.shape, q.data.dtype, at)
    codes.view[...] = q.data
    out = place(q.shape, np.dtype(np.float16), out_at)
    with np.errstate(all="ignore"):
        expected = round_to(decoded(q), np.float16)
    assert dequantize(replace(q, data=codes.view), out=out.view) is out.view
    assert_written_exactly(out, expected, out_at)


def test_a_row_s_result_does_not_depend_on_its_batch() -> None:
    q = any_encoding(ROW, (9,))
    batch = dequantize(q)
    for i in range(9):
        alone = replace(q, data=q.data[i : i + 1], scale=q.scale[i : i + 1], row_scale=q.row_scale[i : i + 1])
        assert_same_bytes(dequantize(replace(alone, shape=(1, q.shape[1]))), batch[i : i + 1], str(i))


@pytest.mark.parametrize("framework", CPU_FRAMEWORKS)
@pytest.mark.parametrize("spec", [MXFP4, FP8_TOKEN, NVFP4.with_global_scale("given")], ids=str)
def test_every_framework_gets_the_same_bytes(spec: QuantSpec, framework: str) -> None:
    make = CPU_FRAMEWORKS[framework]
    x = make_input("real", 3, 64, "bfloat16")
    q = quantize(make(x), **given_keywords(spec, make))
    expected = dequantize(quantize(x, **given_keywords(spec)), dtype="bfloat16")
    assert_same_bytes(dequantize(q, dtype="bfloat16"), expected, framework)


@pytest.mark.parametrize(("framework", "dtype"), [("numpy", "float32"), ("torch", "bfloat16"), ("jax", "bfloat16")])
def test_the_default_dtype_is_bfloat16_where_the_framework_has_it(framework: str, dtype: str) -> None:
    q = quantize(CPU_FRAMEWORKS[framework](np.ones((2, 64), np.float16)), spec=NVFP4)
    assert str(dequantize(q).dtype).removeprefix("torch.") == dtype


def test_the_dtype_is_that_of_the_output_given() -> None:
    q = quantize(np.full((2, 64), 6, np.float16), spec=NVFP4)
    out = np.empty((2, 64), ml_dtypes.bfloat16)
    assert dequantize(q, out=out) is out
    assert (out == 6).all()


# FlashInfer's names.


def fp4(spec: QuantSpec, rows: int = 3) -> tuple[Any, Any, Any]:
    """Codes, linear scales and their values."""
    q = any_encoding(spec, (rows,))
    return q.data, np.asarray(q.scale).view(np.uint8), decoded(q)


@pytest.mark.parametrize(
    ("block", "scale_format", "layout"),
    [
        *((16, "e4m3", layout) for layout in ("128x4", "8x4", "linear")),
        *((32, "ue8m0", "128x4"), (16, "ue8m0", "8x4"), (32, "e4m3", "linear")),
    ],
)
def test_e2m1_and_ufp8sf_scale_to_float(block: int, scale_format: str, layout: Any) -> None:
    codes, linear, expected = fp4(QuantSpec("e2m1", block, scale_format), rows=130)
    scales = swizzle_scales(linear, layout)
    options = (block, int(scale_format == "e4m3"), layout != "linear", layout == "8x4")
    assert_same_bytes(e2m1_and_ufp8sf_scale_to_float(codes, scales, None, *options), expected, layout)
    factor = np.array([0.37], np.float32)
    with np.errstate(all="ignore"):
        # FlashInfer has no global scale beside UE8M0, whatever is passed for one.
        scaled = round_to(expected * factor, np.float32) if scale_format == "e4m3" else expected
    assert_same_bytes(e2m1_and_ufp8sf_scale_to_float(codes, scales, factor, *options), scaled, layout)


def test_mxfp4_codes_are_decoded_without_the_global_scale_of_nvfp4() -> None:
    """Some callers pass one with either format; using it would make the values too small by that factor."""
    x = make_input("random", 5, 64, "float32")
    scale = np.array([np.abs(x).max() / 2688], np.float32)
    decoded_x = e2m1_and_ufp8sf_scale_to_float(*mxfp4_quantize(x), scale, sf_vec_size=32, ufp8_type=0)
    largest = np.abs(x).reshape(5, 2, 32).max(axis=-1).repeat(32, axis=1)
    assert (np.abs(decoded_x - x) <= largest / 3).all()


def test_a_global_scale_tensor_is_what_the_reference_calls_a_tensor_s_decode_scale() -> None:
    codes, linear, _ = fp4(NVFP4)
    factor = np.array([1.7], np.float32)
    expected = dequantize_fp4(codes.view(np.uint8), linear, block_size=16, scale_format="e4m3", decode_scale=factor)
    assert_same_bytes(e2m1_and_ufp8sf_scale_to_float(codes, linear, factor, is_sf_swizzled_layout=False), expected, "")


@pytest.mark.parametrize("shape", [(-1,), (130, 8), (2, 65, 8)])
def test_scales_may_have_any_shape_of_as_many_elements(shape: tuple[int, ...]) -> None:
    spec = QuantSpec("e2m1", 16, "e4m3")
    q = any_encoding(spec, (130,), hidden_size=128)
    expected = decoded(q)
    swizzled = swizzle_scales(np.asarray(q.scale).view(np.uint8), "128x4")
    assert_same_bytes(e2m1_and_ufp8sf_scale_to_float(q.data, swizzled.reshape(256, 8)), expected, "swizzled")
    linear = np.asarray(q.scale).reshape(shape)
    assert_same_bytes(e2m1_and_ufp8sf_scale_to_float(q.data, linear, is_sf_swizzled_layout=False), expected, "linear")


@pytest.mark.parametrize("layout", SfLayout)
def test_mxfp4_dequantize(layout: SfLayout) -> None:
    codes, linear, expected = fp4(MXFP4, rows=9)
    scales = swizzle_scales(linear, layout_name("layout", layout))  # type: ignore[arg-type]
    assert_same_bytes(mxfp4_dequantize(codes, scales, layout), expected, layout.name)
    assert_same_bytes(mxfp4_dequantize(codes, scales, int(layout)), expected, layout.name)


@pytest.mark.parametrize("layout", SfLayout)
def test_mxfp8_dequantize_host(layout: SfLayout) -> None:
    codes, linear, expected = fp4(MXFP8, rows=9)
    scales = swizzle_scales(linear, layout_name("layout", layout))  # type: ignore[arg-type]
    assert_same_bytes(mxfp8_dequantize_host(codes, scales, sf_swizzle_layout=layout), expected, layout.name)
    if layout is not SfLayout.layout_8x4:
        is_swizzled = layout is SfLayout.layout_128x4
        assert_same_bytes(mxfp8_dequantize_host(codes, scales, is_swizzled), expected, layout.name)


# What is refused.


def good() -> QuantizedTensor:
    return quantize(np.ones((4, 64), np.float16), spec=NVFP4)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: dequantize(np.ones(4)), TypeError, "q: is a numpy.ndarray; expected a QuantizedTensor"),
        (lambda: dequantize(replace(good(), data=[1])), TypeError, "data: is a list; expected a tensor of"),
        (lambda: dequantize(replace(good(), shape=(4, 32))), ValueError, r"q: its shape is \(4, 32\), .* \(4, 64\)"),
        (lambda: dequantize(good(), dtype="int8"), ValueError, "dtype: is 'int8'; allowed are 'float16', 'bfloat16'"),
        (
            lambda: dequantize(replace(good(), scale=np.ones((4, 3), np.uint8))),
            ValueError, r"scale: shape is \(4, 3\), expected \(4, 4\)",
        ),
        (
            lambda: dequantize(replace(good(), scale=np.ones((4, 4), np.float32))),
            ValueError, "scale: dtype is float32, expected float8_e4m3fn or uint8",
        ),
        (
            lambda: dequantize(replace(good(), global_scale=np.ones(1, np.float32))),
            ValueError, "global_scale: is given, but the other options leave no use for it",
        ),
        (
            lambda: dequantize(good(), out=np.ones((4, 32), np.float32)),
            ValueError, r"out: shape is \(4, 32\), expected \(4, 64\)",
        ),
        (
            lambda: dequantize(good(), out=np.ones((4, 64), np.float32), dtype="float16"),
            ValueError, "out: dtype is float32, expected float16",
        ),
        (
            lambda: e2m1_and_ufp8sf_scale_to_float(np.ones((1, 8), np.uint8), np.ones(1, np.uint8), ufp8_type=2),
            ValueError, "ufp8_type: is 2; allowed are 0, 1",
        ),
        (
            lambda: e2m1_and_ufp8sf_scale_to_float(np.ones((1, 8), np.uint8), np.ones(2, np.uint8)),
            ValueError, r"ufp8_scale_tensor: shape is \(2,\), expected \(512,\)",
        ),
        (
            lambda: e2m1_and_ufp8sf_scale_to_float(
                np.ones((1, 8), np.uint8), np.ones(1, np.uint8), is_sf_swizzled_layout=False, is_sf_8x4_layout=True
            ),
            ValueError, "is_sf_8x4_layout: is True, but is_sf_swizzled_layout is False",
        ),
        (
            lambda: e2m1_and_ufp8sf_scale_to_float(np.ones((1, 9), np.uint8), np.ones(1, np.uint8)),
            ValueError, "e2m1_tensor: its last dimension .* is 18, not a multiple of block_size 16",
        ),
        (
            lambda: mxfp4_dequantize(np.ones((1, 16), np.uint8), np.ones(1, np.uint8), 3),
            ValueError, r"sfLayout: is 3; allowed are 0 \(layout_128x4\), 1 \(layout_8x4\), 2 \(layout_linear\)",
        ),
    ],
)  # fmt: skip
def test_what_is_refused_names_the_argument(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
