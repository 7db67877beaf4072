"""fused_add_rmsnorm, Gemma's variants and float32: the bytes of the reference, in place or not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from encoded import normalized
from expected import assert_same_bytes
from frameworks import to_torch
from inputs import ALL_DTYPES, INPUT_KINDS, in_turn, make_input, make_weight

from jitnorm import fused_add_rmsnorm, gemma_fused_add_rmsnorm, gemma_rmsnorm, rmsnorm
from jitnorm.reference import round_to, stored_residual

ADDING = pytest.mark.parametrize(("op", "unit_bias"), [(fused_add_rmsnorm, False), (gemma_fused_add_rmsnorm, True)])


def expected_pair(x: Any, residual: Any, weight: Any, unit_bias: bool, eps: float = 1e-6) -> tuple[Any, Any]:
    """The norm and the sum, both in the dtype and shape of x."""
    rows, added = (np.ascontiguousarray(a).reshape(-1 if a.size else 0, a.shape[-1]) for a in (x, residual))
    y = round_to(normalized(rows, weight, added, unit_bias, eps), x.dtype)
    return y.reshape(x.shape), stored_residual(rows, added).reshape(x.shape)


@pytest.mark.parametrize(
    ("op", "hidden_size", "dtype"),
    [
        *((fused_add_rmsnorm, *case) for case in in_turn((1, 384, 17, 4096, 65536, 513), list(ALL_DTYPES))),
        *((gemma_fused_add_rmsnorm, 384, dtype) for dtype in ALL_DTYPES),
    ],
)
def test_input_and_residual_become_the_norm_and_the_sum(op: Callable[..., None], hidden_size: int, dtype: str) -> None:
    unit_bias = op is gemma_fused_add_rmsnorm
    weight = make_weight(hidden_size, "float32" if unit_bias else dtype)
    for kind in INPUT_KINDS:
        for other in (kind, "random"):
            x, residual = make_input(kind, 4, hidden_size, dtype), make_input(other, 4, hidden_size, dtype, seed=2)
            norm, total = expected_pair(x, residual, weight, unit_bias)
            assert op(x, residual, weight) is None
            assert_same_bytes(x, norm, f"input of {kind}")
            assert_same_bytes(residual, total, f"residual of {kind}")


@pytest.mark.parametrize("hidden_size", [131072, 262144])
def test_the_longest_rows(hidden_size: int) -> None:
    weight = make_weight(hidden_size, "bfloat16")
    x, residual = (make_input("random", 2, hidden_size, "bfloat16", seed=seed) for seed in (0, 1))
    norm, total = expected_pair(x, residual, weight, False)
    fused_add_rmsnorm(x, residual, weight)
    assert_same_bytes(x, norm, "input")
    assert_same_bytes(residual, total, "residual")


@ADDING
def test_given_outputs_leave_the_inputs_as_they_are(op: Callable[..., None], unit_bias: bool) -> None:
    x, residual = (make_input("random", 5, 384, "bfloat16", seed=seed) for seed in (0, 1))
    weight, out, total = make_weight(384, "bfloat16"), np.empty_like(x), np.empty_like(x)
    before = x.tobytes(), residual.tobytes()
    op(x, residual, weight, out=out, residual_out=total)
    assert (x.tobytes(), residual.tobytes()) == before
    for got, wanted in zip((out, total), expected_pair(x, residual, weight, unit_bias), strict=True):
        assert_same_bytes(got, wanted)


@pytest.mark.parametrize("given", ["out", "residual_out"])
def test_one_output_may_be_given_and_the_other_in_place(given: str) -> None:
    x, residual = (make_input("random", 5, 384, "bfloat16", seed=seed) for seed in (0, 1))
    weight, own = make_weight(384, "bfloat16"), np.empty_like(x)
    norm, total = expected_pair(x, residual, weight, False)
    fused_add_rmsnorm(x, residual, weight, **{given: own})
    assert_same_bytes(own if given == "out" else x, norm)
    assert_same_bytes(own if given == "residual_out" else residual, total)


CUTS = {
    "rows": lambda t: t[:, 1::2, :64],
    "columns": lambda t: t[:, :4, 64:128],
    "unaligned": lambda t: t[:, :4, 3:67],
    "transposed": lambda t: t.transpose(0, 1)[:4, :, :64],
}


@pytest.mark.parametrize("name", CUTS)
@pytest.mark.parametrize("framework", ["torch", "numpy"])
def test_a_view_s_update_arrives_in_its_tensor(name: str, framework: str) -> None:
    """The view has three dimensions and gaps between rows: all its elements change, and no others."""
    whole = [to_torch(make_input("random", 3 * 8, 200, "bfloat16", seed).reshape(3, 8, 200)) for seed in (0, 1)]
    before = [tensor.clone() for tensor in whole]
    views = [CUTS[name](tensor) for tensor in whole]
    weight = make_weight(64, "bfloat16")
    x, residual = (to_numpy(view.contiguous()) for view in views)
    expected = expected_pair(x, residual, weight, False)
    if framework == "torch":
        fused_add_rmsnorm(*views, to_torch(weight))
    else:
        fused_add_rmsnorm(*map(to_numpy, views), weight)
    for tensor, old, wanted in zip(whole, before, expected, strict=True):
        CUTS[name](old).copy_(to_torch(wanted))
        assert torch.equal(tensor.view(torch.int16), old.view(torch.int16))


def to_numpy(tensor: torch.Tensor) -> Any:
    """The same memory as an array of ml_dtypes' bfloat16."""
    return tensor.view(torch.int16).numpy().view(ALL_DTYPES["bfloat16"])


