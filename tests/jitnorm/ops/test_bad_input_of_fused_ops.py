"""Invalid arguments of the fused ops raise an error that names the argument, and nothing is written."""

# ruff: noqa: E501 - in the tables below a line is a case

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from frameworks import to_jax
from jitnorm.kernels.quant_spec import FP8_GROUP, FP8_TENSOR, FP8_TOKEN, MXFP4, MXFP8, NVFP4, QuantSpec

from jitnorm import (
    add_rmsnorm_fp4quant,
    fused_add_rmsnorm,
    gemma_fused_add_rmsnorm_quant,
    norm_quantize,
    quantize,
    rmsnorm_quant,
)

E4M3 = np.dtype(ml_dtypes.float8_e4m3fn)
half = np.float16
Call = dict[str, Any]
Change = Callable[[Call], Call]


def ones(*shape: int, dtype: Any = half) -> Any:
    return np.ones(shape, dtype)


def with_spec(spec: QuantSpec, **arguments: Any) -> Change:
    return lambda call: {"spec": spec, **arguments}


def good_add() -> Call:
    return {"input": ones(4, 64), "residual": ones(4, 64), "weight": ones(64)}


def good_quant() -> Call:
    out = np.zeros((4, 64), E4M3)
    return {"out": out, "input": ones(4, 64), "weight": ones(64), "scale": ones(1, dtype=np.float32)}


def good_add_quant() -> Call:
    return good_quant() | {"residual": ones(4, 64)}


def good_norm_quantize() -> Call:
    return {"input": ones(4, 128), "weight": ones(128), "spec": NVFP4}


def good_quantize() -> Call:
    return {"input": ones(4, 128), "spec": NVFP4}


ADD = [
    ("residual_none", lambda c: {"residual": None}, "residual: is None; expected a tensor", (TypeError, ValueError)),
    ("residual_list", lambda c: {"residual": [1.0]}, "residual: is .*; expected a tensor", TypeError),
    ("residual_columns", lambda c: {"residual": ones(4, 32)}, r"residual: shape is \(4, 32\), expected \(4, 64\)", ValueError),
    ("residual_rows", lambda c: {"residual": ones(1, 64)}, r"residual: shape is \(1, 64\), expected \(4, 64\)", ValueError),
    ("residual_rank", lambda c: {"residual": ones(256)}, r"residual: shape is \(256,\), expected \(4, 64\)", ValueError),
    ("residual_dtype", lambda c: {"residual": ones(4, 64, dtype=np.float32)}, "residual: dtype is float32, expected float16", ValueError),
    ("residual_stride", lambda c: {"residual": ones(4, 128)[:, ::2]}, "residual: the stride of its last dimension is 2, expected 1", ValueError),
    ("residual_is_broadcast", lambda c: {"residual": np.lib.stride_tricks.as_strided(ones(64), (4, 64), (0, 2))}, "residual: its strides make elements share memory", ValueError),
    ("residual_is_input", lambda c: {"residual": c["input"]}, "overlaps the memory of", ValueError),
]  # fmt: skip


def shared(call: Call, name: str, other: str) -> Call:
    """The tensor `name` starting one row after the one called `other`."""
    memory = ones(5, 64)
    return {other: memory[:4], name: memory[1:]}


OUTPUTS = [
    ("both_outputs_are_one", lambda c: dict.fromkeys(("out", "residual_out"), ones(4, 64)), "(out|residual_out): overlaps the memory of (out|residual_out)", ValueError),
    ("outputs_overlap", lambda c: shared(c, "out", "residual_out"), "(out|residual_out): overlaps the memory of (out|residual_out)", ValueError),
    ("out_is_residual", lambda c: {"out": c["residual"]}, "out: overlaps the memory of residual", ValueError),
    ("residual_out_is_input", lambda c: {"residual_out": c["input"]}, "(input|out): overlaps the memory of residual_out", ValueError),
    ("residual_out_dtype", lambda c: {"residual_out": ones(4, 64, dtype=np.float32)}, "residual_out: dtype is float32, expected float16", ValueError),
    ("residual_out_shape", lambda c: {"residual_out": ones(3, 64)}, r"residual_out: shape is \(3, 64\), expected \(4, 64\)", ValueError),
]  # fmt: skip

QUANT = [
    ("out_float16", lambda c: {"out": ones(4, 64)}, "out: dtype is float16, expected float8_e4m3fn or float8_e5m2", ValueError),
    ("out_bytes", lambda c: {"out": ones(4, 64, dtype=np.uint8)}, "out: dtype is uint8, expected float8_e4m3fn or float8_e5m2", ValueError),
    ("out_none", lambda c: {"out": None}, "out: is .*None.*; expected a tensor", TypeError),
    ("out_shape", lambda c: {"out": np.zeros((4, 32), E4M3)}, r"out: shape is \(4, 32\), expected \(4, 64\)", ValueError),
    ("out_stride", lambda c: {"out": np.zeros((4, 128), E4M3)[:, ::2]}, "out: the stride of its last dimension is 2, expected 1", ValueError),
    ("out_on_input", lambda c: {"out": c["input"].view(E4M3).reshape(8, 64)[:4]}, "out: overlaps the memory of input", ValueError),
    ("scale_none", lambda c: {"scale": None}, "scale: is None; expected a tensor", TypeError),
    ("scale_number", lambda c: {"scale": 0.5}, "scale: is a .*float; expected a tensor", TypeError),
    ("scale_dtype", lambda c: {"scale": ones(1)}, "scale: dtype is float16, expected float32", ValueError),
    ("scale_size", lambda c: {"scale": ones(4, dtype=np.float32)}, r"scale: shape is \(4,\), expected \(1,\)", ValueError),
    ("scale_on_out", lambda c: {"scale": c["out"].reshape(-1)[:4].view(np.float32)}, "out: overlaps the memory of scale", ValueError),
    ("pdl", lambda c: {"enable_pdl": True}, "enable_pdl: is True, but cpu has no", ValueError),
]  # fmt: skip

