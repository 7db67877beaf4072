"""The norms fused with FP8 by a given scale return the bytes of the reference on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from encoded import normalized
from expected import assert_same_bytes
from frameworks import to_torch
from inputs import INPUT_KINDS, make_input, make_weight

from jitnorm import fused_add_rmsnorm_quant, gemma_fused_add_rmsnorm_quant, gemma_rmsnorm_quant, rmsnorm_quant
from jitnorm.reference import quantize_fp8_static, stored_residual

FP8 = {"e4m3": np.dtype(ml_dtypes.float8_e4m3fn), "e5m2": np.dtype(ml_dtypes.float8_e5m2)}
OPS = {
    "rmsnorm_quant": (rmsnorm_quant, False, False),
    "gemma_rmsnorm_quant": (gemma_rmsnorm_quant, False, True),
    "fused_add_rmsnorm_quant": (fused_add_rmsnorm_quant, True, False),
    "gemma_fused_add_rmsnorm_quant": (gemma_fused_add_rmsnorm_quant, True, True),
}
EVERY_OP = pytest.mark.parametrize(("op", "adds", "unit_bias"), OPS.values(), ids=OPS)
# Each two of a dtype, an element and a size meet, beside a weight as it is or with one added.
PAIRWISE = [
    (*op, *case)
    for op in OPS.values()
    for case in (
        (("float16", "e5m2", 384), ("bfloat16", "e5m2", 17), ("float32", "e4m3", 17))
        if op[2]
        else (("float16", "e4m3", 17), ("bfloat16", "e4m3", 384), ("float32", "e5m2", 384))
    )
]


def check(
    op: Callable[..., None], adds: bool, unit_bias: bool, x: Any, weight: Any, element: Any, scale: float, what: str
) -> None:
    given = np.array([scale], np.float32)
    residual = make_input("random", len(x), x.shape[-1], x.dtype.name, seed=2) if adds else None
    added = None if residual is None else residual.copy()
    out, before = np.empty(x.shape, FP8[element]), x.tobytes()
    assert op(out, x, *(() if added is None else (added,)), weight, given) is None
    y = normalized(x, weight, residual, unit_bias)
    assert_same_bytes(out, quantize_fp8_static(y, float(given[0]), element), what)
    assert x.tobytes() == before
    if residual is not None:
        assert_same_bytes(added, stored_residual(x, residual), f"residual of {what}")


@pytest.mark.parametrize(("op", "adds", "unit_bias", "dtype", "element", "hidden_size"), PAIRWISE)
def test_codes_and_sum_are_the_reference_s(
    op: Callable[..., None], adds: bool, unit_bias: bool, dtype: str, element: str, hidden_size: int
) -> None:
    weight = make_weight(hidden_size, "float32" if unit_bias else dtype)
    for kind in INPUT_KINDS:
        check(op, adds, unit_bias, make_input(kind, 5, hidden_size, dtype), weight, element, 0.03, kind)


@EVERY_OP
def test_long_rows(op: Callable[..., None], adds: bool, unit_bias: bool) -> None:
    hidden_size = 65536 if unit_bias else 262144
    x, weight = make_input("real", 2, hidden_size, "bfloat16"), make_weight(hidden_size, "bfloat16")
    check(op, adds, unit_bias, x, weight, "e4m3", 0.03, str(hidden_size))


@pytest.mark.parametrize("scale", [1.0, 1e-20, 1e30, 1e-42, 0.0, -0.0, -1.5, float("inf"), float("nan")])
@pytest.mark.parametrize("element", FP8)
def test_any_scale_is_taken_as_it_is(element: str, scale: float) -> None:
    dtype = "bfloat16" if element == "e4m3" else "float16"
    weight = make_weight(384, dtype)
    for kind in ("random", "zeros", "huge", "nan", "inf"):
        check(rmsnorm_quant, False, False, make_input(kind, 4, 384, dtype), weight, element, scale, kind)


def test_rows_of_codes_may_begin_at_any_byte() -> None:
    x, weight = make_input("random", 4, 384, "float16"), make_weight(384, "float16")
    scale = np.array([0.03], np.float32)
    whole = np.full(4 * 391 + 3, 0xA5, np.uint8).view(FP8["e4m3"])
    view = whole[3:].reshape(4, 391)[:, :384]
    rmsnorm_quant(view, x, weight, scale)
    codes = quantize_fp8_static(normalized(x, weight), float(scale[0]), "e4m3")
    assert_same_bytes(np.ascontiguousarray(view), codes)
    beside = whole[3:].reshape(4, 391)[:, 384:]
    assert (np.ascontiguousarray(beside).view(np.uint8) == 0xA5).all()


@pytest.mark.parametrize("element", FP8)
def test_torch_s_tensors_get_the_same_bytes(element: str) -> None:
    import torch

    x, weight = make_input("real", 5, 384, "bfloat16"), make_weight(384, "bfloat16")
    out = torch.empty(5, 384, dtype=getattr(torch, FP8[element].name))
    rmsnorm_quant(out, to_torch(x), to_torch(weight), torch.tensor([0.03]))
    expected = quantize_fp8_static(normalized(x, weight), float(np.float32(0.03)), element)  # type: ignore[arg-type]
    assert_same_bytes(out, expected)


def test_a_row_s_result_does_not_depend_on_its_batch() -> None:
    x, weight = make_input("real", 9, 384, "bfloat16"), make_weight(384, "bfloat16")
    scale, batch = np.array([0.03], np.float32), np.empty(x.shape, FP8["e4m3"])
    rmsnorm_quant(batch, x, weight, scale)
    for i in range(len(x)):
        alone = np.empty(384, FP8["e4m3"])
        rmsnorm_quant(alone, x[i], weight, scale)
        assert_same_bytes(alone, batch[i])
