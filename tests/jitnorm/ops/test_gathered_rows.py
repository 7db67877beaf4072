"""Rows gathered while they are read: each is the row with its number; invalid numbers write nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from encoded import given_keywords
from expected import as_bytes, assert_same_bytes
from frameworks import CPU_FRAMEWORKS, to_torch
from inputs import make_input
from jitnorm.kernels.quant_spec import FP8_BLOCK, FP8_GROUP, FP8_TOKEN, MXFP4, NVFP4, QuantSpec
from placement import poisoned

from jitnorm import grouped_quantize, quantize

TILED = NVFP4.with_layout("128x4")
SPECS = [TILED, NVFP4.with_layout("8x4").with_global_scale("row"), FP8_GROUP.with_layout("column4"), FP8_TOKEN]
NUMBERS = np.array([3, 0, -1, 3, 6, 7, 2**31 - 1, 2, -(2**31)], np.int32)
ROWS = 7


def written(numbers: Any) -> Any:
    return (numbers >= 0) & (numbers < ROWS)


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_a_row_is_that_of_its_number(spec: QuantSpec) -> None:
    x, there = make_input("random", ROWS, 128, "float16"), written(NUMBERS)
    out = poisoned(len(NUMBERS) * (64 if spec.element == "e2m1" else 128)).reshape(len(NUMBERS), -1)
    given_out = {"out": out if spec.element == "e2m1" else out.view(quantize(x[:1], spec=FP8_TOKEN).data.dtype)}
    q = quantize(x, input_rows=NUMBERS, **given_keywords(spec), **given_out)
    alone = quantize(x[np.where(there, NUMBERS, 0)], **given_keywords(spec))
    assert q.shape == alone.shape
    assert_same_bytes(as_bytes(q.data)[there], as_bytes(alone.data)[there])
    assert (as_bytes(q.data)[~there] == 0xA5).all()
    if spec.block_size == "row":
        assert_same_bytes(q.scale[there], alone.scale[there])
    elif spec.is_column_major:
        assert_same_bytes(q.scale[:, : len(there)][:, there], alone.scale[:, : len(there)][:, there])
        assert not q.scale[:, len(there) :].any()
    if spec.global_scale == "row":
        assert_same_bytes(q.row_scale[there], alone.row_scale[there])


@pytest.mark.parametrize("name", CPU_FRAMEWORKS)
def test_every_framework_gathers_all_rows_of_a_layout(name: str) -> None:
    convert, order = CPU_FRAMEWORKS[name], np.arange(130, dtype=np.int32)[::-1] % ROWS
    x = make_input("random", ROWS, 128, "float16")
    q, alone = quantize(convert(x), spec=TILED, input_rows=convert(order)), quantize(x[order], spec=TILED)
    assert_same_bytes(as_bytes(q.data), as_bytes(alone.data))
    assert_same_bytes(q.scale, alone.scale)


def test_tokens_are_sorted_by_expert_as_they_are_read() -> None:
    x, order = make_input("random", ROWS, 128, "float16"), np.array([0, 3, 6, 1, 3, 4, 0, 2], np.int32)
    borders = {"offsets": np.array([0, 3, 8], np.int32), "scale_offsets": np.array([0, 128, 256], np.int32)}
    gathered = grouped_quantize(x, input_rows=order, spec=TILED, **borders)
    sorted_first = grouped_quantize(x[order], spec=TILED, **borders)
    assert_same_bytes(gathered[0], sorted_first[0])
    assert_same_bytes(gathered[1][:256], sorted_first[1][:256])


def test_without_rows_there_is_nothing() -> None:
    x = make_input("random", ROWS, 128, "float16")
    assert quantize(x, spec=TILED, input_rows=NUMBERS[:0]).scale.size == 0
    out = poisoned(64).reshape(1, 64)
    quantize(x[:0], spec=TILED, input_rows=NUMBERS[:1], out=out)
    assert (out == 0xA5).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"input_rows": NUMBERS[:, None]}, r"input_rows: shape is \(9, 1\), expected \(N,\)"),
        ({"input_rows": NUMBERS.astype(np.int64)}, "input_rows: dtype is int64, expected int32"),
        ({"batched": True}, "input_rows: is given, which excludes batched and blocks"),
        ({"global_scale": "tensor"}, "input_rows: is given, but the amax of a tensor is that of all its rows"),
        ({"spec": FP8_BLOCK}, "input_rows: is given, which excludes batched and blocks"),
        ({"out": np.zeros((ROWS, 64), np.uint8)}, r"y_fp4: shape is \(7, 64\), expected \(9, 64\)|out: "),
    ],
)
def test_bad_input_is_refused(options: dict[str, Any], message: str) -> None:
    keywords = {"spec": NVFP4, "input_rows": NUMBERS, **options}
    with pytest.raises(ValueError, match=message):
        quantize(make_input("random", ROWS, 128, "float16"), **keywords)


@pytest.mark.gpu
@pytest.mark.parametrize("spec", [*SPECS, MXFP4], ids=str)
@pytest.mark.parametrize("size", [128, 1536, 7168])
def test_the_gpu_gathers_the_bytes_of_the_cpu(size: int, spec: QuantSpec) -> None:
    x, order = make_input("random", ROWS, size, "bfloat16"), np.arange(600, dtype=np.int32) * 5 % ROWS
    runs = []
    for device in ("cpu", "cuda"):
        keywords = given_keywords(spec, lambda array, device=device: to_torch(array, device))
        runs.append(quantize(to_torch(x, device), input_rows=to_torch(order, device), **keywords))
    assert_same_bytes(runs[1].data, runs[0].data)
    assert_same_bytes(runs[1].scale, runs[0].scale)