SCALES = [
    ("scale_for_blocks", lambda c: {"scale": ones(1, dtype=np.float32)}, "scale: is given, but the other options leave no use for it; pass None", ValueError),
    ("scale_for_groups", with_spec(FP8_GROUP, scale=ones(1, dtype=np.float32)), "scale: shape is", ValueError),
    ("scale_for_rows", with_spec(FP8_TOKEN, scale=ones(1, dtype=np.float32)), "scale: shape is", ValueError),
    ("no_scale_for_the_tensor", with_spec(FP8_TENSOR), "scale: is None; expected a tensor", TypeError),
    ("row_scale_with_mxfp4", with_spec(MXFP4, global_scale="row"), "global_scale: is 'row', which cannot be combined with .*'ue8m0'.*then are 'none'", ValueError),
    ("row_scale_with_mxfp8", with_spec(MXFP8, global_scale="row"), "global_scale: is 'row', which cannot be combined with .*'e4m3'.*then are 'none'", ValueError),
    ("row_scale_with_fp8", with_spec(FP8_TOKEN, global_scale="row"), "global_scale: is 'row', which cannot be combined with", ValueError),
    ("global_scale_with_groups", with_spec(FP8_GROUP, global_scale=ones(1, dtype=np.float32)), "global_scale: is given, but e4m3/128/f32/linear/none has none", ValueError),
    ("global_scale_unknown", with_spec(NVFP4, global_scale="column"), "global_scale: is 'column'; expected 'row', 'tensor', a float32 tensor or None", ValueError),
    ("global_scale_missing", with_spec(NVFP4.with_global_scale("given")), "global_scale: is None; expected a tensor", TypeError),
    ("global_scale_dtype", with_spec(NVFP4, global_scale=ones(1)), "global_scale: dtype is float16, expected float32", ValueError),
    ("not_whole_groups", lambda c: {"spec": FP8_GROUP, "input": ones(4, 192), **({"weight": ones(192)} if "weight" in c else {})}, "input: .* is 192, not a multiple of block_size 128", ValueError),
]  # fmt: skip

KEPT = [
    ("y_out_dtype", lambda c: {"y_out": ones(4, 128, dtype=np.float32)}, "y_out: dtype is float32, expected float16", ValueError),
    ("y_out_shape", lambda c: {"y_out": ones(4, 64)}, r"y_out: shape is \(4, 64\), expected \(4, 128\)", ValueError),
    ("y_out_is_input", lambda c: {"y_out": c["input"]}, "y_out: overlaps the memory of input", ValueError),
    ("y_out_is_residual", lambda c: dict.fromkeys(("y_out", "residual"), ones(4, 128)), "overlaps the memory of", ValueError),
]  # fmt: skip

TABLE = [
    (fused_add_rmsnorm, good_add, [*ADD, *OUTPUTS]),
    (add_rmsnorm_fp4quant, good_add, ADD[:-1]),
    (gemma_fused_add_rmsnorm_quant, good_add_quant, ADD[1:-1]),
    (rmsnorm_quant, good_quant, QUANT),
    (quantize, good_quantize, SCALES),
    (norm_quantize, good_norm_quantize, [*SCALES, *KEPT]),
]


@pytest.mark.parametrize(
    ("op", "good", "change", "message", "error"),
    [
        pytest.param(op, good, change, message, error, id=f"{op.__name__}-{name}")
        for op, good, cases in TABLE
        for name, change, message, error in cases
    ],
)
def test_it_is_refused_and_nothing_is_written(
    op: Callable[..., Any], good: Callable[[], Call], change: Change, message: str, error: Any
) -> None:
    call = good()
    call |= change(call)
    arrays = {name: value for name, value in call.items() if isinstance(value, np.ndarray)}
    before = {name: array.tobytes() for name, array in arrays.items()}
    with pytest.raises(error, match=message):
        op(**call)
    assert {name: array.tobytes() for name, array in arrays.items()} == before


@pytest.mark.parametrize(
    ("op", "good"), [(op, good) for op, good, _ in TABLE], ids=lambda value: getattr(value, "__name__", "")
)
def test_the_call_that_all_the_cases_change_is_allowed(op: Callable[..., Any], good: Callable[[], Call]) -> None:
    op(**good())


def test_jax_arrays_cannot_be_written_in_place() -> None:
    call = {name: to_jax(value) for name, value in good_add().items()}
    for op, form in ((fused_add_rmsnorm, "add_rmsnorm"), (add_rmsnorm_fp4quant, "add_norm_quantize")):
        with pytest.raises(TypeError, match=rf"^(input|residual): is written, but JAX .* call jitnorm\.{form},"):
            op(**call)
    quant = {name: to_jax(value) for name, value in good_quant().items()}
    with pytest.raises(TypeError, match=r"^out: is written, but JAX arrays are immutable"):
        rmsnorm_quant(**quant)


def test_a_read_only_residual_is_refused() -> None:
    call = good_add()
    call["residual"].flags.writeable = False
    with pytest.raises(ValueError, match="residual: is read-only; expected a writable array"):
        fused_add_rmsnorm(**call)
    assert (call["input"] == 1).all()