@pytest.mark.parametrize("shape", [(), (0,), (2, 3), (2, 0), (2, 1, 3)])
def test_any_number_of_leading_dimensions(shape: tuple[int, ...]) -> None:
    rows, weight = int(np.prod(shape)), make_weight(40, "float16")
    x, residual = (make_input("random", rows, 40, "float16", seed).reshape(*shape, 40) for seed in (0, 1))
    norm, total = expected_pair(x, residual, weight, False)
    fused_add_rmsnorm(x, residual, weight)
    assert_same_bytes(x, norm)
    assert_same_bytes(residual, total)


@ADDING
def test_a_row_s_result_does_not_depend_on_its_batch(op: Callable[..., None], unit_bias: bool) -> None:
    x, residual = (make_input("random", 9, 384, "bfloat16", seed=seed) for seed in (0, 1))
    weight = make_weight(384, "bfloat16")
    norm, total = expected_pair(x, residual, weight, unit_bias)
    for i in range(len(x)):
        op(x[i], residual[i], weight)
    assert_same_bytes(x, norm)
    assert_same_bytes(residual, total)


@pytest.mark.parametrize(
    ("op", "dtype", "hidden_size"),
    [
        *((rmsnorm, "float32", size) for size in (1, 17, 513, 65536)),
        *((gemma_rmsnorm, "bfloat16", size) for size in (17, 131072)),
        *((gemma_rmsnorm, dtype, 513) for dtype in ("float16", "float32")),
    ],
)
def test_the_norm_alone_is_the_reference_s(op: Callable[..., Any], dtype: str, hidden_size: int) -> None:
    """The other tests of rmsnorm are in test_rmsnorm.py."""
    unit_bias = op is gemma_rmsnorm
    weight = make_weight(hidden_size, dtype)
    for kind in INPUT_KINDS:
        x = make_input(kind, 3, hidden_size, dtype)
        expected = round_to(normalized(x, weight, unit_bias=unit_bias), x.dtype)
        assert_same_bytes(op(x, weight), expected, kind)


def test_gemma_adds_one_in_float32() -> None:
    """1 + 2**-11 is not representable in float16 or bfloat16, so the weight is widened first."""
    x = np.ones((1, 16), np.float32)
    weight = np.full(16, 2.0**-11, np.float32)
    assert (gemma_rmsnorm(x, weight, eps=0.0) == 1 + 2.0**-11).all()


def test_gemma_without_weight_is_a_norm_with_ones() -> None:
    x = make_input("real", 3, 384, "bfloat16")
    zeros, ones = np.zeros(384, x.dtype), np.ones(384, x.dtype)
    assert_same_bytes(gemma_rmsnorm(x, zeros), rmsnorm(x, ones))


def test_a_residual_of_zeros_changes_nothing() -> None:
    x, weight = make_input("real", 3, 384, "bfloat16"), make_weight(384, "bfloat16")
    expected, out = rmsnorm(x, weight), np.empty_like(x)
    fused_add_rmsnorm(x, np.zeros_like(x), weight, out=out)
    assert_same_bytes(out, expected)
