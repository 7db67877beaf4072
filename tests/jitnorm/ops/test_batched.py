"""Batches: each matrix gets the same result as alone, and rows outside the mask are not touched."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from encoded import IN_BATCHES, OF_TENSORS, assert_same_encoding, dtype_of, given_keywords, hidden_size_of
from expected import as_bytes, assert_same_bytes
from frameworks import CPU_FRAMEWORKS, to_torch
from hypothesis import given, settings
from hypothesis import strategies as st
from inputs import INPUT_KINDS, make_input, make_weight
from jitnorm.kernels.arguments import TensorArgument
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.extents import sizes_of
from jitnorm.kernels.interface import interface
from jitnorm.kernels.quant_spec import FP8_GROUP, FP8_TENSOR, FP8_TOKEN, MXFP4, MXFP8, NVFP4, QuantSpec
from placement import place, placements, poisoned

from jitnorm import (
    QuantizedTensor,
    get_kernel,
    norm_quantize,
    nvfp4_batched_quantize,
    quantize,
    silu_and_mul_quantize,
)

GIVEN = NVFP4.with_layout("128x4").with_global_scale("given")
PACKED = QuantSpec("e4m3", 16, "f32_ue8m0", "packed")
# Every kind of scale and of layout.
SOME_SPECS = [
    GIVEN,
    NVFP4.with_layout("linear+8x4").with_global_scale("row"),
    MXFP4,
    FP8_GROUP.with_layout("column4"),
    PACKED,
    FP8_TOKEN,
    FP8_TENSOR,
]


def make(kind: str, shape: tuple[int, ...], seed: int = 0, dtype: str = "float16") -> Any:
    return make_input(kind, math.prod(shape[:-1]), shape[-1], dtype, seed).reshape(shape)


def ones(*shape: int, dtype: Any = np.float16) -> Any:
    return np.ones(shape, dtype)


def matrix_of(q: QuantizedTensor, b: int) -> QuantizedTensor:
    """One matrix of a batch, as if it were the whole batch."""
    rest = [None if part is None else part[b] for part in (q.row_scale, q.scale_unswizzled)]
    scale = q.scale if q.spec.block_size == "tensor" else q.scale[b]
    return QuantizedTensor(q.data[b], scale, q.global_scale, *rest, q.spec, q.shape[1:])


@pytest.mark.parametrize("spec", IN_BATCHES, ids=str)
def test_each_matrix_gets_what_it_gets_alone(spec: QuantSpec) -> None:
    for kind, shape in (("random", (3, 5)), ("nan", (2, 130)), ("spiky", (2, 2, 3))):
        x = make(kind, (*shape, hidden_size_of(spec)), dtype=dtype_of(spec))
        q = quantize(x, batched=True, **given_keywords(spec))
        assert q.batched
        assert q.shape == x.shape
        for b in range(shape[0]):
            assert_same_encoding(matrix_of(q, b), quantize(x[b], **given_keywords(spec)), f"{kind} {shape}")


@pytest.mark.parametrize("spec", OF_TENSORS, ids=str)
def test_a_scale_that_is_found_for_the_tensor_is_that_of_all_matrices(spec: QuantSpec) -> None:
    x = make("random", (3, 5, hidden_size_of(spec)), dtype=dtype_of(spec))
    batch, whole = (quantize(x, batched=batched, **given_keywords(spec)) for batched in (True, False))
    assert_same_bytes(batch.data, whole.data)
    assert_same_bytes(batch.amax, whole.amax)
    if spec.has_blocks:
        assert_same_bytes(batch.tensor_scale, whole.tensor_scale)
        linear = [q.scale_unswizzled if spec.both_layouts else q.scale for q in (batch, whole)]
        assert_same_bytes(linear[0], linear[1])
    else:
        assert_same_bytes(batch.scale, whole.scale)


@pytest.mark.parametrize("spec", SOME_SPECS, ids=str)
def test_without_a_dimension_of_rows_each_matrix_has_one(spec: QuantSpec) -> None:
    x = make("random", (4, hidden_size_of(spec)))
    flat, rows = (quantize(array, batched=True, **given_keywords(spec)) for array in (x, x[:, None]))
    for a, b in zip(parts(flat), parts(rows), strict=True):
        if a is not None:
            assert_same_bytes(a.ravel(), b.ravel())


def parts(q: QuantizedTensor) -> tuple[Any, ...]:
    return q.data, q.scale, q.row_scale, q.scale_unswizzled


@pytest.mark.parametrize("spec", SOME_SPECS[1::2], ids=str)
def test_a_normalized_batch_too_with_a_residual_and_the_norm_kept(spec: QuantSpec) -> None:
    size = hidden_size_of(spec)
    x, weight, residual = make("random", (3, 9, size)), make_weight(size, "float16"), make("random", (3, 9, size), 3)
    total, kept = residual.copy(), np.zeros_like(x)
    q = norm_quantize(x, weight, residual=total, y_out=kept, batched=True, **given_keywords(spec))
    for b in range(3):
        r, y = residual[b].copy(), np.zeros_like(x[b])
        alone = norm_quantize(x[b], weight, residual=r, y_out=y, **given_keywords(spec))
        assert_same_encoding(matrix_of(q, b), alone, str(b))
        assert_same_bytes(total[b], r)
        assert_same_bytes(kept[b], y)


@pytest.mark.parametrize("spec", [GIVEN, FP8_TENSOR], ids=str)
def test_each_matrix_may_have_a_given_scale_of_its_own(spec: QuantSpec) -> None:
    name = "scale" if spec == FP8_TENSOR else "global_scale"
    x, scales = make("random", (3, 5, 64)), np.array([0.5, 3.0, 17.0], np.float32)
    q = quantize(x, spec=spec, batched=True, **{name: scales})
    for b in range(3):
        alone = quantize(x[b], spec=spec, **{name: scales[b : b + 1]})
        assert_same_bytes(q.data[b], alone.data)
        if spec == GIVEN:
            assert_same_bytes(q.scale[b], alone.scale)


@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (0, 0), (2, 0, 3), (0,)])
@pytest.mark.parametrize("spec", [GIVEN, FP8_GROUP.with_layout("column4"), PACKED, FP8_TOKEN], ids=str)
def test_without_rows_there_are_no_scales(spec: QuantSpec, shape: tuple[int, ...]) -> None:
    q = quantize(ones(*shape, 128), batched=True, **given_keywords(spec))
    assert q.data.shape[:-1] == shape
    assert q.scale.size == 0
    assert q.scale.shape[0] == shape[0]


@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_strides_and_alignment_change_nothing(data: st.DataObject) -> None:
    leading = tuple(data.draw(st.lists(st.integers(1, 3), min_size=2, max_size=4)))
    placement = data.draw(placements(len(leading), (0, 1)))
    x = place((*leading, 64), np.float16, placement)
    x.view[...] = make("random", (*leading, 64))
    assert_same_encoding(
        quantize(x.view, spec=GIVEN, batched=True, global_scale=ones(1, dtype=np.float32)),
        quantize(np.ascontiguousarray(x.view), spec=GIVEN, batched=True, global_scale=ones(1, dtype=np.float32)),
        str(placement),
    )


def run_kernel(config: KernelConfig, given_tensors: dict[str, Any], rows: int, matrices: int) -> dict[str, Any]:
    """The outputs of a kernel, in memory that was poisoned before."""
    tensors = dict(given_tensors)
    for argument in interface(config):
        if isinstance(argument, TensorArgument) and argument.is_present and argument.name not in tensors:
            shape = sizes_of(argument.shape, (matrices, rows), rows, matrices)
            dtype = np.dtype(np.uint8 if argument.element_bytes == 1 else argument.dtypes[0])
            tensors[argument.name] = poisoned(math.prod(shape) * dtype.itemsize).view(dtype).reshape(shape)
    get_kernel(config)(*(tensors[a.name] for a in interface(config) if a.is_present))
    return {name: value for name, value in tensors.items() if name not in given_tensors}


@pytest.mark.parametrize("spec", SOME_SPECS, ids=str)
def test_a_mask_leaves_rows_scales_and_padding_alone(spec: QuantSpec) -> None:
    rows, counts = 150, np.array([150, 0, 7, -3, 1000, 129], np.int32)
    config = KernelConfig("quantize", 128, "float16", quant=spec, batched=True)
    given_tensors = {"input": make("random", (len(counts), rows, 128))}
    if spec.needs_given_scale:
        given_tensors["scale" if spec == FP8_TENSOR else "global_scale"] = np.array([0.4], np.float32)
    full = run_kernel(config, given_tensors, rows, len(counts))
    masked = KernelConfig("quantize", 128, "float16", quant=spec, batched=True, masked=True)
    got = run_kernel(masked, {**given_tensors, "mask": counts}, rows, len(counts))
    assert got.keys() == full.keys()
    for name, value in got.items():
        written = positions_written(spec, name, value, np.clip(counts, 0, rows))
        wanted = np.where(written, full[name].view(np.uint8 if value.itemsize == 1 else np.uint32), pattern(value))
        assert_same_bytes(value, wanted.astype(wanted.dtype), name)


GATED = [MXFP4.with_layout("128x4"), MXFP8.with_layout("8x4"), FP8_GROUP, PACKED, FP8_TOKEN]


@pytest.mark.parametrize("spec", GATED, ids=str)
def test_a_mask_counts_rows_of_gates(spec: QuantSpec) -> None:
    counts, size = np.array([6, 0, 2, 4], np.int32), 128
    x = make("random", (len(counts), 6, 2 * size))
    full = silu_and_mul_quantize(x, spec=spec, batched=True)
    masked = silu_and_mul_quantize(x, spec=spec, batched=True, mask=counts)
    linear = [silu_and_mul_quantize(rows, spec=spec.with_layout("linear")) for rows in x] if spec.is_swizzled else []
    for b, count in enumerate(counts):
        assert_same_bytes(masked.data[b, :count], full.data[b, :count])
        if spec.is_column_major:
            assert_same_bytes(masked.scale[b, :, :count], full.scale[b, :, :count])
        elif linear:  # the layout of few rows: one after another, four columns each
            rows = as_bytes(masked.scale[b]).reshape(-1, 4 if spec.row_multiple == 8 else 16)[:count]
            assert_same_bytes(rows[:, :4], as_bytes(linear[b].scale)[:count])
        else:
            assert_same_bytes(masked.scale[b, :count], full.scale[b, :count])


def pattern(value: Any) -> Any:
    return np.uint8(0xA5) if value.itemsize == 1 else np.uint32(0xA5A5A5A5)


def positions_written(spec: QuantSpec, name: str, value: Any, counts: Any) -> Any:
    """The elements that belong to the rows within a mask, found in a table of the row of each element."""
    shape = value.shape[1:]
    if name == "block_scale" and spec.is_swizzled:
        tile = spec.row_multiple
        row = np.arange(math.prod(shape)) // 4
        tiles_of_columns = 128 // spec.block_size // 4  # type: ignore[operator]
        within = row % tile  # 16 bytes hold four rows, 32 apart
        row_in_tile = within // 4 + within % 4 * 32 if tile == 128 else within
        row_of = row // tile // tiles_of_columns * tile + row_in_tile
    elif name == "block_scale" and spec.is_column_major:
        row_of = np.broadcast_to(np.arange(shape[-1]), shape)
    else:
        row_of = np.broadcast_to(np.arange(shape[0]).reshape(-1, *(1,) * (len(shape) - 1)), shape)
    return np.stack([row_of < count for count in counts]).reshape(value.shape)


def test_a_masked_residual_is_left_alone_too() -> None:
    x, weight, residual = make("random", (2, 9, 64)), make_weight(64, "float16"), make("random", (2, 9, 64), 3)
    full, masked = residual.copy(), residual.copy()
    q = norm_quantize(x, weight, spec=NVFP4, residual=full, batched=True)
    m = norm_quantize(x, weight, spec=NVFP4, residual=masked, batched=True, mask=np.array([4, 0], np.int32))
    assert_same_bytes(masked[0, :4], full[0, :4])
    assert_same_bytes(masked[0, 4:], residual[0, 4:])
    assert_same_bytes(masked[1], residual[1])
    assert_same_bytes(m.data[0, :4], q.data[0, :4])


@pytest.mark.parametrize("block_size", [16, 32])
@pytest.mark.parametrize("name", CPU_FRAMEWORKS)
def test_nvfp4_batched_quantize_gives_bytes_in_every_framework(name: str, block_size: int) -> None:
    convert = CPU_FRAMEWORKS[name]
    x, scale = make("random", (3, 5, 96)), np.array([0.75], np.float32)
    codes, scales = nvfp4_batched_quantize(convert(x), convert(scale), block_size)
    expected = quantize(x, spec=QuantSpec("e2m1", block_size, "e4m3", "128x4"), global_scale=scale, batched=True)
    assert (str(codes.dtype).removeprefix("torch."), str(scales.dtype).removeprefix("torch.")) == ("uint8", "uint8")
    assert_same_bytes(codes, expected.data)
    assert_same_bytes(scales, expected.scale)


def test_no_global_scale_is_a_global_scale_of_one() -> None:
    x = make("random", (2, 3, 64))
    for got, wanted in zip(
        nvfp4_batched_quantize(x, None), nvfp4_batched_quantize(x, ones(1, dtype=np.float32)), strict=True
    ):
        assert_same_bytes(got, wanted)


def test_four_over_six_is_flashinfer_s_recipe_of_squared_errors() -> None:
    recipe = SimpleNamespace(e4m3_max=448, err_mode="MSE", err_use_fast_math=False)
    x, scale = make("random", (2, 3, 64)), np.array([0.37], np.float32)
    expected = quantize(
        x, spec=QuantSpec("e2m1", 16, "e4m3", "128x4", four_over_six=True), global_scale=scale, batched=True
    )
    codes, scales = nvfp4_batched_quantize(x, scale, nvfp4_4over6=recipe)
    assert_same_bytes(codes, as_bytes(expected.data))
    assert_same_bytes(scales, as_bytes(expected.scale))


@pytest.mark.parametrize("spec", SOME_SPECS[::2], ids=str)
def test_a_gated_batch_is_its_matrices(spec: QuantSpec) -> None:
    x = make("random", (2, 5, 2 * hidden_size_of(spec)))
    q = silu_and_mul_quantize(x, batched=True, **given_keywords(spec))
    for b in range(2):
        alone = silu_and_mul_quantize(x[b], **given_keywords(spec))
        assert_same_encoding(matrix_of(q, b), alone, str(b))


def test_what_is_no_batch_is_refused() -> None:
    with pytest.raises(ValueError, match=r"input: has one dimension; expected \(matrices, ..., hidden_size\)"):
        quantize(ones(64), spec=NVFP4, batched=True)
    with pytest.raises(ValueError, match="mask: is given, but batched is False; pass None or batched=True"):
        quantize(ones(3, 64), spec=NVFP4, mask=ones(3, dtype=np.int32))
    with pytest.raises(ValueError, match="mask: is given, but a computed scale of the tensor counts all rows"):
        quantize(ones(3, 2, 64), spec=NVFP4, global_scale="tensor", batched=True, mask=ones(3, dtype=np.int32))
    with pytest.raises(ValueError, match="sf_vec_size: is 8; allowed are 16, 32"):
        nvfp4_batched_quantize(ones(3, 5, 64), None, 8)
    with pytest.raises(ValueError, match="scale: is given, but the other options leave no use for it"):
        quantize(ones(3, 5, 64), spec=NVFP4, batched=True, scale=ones(3, dtype=np.float32))
    kernel = get_kernel("quantize:hidden_size=64,input=float16,quant=e4m3/row/f32,batched=true")
    with pytest.raises(ValueError, match=r"input: shape is \(64,\), expected \(matrices, ..., hidden size\)"):
        kernel(ones(64), np.zeros(64, np.uint8), ones(1, dtype=np.float32))


@pytest.mark.gpu
@pytest.mark.parametrize("spec", SOME_SPECS, ids=str)
def test_the_gpu_s_bytes_are_the_cpu_s(spec: QuantSpec) -> None:
    size = hidden_size_of(spec)
    make_on: dict[str, Callable[[Any], Any]] = {d: lambda array, d=d: to_torch(array, d) for d in ("cpu", "cuda")}
    for kind in INPUT_KINDS:
        for shape in ((3, 5), (2, 130), (4, 0), (2, 2, 3)):
            x = make(kind, (*shape, size))
            on_cpu, on_gpu = (quantize(to(x), batched=True, **given_keywords(spec, to)) for to in make_on.values())
            assert_same_encoding(on_gpu, on_cpu, kind)


@pytest.mark.gpu
@pytest.mark.parametrize(("size", "rows"), [(64, 150), (1024, 150), (8192, 150), (64, 30000), (4096, 700)])
def test_the_gpu_leaves_alone_what_a_mask_does(size: int, rows: int) -> None:
    """The outputs' memory is the allocator's: only what the mask counts is compared, and the residual.

    In the last cases a block of threads has rows of several matrices, one after another.
    """
    counts = np.array([rows, 0, 7, -3, 100000, rows - 21], np.int32)
    x, residual = (make("random", (6, rows, size), seed) for seed in (0, 3))
    weight = make_weight(size, "float16")
    runs = []
    for device in ("cpu", "cuda"):
        x_, r, w, mask = (to_torch(array, device) for array in (x, residual, weight, counts))
        q = norm_quantize(x_, w, spec=NVFP4, residual=r, batched=True, mask=mask)
        runs.append((as_bytes(q.data), as_bytes(q.scale), as_bytes(r)))
    for got, wanted in zip(runs[1], runs[0], strict=True):
        for b, count in enumerate(np.clip(counts, 0, rows)):
            assert_same_bytes(got[b, :count], wanted[b, :count])
    assert_same_bytes(runs[1][2], runs[0][2])
