"""Operands of torch's scaled GEMM: torch's own checks accept them, and products are those of the decoded matrices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from jitnorm.kernels.quant_spec import (
    FP8_BLOCK,
    FP8_GROUP,
    FP8_TENSOR,
    FP8_TOKEN,
    INT8_TOKEN,
    MXFP4,
    MXFP8,
    NVFP4,
    QuantSpec,
)
from torch._subclasses import FakeTensorMode

import jitnorm
from jitnorm import QuantizedTensor, quantize
from jitnorm.scaled_mm import ScaledMmOperand

M, N, K = 48, 32, 256
SWIZZLED = "128x4"
# By name: how to quantize, and its global scale or scale.
ENCODINGS: dict[str, tuple[QuantSpec, dict[str, Any]]] = {
    "fp8 tensor": (FP8_TENSOR, {"scale": torch.tensor([0.02])}),
    "fp8 tensor, found": (FP8_TENSOR, {"scale": "tensor"}),
    "fp8 rows": (FP8_TOKEN, {}),
    "fp8 128": (FP8_GROUP, {}),
    "fp8 128, column-major": (FP8_GROUP.with_layout("column"), {}),
    "fp8 128, padded columns": (FP8_GROUP.with_layout("column4"), {}),
    "mxfp8": (MXFP8.with_layout(SWIZZLED), {}),
    "nvfp4": (NVFP4.with_layout(SWIZZLED), {}),
    "nvfp4, both layouts": (NVFP4.with_layout(f"linear+{SWIZZLED}"), {}),
    "nvfp4, given": (NVFP4.with_layout(SWIZZLED), {"global_scale": torch.tensor([400.0])}),
    "nvfp4, found": (NVFP4.with_layout(SWIZZLED), {"global_scale": "tensor"}),
}
COLUMN = FP8_GROUP.with_layout("column")
# Recipes of two kinds of scales: a matrix of blocks by one of groups, either way round, with scales of any kind.
MIXED = {
    "1x128 by 128x128": (COLUMN, FP8_BLOCK),
    "128x128 by 1x128": (FP8_BLOCK, COLUMN),
    "powers of two": (replace(COLUMN, scale_format="f32_ue8m0"), replace(FP8_BLOCK, scale_format="f32_ue8m0")),
}
every_encoding = pytest.mark.parametrize("name", ENCODINGS)


def matrices(name: str, rows: int = M, device: str = "cpu") -> tuple[QuantizedTensor, QuantizedTensor]:
    spec, scales = ENCODINGS[name]
    scales = {key: value.to(device) if isinstance(value, torch.Tensor) else value for key, value in scales.items()}
    random = torch.Generator().manual_seed(0)
    x, w = (torch.randn(size, K, generator=random).bfloat16().to(device) for size in (rows, N))
    return quantize(x, spec=spec, **scales), quantize(w, spec=spec, **scales)


def product(a: ScaledMmOperand, b: ScaledMmOperand, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.nn.functional.scaled_mm(
        a.matrix, b.matrix, a.scale, a.recipe, b.scale, b.recipe, a.swizzle, b.swizzle, output_dtype=dtype
    )


def decoded_product(x: QuantizedTensor, w: QuantizedTensor) -> torch.Tensor:
    return x.dequantize(dtype="float32").double() @ w.dequantize(dtype="float32").double().t()


def on_a_gpu(operand: ScaledMmOperand) -> ScaledMmOperand:
    """The same shapes, strides and dtypes on a GPU that need not exist."""

    def like(tensor: torch.Tensor) -> torch.Tensor:
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cuda")

    return operand._replace(matrix=like(operand.matrix), scale=[like(scale) for scale in operand.scale])


@every_encoding
@pytest.mark.parametrize("rows", [M, 6])
def test_torch_s_checks_for_gpus_accept_every_operand(rows: int, name: str) -> None:
    x, w = matrices(name, rows)
    a, b = x.scaled_mm_operand(), w.scaled_mm_operand(is_weight=True)
    with FakeTensorMode():
        assert product(on_a_gpu(a), on_a_gpu(b)).shape == (rows, N)


def mixed_matrices(name: str, size: int, device: str = "cpu") -> tuple[QuantizedTensor, QuantizedTensor]:
    random = torch.Generator().manual_seed(0)
    x, w = (torch.randn(rows, size, generator=random).bfloat16().to(device) for rows in (256, 384))
    return quantize(x, spec=MIXED[name][0]), quantize(w, spec=MIXED[name][1])


@pytest.mark.parametrize("size", [128, 512, 640])
@pytest.mark.parametrize("name", MIXED)
def test_torch_s_checks_for_gpus_accept_blocks_beside_groups(name: str, size: int) -> None:
    x, w = mixed_matrices(name, size)
    a, b = x.scaled_mm_operand(), w.scaled_mm_operand(is_weight=True)
    turned = b._replace(scale=[b.scale[0].t()])
    with FakeTensorMode():
        assert product(on_a_gpu(a), on_a_gpu(b)).shape == (256, 384)
        with pytest.raises(RuntimeError, match="blockwise scaling"):
            product(on_a_gpu(a), on_a_gpu(turned))


def test_the_blocks_of_a_row_are_padded_to_four() -> None:
    _, w = mixed_matrices("1x128 by 128x128", 640)
    scale = w.scaled_mm_operand(is_weight=True).scale[0]
    assert scale.shape == (8, 3)
    assert torch.equal(scale[:5], w.scale.t())
    assert not scale[5:].any()


def test_torch_s_checks_reject_what_is_no_operand() -> None:
    x, w = matrices("mxfp8")
    a, b = x.scaled_mm_operand(), w.scaled_mm_operand(is_weight=True)
    a = a._replace(scale=[a.scale[0][:-1]])
    with FakeTensorMode(), pytest.raises(RuntimeError, match="MX scaling"):
        product(on_a_gpu(a), on_a_gpu(b))


@every_encoding
def test_codes_and_scales_are_those_of_the_quantized_tensor(name: str) -> None:
    q, _ = matrices(name)
    operand = q.scaled_mm_operand()
    assert operand.matrix.data_ptr() == q.data.data_ptr()
    scale = operand.scale[0].contiguous().view(torch.uint8).numpy()
    held = q.scale[:, :M].t().contiguous() if q.spec.is_column_major else q.scale
    np.testing.assert_array_equal(scale.reshape(-1), held.view(torch.uint8).numpy().reshape(-1))
    assert len(operand.scale) == len(operand.recipe) == len(operand.swizzle)


@pytest.mark.parametrize("name", ["fp8 tensor", "fp8 tensor, found", "fp8 rows"])
def test_products_are_those_of_the_decoded_matrices(name: str) -> None:
    x, w = matrices(name)
    y = product(x.scaled_mm_operand(), w.scaled_mm_operand(is_weight=True), torch.float32)
    torch.testing.assert_close(y.double(), decoded_product(x, w), rtol=1e-5, atol=1e-4)


def test_the_second_level_of_nvfp4_undoes_the_global_scale() -> None:
    for name in ("nvfp4, given", "nvfp4, found"):
        q, _ = matrices(name)
        plain = QuantizedTensor(q.data, q.scale, None, None, None, q.spec.with_global_scale("none"), q.shape)
        torch.testing.assert_close(
            plain.dequantize(dtype="float32") * q.scaled_mm_operand().scale[1], q.dequantize(dtype="float32")
        )


def test_leading_dimensions_become_rows() -> None:
    q = quantize(torch.ones(2, 3, K, dtype=torch.bfloat16), spec=FP8_TOKEN)
    assert q.scaled_mm_operand().matrix.shape == (6, K)
    assert q.scaled_mm_operand().scale[0].shape == (6, 1)


REFUSED: dict[str, tuple[Callable[[], QuantizedTensor], str]] = {
    "a layout": (lambda: quantize(x(), spec=NVFP4), "has the scale layout 'linear'; scaled_mm reads '128x4'"),
    "MXFP4": (lambda: quantize(x(), spec=MXFP4), "is encoded as e2m1/32/ue8m0/linear/none; torch multiplies FP8"),
    "INT8": (lambda: quantize(x(), spec=INT8_TOKEN), "is encoded as int8/row/f32/linear/none; torch multiplies FP8"),
    "packed scales": (
        lambda: quantize(x(), spec=QuantSpec("e4m3", 128, "f32_ue8m0", "packed")),
        "is encoded as e4m3/128/f32_ue8m0/packed/none; torch multiplies FP8",
    ),
    "a scale of each row": (lambda: quantize(x(), spec=NVFP4, global_scale="row"), "is encoded as e2m1/16/e4m3"),
    "a part of a block": (
        lambda: quantize(x(), spec=FP8_BLOCK),
        r"its shape is \(64, 256\); scaled_mm takes whole blocks",
    ),
    "a batch": (lambda: quantize(x()[None], spec=FP8_TOKEN, batched=True), "is batched"),
    "the first dimension": (
        lambda: jitnorm.quantize_weight(x(), spec=NVFP4),
        "is batched, or its blocks run along",
    ),
}


def x() -> torch.Tensor:
    return torch.ones(64, K, dtype=torch.bfloat16)


@pytest.mark.parametrize("what", REFUSED)
def test_what_torch_has_no_gemm_for_is_refused_by_name(what: str) -> None:
    make, message = REFUSED[what]
    with pytest.raises(ValueError, match=f"^q: {message}"):
        make().scaled_mm_operand()


def test_other_frameworks_are_refused() -> None:
    with pytest.raises(TypeError, match=r"^q: is of numpy; scaled_mm takes tensors of torch"):
        quantize(np.ones((6, K), np.float16), spec=FP8_TOKEN).scaled_mm_operand()


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["fp8 tensor", "fp8 tensor, found", "fp8 rows", "fp8 128", "fp8 128, column-major"])
def test_the_gpu_multiplies_the_decoded_matrices(name: str) -> None:
    if ENCODINGS[name][0].block_size == 128 and torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("torch multiplies FP8 with scales of 128 values on Hopper alone")
    x, w = matrices(name, device="cuda")
    y = product(x.scaled_mm_operand(), w.scaled_mm_operand(is_weight=True))
    torch.testing.assert_close(y.double(), decoded_product(x, w), rtol=2**-7, atol=2e-2)


@pytest.mark.gpu
@pytest.mark.parametrize("name", MIXED)
def test_the_gpu_multiplies_blocks_and_groups(name: str) -> None:
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("torch multiplies FP8 with scales of 128 values on Hopper alone")
    for size in (512, 640):
        x, w = mixed_matrices(name, size, "cuda")
        y = product(x.scaled_mm_operand(), w.scaled_mm_operand(is_weight=True))
        torch.testing.assert_close(y.double(), decoded_product(x, w), rtol=2**-7, atol=2e-2)
