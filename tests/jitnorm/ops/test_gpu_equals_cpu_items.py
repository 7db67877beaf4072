"""The GPU's bytes are the CPU target's, for the ops that work on independent items."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from decoded import E2M1_SPECS, FLOAT_DTYPES, any_encoding, any_weight
from encoded import GIVEN, SPECS, SQUARES
from expected import assert_same_bytes
from frameworks import to_torch
from inputs import ALL_DTYPES, INPUT_KINDS, make_input, make_weight
from jitnorm.kernels.quant_spec import FP8_GROUP, FP8_TOKEN, MXFP8, NVFP4, QuantSpec

import jitnorm
from jitnorm import QuantizedTensor

pytestmark = pytest.mark.gpu


def on(q: QuantizedTensor, device: str) -> QuantizedTensor:
    """The same encoding in tensors of torch."""
    names = ("data", "scale", "global_scale", "row_scale", "tensor_scale", "scale_unswizzled")
    moved = {name: getattr(q, name) for name in names if getattr(q, name) is not None}
    return replace(q, **{name: _moved(array, device) for name, array in moved.items()})


def _moved(array: Any, device: str) -> torch.Tensor:
    is_narrow_float = array.dtype.itemsize == 1 and array.dtype != np.int8
    bytes_ = to_torch(array.view(np.uint8) if is_narrow_float else array, device)
    return bytes_.view(torch.float8_e5m2) if array.dtype == ml_dtypes.float8_e5m2 else bytes_


def assert_decoded_alike(q: QuantizedTensor, dtype: str, what: str) -> None:
    expected = jitnorm.dequantize(on(q, "cpu"), dtype=dtype)
    assert_same_bytes(jitnorm.dequantize(on(q, "cuda"), dtype=dtype), expected, what)


@pytest.mark.parametrize(("number", "spec"), list(enumerate(SPECS)), ids=str)
def test_dequantize(number: int, spec: QuantSpec) -> None:
    for rows in (1, 1000):
        assert_decoded_alike(any_encoding(spec, (rows,)), list(FLOAT_DTYPES)[number % 3], f"{rows} rows")


@pytest.mark.parametrize("spec", [NVFP4.with_layout("128x4").with_global_scale("given"), MXFP8, FP8_TOKEN], ids=str)
def test_dequantize_many_rows(spec: QuantSpec) -> None:
    assert_decoded_alike(any_encoding(spec, (3000,), hidden_size=4096), "bfloat16", "4096")


@pytest.mark.parametrize("size", [1, 17, 40])
def test_dequantize_rows_of_any_length(size: int) -> None:
    assert_decoded_alike(any_encoding(FP8_TOKEN, (70,), hidden_size=size), "float16", str(size))


def test_dequantize_views() -> None:
    q = any_encoding(FP8_TOKEN, (6, 8), hidden_size=96)
    runs = []
    for device in ("cpu", "cuda"):
        moved = on(q, device)
        view = replace(moved, data=moved.data[:, ::2, 3:83], scale=moved.scale[: 6 * 4], shape=(6, 4, 80))
        runs.append(jitnorm.dequantize(view))
    assert_same_bytes(runs[1], runs[0], "view")


@pytest.mark.parametrize("spec", [NVFP4.with_layout("8x4"), FP8_GROUP.with_layout("column4")], ids=str)
def test_dequantize_batches(spec: QuantSpec) -> None:
    x = to_torch(make_input("real", 3 * 33, 256, "bfloat16")).reshape(3, 33, 256)
    runs = [jitnorm.dequantize(jitnorm.quantize(x.to(d), spec=spec, batched=True)) for d in ("cpu", "cuda")]
    assert_same_bytes(runs[1], runs[0], str(spec))


@pytest.mark.parametrize("spec", SQUARES, ids=str)
def test_square_blocks(spec: QuantSpec) -> None:
    for number, (rows, size) in enumerate(((128, 256), (1000, 700), (130, 1), (7, 4096), (301, 264))):
        for kind in INPUT_KINDS:
            w = to_torch(make_input(kind, rows, size, list(ALL_DTYPES)[number % 3], seed=number))
            assert_quantized_alike(w, spec, kind)
        assert_decoded_alike(any_encoding(spec, (rows,), hidden_size=size), list(FLOAT_DTYPES)[number % 3], str(size))
    codes = to_torch(np.random.default_rng(0).integers(0, 256, (300, 272), np.uint8)).view(torch.float8_e4m3fn)
    batch = to_torch(make_input("random", 3 * 150, 400, "bfloat16")).reshape(3, 150, 400)
    assert_quantized_alike(codes, spec, "FP8")
    assert_quantized_alike(batch, spec, "batch", batched=True)
    assert_quantized_alike(batch[:, ::2, 3:203].transpose(0, 1), spec, "view")


def assert_quantized_alike(w: torch.Tensor, spec: QuantSpec, what: str, **options: Any) -> None:
    runs = [jitnorm.quantize(w.to(device), spec=spec, **options) for device in ("cpu", "cuda")]
    assert_same_bytes(runs[1].data, runs[0].data, f"{what}, {tuple(w.shape)}")
    assert_same_bytes(runs[1].scale, runs[0].scale, f"{what}, {tuple(w.shape)}")


@pytest.mark.parametrize("spec", [*E2M1_SPECS, replace(NVFP4, four_over_six=True)], ids=str)
def test_weights(spec: QuantSpec) -> None:
    for kind in INPUT_KINDS:
        for number, dtype in enumerate(ALL_DTYPES):
            w = to_torch(make_input(kind, 96, 300, dtype, seed=number))
            runs = []
            for device in ("cpu", "cuda"):
                given = torch.tensor([float(GIVEN)], device=device) if spec.global_scale == "given" else None
                runs.append(jitnorm.quantize_weight(w.to(device), spec=spec, global_scale=given))
            assert_same_bytes(runs[1].data, runs[0].data, f"{kind}, {dtype}")
            assert_same_bytes(runs[1].scale, runs[0].scale, f"{kind}, {dtype}")
    assert_decoded_alike(any_weight(spec, (96, 300)), "bfloat16", "decoded")


@pytest.mark.parametrize("ufp8_type", [0, 1])
def test_e2m1_and_ufp8sf_scale_to_float(ufp8_type: int) -> None:
    generator = np.random.default_rng(0)
    codes, scales = (to_torch(generator.integers(0, 256, size, np.uint8)) for size in ((300, 48), (384, 8)))
    factor = torch.tensor([0.37])
    expected = jitnorm.e2m1_and_ufp8sf_scale_to_float(codes, scales, factor, 16, ufp8_type)
    got = jitnorm.e2m1_and_ufp8sf_scale_to_float(codes.cuda(), scales.cuda(), factor.cuda(), 16, ufp8_type)
    assert_same_bytes(got, expected, str(ufp8_type))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bfloat16, torch.float8_e4m3fn])
def test_rearrangements(dtype: torch.dtype) -> None:
    bytes_ = np.random.default_rng(0).integers(0, 256, (256, 2 * 70), np.uint8)
    x = to_torch(bytes_).view(dtype)
    for columns in (64, x.shape[1] // 2 - 1):
        view = x[:, :columns]
        for tile in (64, 128):
            assert_bits(jitnorm.shuffle_matrix_a(view.cuda(), tile), jitnorm.shuffle_matrix_a(view, tile))
            assert_bits(jitnorm.shuffle_matrix_sf_a(view.cuda(), tile), jitnorm.shuffle_matrix_sf_a(view, tile))
        batch = view.reshape(4, 64, -1)
        assert_bits(jitnorm.block_scale_interleave(batch.cuda()), jitnorm.block_scale_interleave(batch))
        out = torch.empty_like(jitnorm.block_scale_interleave(batch.cuda()))
        assert_bits(jitnorm.block_scale_interleave(batch.cuda(), out=out), jitnorm.block_scale_interleave(batch))


def assert_bits(got: torch.Tensor, expected: torch.Tensor) -> None:
    assert_same_bytes(got.cpu().view(torch.uint8), expected.view(torch.uint8), str(expected.dtype))


@pytest.mark.parametrize(
    ("block_size", "size"),
    [("row", 1000), ("column", 40), ("column", 4096), ("column", 70001), (128, 7168), ("4x256", 512), ("allx48", 96)],
)
def test_codes_and_values_by_given_scales(block_size: int | str, size: int) -> None:
    for number, element in enumerate(("e4m3", "e5m2", "int8")):
        spec = QuantSpec(element, block_size, "f32", global_scale="given")
        rows, columns = (
            all_of if part is None else part for part, all_of in zip(spec.given_block, (37, size), strict=True)
        )
        scale = torch.rand(-(-37 // rows), size // columns, generator=torch.Generator().manual_seed(number)) / 8
        x = to_torch(make_input("spiky", 37, size, list(ALL_DTYPES)[number]))
        runs = [jitnorm.quantize(x.to(at), spec=spec, scale=scale.to(at)) for at in ("cpu", "cuda")]
        assert_same_bytes(runs[1].data, runs[0].data, str(spec))
        assert_same_bytes(runs[1].dequantize(dtype="float32"), runs[0].dequantize(dtype="float32"), str(spec))
        if element == "e4m3":
            w = to_torch(make_weight(size, "bfloat16"))
            x = to_torch(make_input("random", 37, size, "bfloat16"))
            norms = [jitnorm.norm_quantize(x.to(at), w.to(at), spec=spec, scale=scale.to(at)) for at in ("cpu", "cuda")]
            assert_same_bytes(norms[1].data, norms[0].data, str(spec))
