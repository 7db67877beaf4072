"""quantize on the CPU returns the bytes of the reference, in every format."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from encoded import SPECS, assert_encoded, assert_same_encoding, dtype_of, encoded, given_keywords, hidden_size_of
from expected import assert_same_bytes
from frameworks import CPU_FRAMEWORKS
from inputs import ALL_DTYPES, INPUT_KINDS, in_turn, make_input
from jitnorm.kernels.quant_spec import FP8_GROUP, FP8_TOKEN, MXFP4, MXFP8, NVFP4, QuantSpec

from jitnorm import quantize
from jitnorm.reference import decode_e4m3, dequantize_fp4

COLUMNS = [FP8_GROUP.with_layout("column"), FP8_GROUP.with_layout("column4"), NVFP4.with_layout("linear+8x4")]


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_every_format_gives_the_reference_s_bytes(spec: QuantSpec) -> None:
    dtype, size = dtype_of(spec), hidden_size_of(spec)
    for kind in INPUT_KINDS:
        for rows in (1, 130):
            x = make_input(kind, rows, size, dtype)
            got = quantize(x, **given_keywords(spec))
            assert_encoded(got, x.astype(np.float32), spec, x.shape, f"{kind}, {dtype}")


@pytest.mark.parametrize(
    ("spec", "dtype"), in_turn([NVFP4.with_global_scale("row"), MXFP8, FP8_TOKEN], list(ALL_DTYPES)), ids=str
)
def test_rows_of_whole_vectors_give_the_reference_s_bytes(spec: QuantSpec, dtype: str) -> None:
    for kind in INPUT_KINDS:
        x = make_input(kind, 3, 512, dtype)
        assert_encoded(quantize(x, **given_keywords(spec)), x.astype(np.float32), spec, x.shape, kind)


@pytest.mark.parametrize("spec", [NVFP4.with_global_scale("row"), FP8_GROUP.with_layout("column4")], ids=str)
def test_the_longest_rows(spec: QuantSpec) -> None:
    x = make_input("real", 2, 262144, "float32")
    assert_encoded(quantize(x, **given_keywords(spec)), x, spec, x.shape, "262144")


@pytest.mark.parametrize(("size", "element"), in_turn([1, 15, 16, 17, 33, 35], ["e4m3", "e5m2", "int8"]))
def test_fp8_rows_may_have_any_length(size: int, element: str) -> None:
    """Their codes start at any byte."""
    spec = QuantSpec(element, "row", "f32")
    x = make_input("random", 5, size, "float16")
    assert_encoded(quantize(x, spec=spec), x.astype(np.float32), spec, x.shape, str(size))


@pytest.mark.parametrize("spec", [*COLUMNS, FP8_TOKEN, NVFP4.with_global_scale("row")], ids=str)
@pytest.mark.parametrize("leading", [(), (3,), (0,), (2, 3), (2, 0)])
def test_any_number_of_leading_dimensions(leading: tuple[int, ...], spec: QuantSpec) -> None:
    size = hidden_size_of(spec)
    x = make_input("random", int(np.prod(leading)), size, dtype_of(spec)).reshape(*leading, size)
    y = x.reshape(-1 if x.size else 0, size).astype(np.float32)
    assert_encoded(quantize(x, **given_keywords(spec)), y, spec, x.shape, str(leading))


@pytest.mark.parametrize("rows", [1, 3, 4, 7, 8, 9, 127, 128, 129])
@pytest.mark.parametrize("spec", COLUMNS, ids=str)
def test_the_padding_of_scales_is_zero(spec: QuantSpec, rows: int) -> None:
    x = make_input("real", rows, hidden_size_of(spec), dtype_of(spec))
    scale = np.asarray(quantize(x, spec=spec).scale).view(np.uint8)
    expected = encoded(x.astype(np.float32), spec)["scale"]
    assert_same_bytes(scale, expected, "scale")
    if spec.is_column_major:
        assert not scale.reshape(3, -1)[:, 4 * rows :].any()


@pytest.mark.parametrize("framework", CPU_FRAMEWORKS)
@pytest.mark.parametrize("spec", [MXFP4, FP8_TOKEN, QuantSpec("e5m2", "tensor", "f32")], ids=str)
def test_every_framework_gets_the_same_bytes(spec: QuantSpec, framework: str) -> None:
    make = CPU_FRAMEWORKS[framework]
    x = make_input("real", 3, hidden_size_of(spec), dtype_of(spec))
    got = quantize(make(x), **given_keywords(spec, make))
    assert_encoded(got, x.astype(np.float32), spec, x.shape, framework)


def test_rows_may_lie_at_any_stride() -> None:
    x = make_input("random", 12, 192, "float16").reshape(2, 6, 192)
    for view in (x[:, ::2, :96], x[:, 1::2, 3:99], x[::-1, :, 96:].transpose(1, 0, 2)):
        expected = np.ascontiguousarray(view).reshape(-1, 96).astype(np.float32)
        assert_encoded(quantize(view, spec=NVFP4), expected, NVFP4, view.shape, str(view.strides))


@pytest.mark.parametrize("spec", [MXFP8, FP8_TOKEN, NVFP4.with_global_scale("row")], ids=str)
def test_a_row_s_result_does_not_depend_on_its_batch(spec: QuantSpec) -> None:
    x = make_input("real", 9, hidden_size_of(spec), dtype_of(spec))
    batch = encoded(x.astype(np.float32), spec)
    for i in range(len(x)):
        alone = quantize(x[i : i + 1], **given_keywords(spec))
        assert_same_bytes(alone.data, batch["data"][i : i + 1])
        assert_same_bytes(alone.scale, batch["scale"][i : i + 1])


def test_a_decoded_row_is_near_what_was_encoded() -> None:
    """A check without tables: the relative error is at most half a step of the format."""
    x = make_input("random", 16, 512, "float32")
    q = quantize(x, spec=FP8_TOKEN)
    decoded = decode_e4m3(q.data.view(np.uint8)) * q.scale[:, None]
    assert (np.abs(decoded - x) <= np.abs(x) / 16 + q.scale[:, None] * 2**-10).all()
    q = quantize(x, spec=NVFP4, global_scale="row")
    scales = np.asarray(q.scale).view(np.uint8)
    decoded = dequantize_fp4(q.data.view(np.uint8), scales, block_size=16, scale_format="e4m3") * q.row_scale[:, None]
    largest = np.abs(x).reshape(16, 32, 16).max(axis=-1).repeat(16, axis=1)
    assert (np.abs(decoded - x) <= largest * (1 / 6 + 1 / 15)).all()


def test_the_dtypes_are_the_formats_own_where_numpy_has_them() -> None:
    x = make_input("random", 2, 128, "float16")
    scale = np.ones(1, np.float32)
    assert quantize(x, spec=MXFP8).data.dtype == ml_dtypes.float8_e4m3fn
    assert quantize(x, spec=QuantSpec("e5m2", "tensor", "f32"), scale=scale).data.dtype == ml_dtypes.float8_e5m2
    assert quantize(x, spec=FP8_GROUP).scale.dtype == np.float32
    assert quantize(x, spec=QuantSpec("e5m2", "tensor", "f32"), scale=scale).scale is scale


def test_a_global_scale_of_one_is_no_global_scale() -> None:
    x = make_input("real", 4, 96, "float16")
    with_one, without = quantize(x, spec=NVFP4, global_scale=np.ones(1, np.float32)), quantize(x, spec=NVFP4)
    assert_same_encoding(with_one, without, "1")
