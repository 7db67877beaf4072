"""INT8 in every framework, with its own dtypes, and decoding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from expected import assert_same_bytes
from frameworks import CPU_FRAMEWORKS
from inputs import make_input, make_weight

import jitnorm
from jitnorm import INT8_GROUP, INT8_TENSOR, INT8_TOKEN, QuantSpec
from jitnorm.reference import quantize_int8_token, rmsnorm_f32


@pytest.mark.parametrize("framework", CPU_FRAMEWORKS)
def test_codes_have_the_framework_s_own_dtype(framework: str) -> None:
    make, x = CPU_FRAMEWORKS[framework], make_input("real", 5, 96, "float16")
    q = jitnorm.quantize(make(x), spec=INT8_TOKEN)
    codes, scales = quantize_int8_token(x)
    assert str(q.data.dtype).removeprefix("torch.") == "int8"
    assert_same_bytes(q.data, codes)
    assert_same_bytes(q.scale, scales[:, 0])
    assert_same_bytes(
        jitnorm.dequantize(q, dtype="float32"),
        jitnorm.dequantize(jitnorm.quantize(x, spec=INT8_TOKEN), dtype="float32"),
    )


@pytest.mark.parametrize("spec", [INT8_TOKEN, INT8_GROUP, INT8_TENSOR.with_global_scale("tensor")], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_decoded_values_are_off_by_half_a_scale(dtype: str, spec: QuantSpec) -> None:
    x = torch.from_numpy(make_input("random", 40, 256, "float32"))
    scale = "tensor" if spec.needs_tensor_amax else None
    q = jitnorm.quantize(x, spec=spec.with_global_scale("none"), scale=scale)
    y = q.dequantize(dtype=dtype).float()
    half = (q.scale.reshape(40, -1) if q.scale.numel() > 1 else q.scale).max() / 2
    assert (y - x).abs().max() <= 1.001 * half + (0 if dtype == "float32" else x.abs().max() * 2**-8)


def test_a_norm_is_encoded_unrounded() -> None:
    x, weight = make_input("real", 7, 384, "bfloat16"), make_weight(384, "bfloat16")
    codes, scales = quantize_int8_token(rmsnorm_f32(x, weight))
    q = jitnorm.norm_quantize(x, weight, spec=INT8_TOKEN)
    assert_same_bytes(q.data, codes)
    assert_same_bytes(q.scale, scales[:, 0])


def test_products_of_integers_are_near_those_of_values() -> None:
    """An INT8 GEMM computes exact sums, then applies the scales of both rows."""
    x, w = (torch.from_numpy(make_input("random", rows, 256, "float32", seed=rows)) for rows in (24, 32))
    a, b = (jitnorm.quantize(each, spec=INT8_TOKEN) for each in (x, w))
    y = torch._int_mm(a.data, b.data.t()).float() * a.scale[:, None] * b.scale
    torch.testing.assert_close(y.double(), x.double() @ w.double().t(), atol=1.0, rtol=0)


@pytest.mark.parametrize("write", [np.uint8, np.float16])
def test_codes_of_another_dtype_are_refused(write: Any) -> None:
    q = jitnorm.quantize(np.ones((2, 64), np.float16), spec=INT8_TOKEN)
    q = jitnorm.QuantizedTensor(q.data.astype(write), q.scale, None, None, None, q.spec, q.shape)
    with pytest.raises(ValueError, match=r"data: dtype is .*expected int8"):
        q.dequantize()
