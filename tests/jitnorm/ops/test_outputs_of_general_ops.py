"""`out` and `out_scale` of the general ops: codes and scales in tensors of the caller's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from inputs import in_turn

import jitnorm
from jitnorm import FP8_GROUP, FP8_TENSOR, FP8_TOKEN, INT8_GROUP, MXFP4, MXFP8, NVFP4, QuantizedTensor, QuantSpec

ROWS, SIZE = 5, 256
X = np.random.default_rng(3).standard_normal((ROWS, SIZE)).astype(np.float16)
WEIGHT = np.linspace(0.5, 1.5, SIZE, dtype=np.float16)
SPECS = (
    FP8_TOKEN, FP8_GROUP.with_layout("column4"), INT8_GROUP, MXFP8, MXFP4.with_layout("8x4"),
    NVFP4.with_layout("128x4"),
)  # fmt: skip
OPS: dict[str, Callable[..., QuantizedTensor]] = {
    "quantize": lambda **options: jitnorm.quantize(X, **options),
    "norm_quantize": lambda **options: jitnorm.norm_quantize(X, WEIGHT, **options),
    "silu_and_mul_quantize": lambda **options: jitnorm.silu_and_mul_quantize(np.hstack([X, X]), **options),
}


@pytest.mark.parametrize(("spec", "op"), in_turn(SPECS, list(OPS)), ids=str)
def test_they_hold_what_would_have_been_allocated(spec: QuantSpec, op: str) -> None:
    expected = OPS[op](spec=spec)
    wide = np.zeros((ROWS, 2 * expected.data.shape[1]), expected.data.dtype)
    out, out_scale = wide[:, : expected.data.shape[1]], np.zeros_like(expected.scale)
    found = OPS[op](spec=spec, out=out, out_scale=out_scale)
    assert found.data is out
    assert found.scale is out_scale
    assert out.tobytes() == expected.data.tobytes()
    assert out_scale.tobytes() == expected.scale.tobytes()


@pytest.mark.parametrize("op", OPS)
def test_one_of_them_may_be_allocated(op: str) -> None:
    expected = OPS[op](spec=MXFP8)
    out = np.zeros_like(expected.data)
    found = OPS[op](spec=MXFP8, out=out)
    assert found.data is out
    assert out.tobytes() == expected.data.tobytes()
    assert found.scale.tobytes() == expected.scale.tobytes()


def test_a_scale_that_is_found_for_the_tensor_is_one_of_them() -> None:
    out_scale = np.zeros(1, np.float32)
    assert jitnorm.quantize(X, spec=FP8_TENSOR, scale="tensor", out_scale=out_scale).scale is out_scale
    assert out_scale[0] == np.float32(np.abs(X).max()) / np.float32(448)


def test_outputs_that_overlap_are_both_named() -> None:
    memory = np.zeros((ROWS + 1) * SIZE, np.float32).view(np.uint8)
    out = memory[: ROWS * SIZE].view(jitnorm.quantize(X, spec=FP8_TOKEN).data.dtype).reshape(ROWS, SIZE)
    with pytest.raises(ValueError, match=r"^(out: .* of out_scale|out_scale: .* of out); give it memory of its own"):
        jitnorm.quantize(X, spec=FP8_TOKEN, out=out, out_scale=memory[: 4 * ROWS].view(np.float32))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"spec": FP8_TOKEN, "out": np.zeros((ROWS, SIZE), np.int8)}, "^out: dtype is int8, expected float8_e4m3fn"),
        ({"spec": MXFP4, "out": np.zeros((ROWS, SIZE), np.uint8)}, "^out: shape is .5, 256., expected .5, 128."),
        ({"spec": FP8_TOKEN, "out_scale": np.zeros(ROWS + 1, np.float32)}, "^out_scale: shape is .6,., expected .5,."),
        ({"spec": MXFP8, "out_scale": np.zeros((ROWS, 4), np.uint8)}, "^out_scale: shape is .5, 4., expected .5, 8."),
        (
            {"spec": FP8_TENSOR, "scale": np.ones(1, np.float32), "out_scale": np.ones(1, np.float32)},
            "^out_scale: is given, but e4m3/tensor/f32/linear/none has no computed scale; pass None",
        ),
    ],
)
def test_others_are_refused_by_name(options: dict[str, Any], message: str) -> None:
    for call in OPS.values():
        with pytest.raises(ValueError, match=message):
            call(**options)
