"""Functional forms of ops with a residual: they return the bytes of the in-place ops, and write no input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from expected import assert_all_same, assert_same_bytes
from frameworks import to_jax, to_numpy, to_torch
from inputs import make_input, make_weight

import jitnorm
from jitnorm import FP8_GROUP, MXFP8, NVFP4, QuantSpec

ROWS, SIZE = 5, 128
X, RESIDUAL = (make_input("real", ROWS, SIZE, "float16", seed=seed) for seed in (0, 1))
WEIGHT = make_weight(SIZE, "float16")
Make = Callable[[Any], Any]
frameworks = pytest.mark.parametrize("make", [to_numpy, to_torch, to_jax])


@frameworks
@pytest.mark.parametrize("gemma", ["", "gemma_"])
def test_the_norm_and_the_sum_are_those_of_the_op_in_place(make: Make, gemma: str) -> None:
    norm, total = X.copy(), RESIDUAL.copy()
    getattr(jitnorm, f"{gemma}fused_add_rmsnorm")(norm, total, WEIGHT)
    x, residual = make(X), make(RESIDUAL)
    for _ in range(2):
        assert_all_same(getattr(jitnorm, f"{gemma}add_rmsnorm")(x, residual, make(WEIGHT)), (norm, total))
    assert_all_same((x, residual), (X, RESIDUAL))


@frameworks
@pytest.mark.parametrize(
    ("spec", "scales", "keep_norm"),
    [
        (NVFP4.with_layout("128x4"), {}, False),
        (NVFP4, {"global_scale": "tensor"}, True),
        (MXFP8, {}, False),
        (FP8_GROUP, {}, True),
        (QuantSpec("e4m3", "tensor", "f32"), {"scale": np.array([0.5], np.float32)}, False),
        (QuantSpec("e4m3", "tensor", "f32"), {"scale": np.array([0.5], np.float32)}, True),
    ],
    ids=str,
)
def test_codes_scales_and_sum_are_those_of_the_op_in_place(
    make: Make, spec: QuantSpec, scales: dict[str, Any], keep_norm: bool
) -> None:
    total, norm = RESIDUAL.copy(), np.empty_like(X)
    given = {"residual": total, "y_out": norm if keep_norm else None, **scales}
    expected = jitnorm.norm_quantize(X, WEIGHT, spec=spec, **given)
    made = {name: scale if isinstance(scale, str) else make(scale) for name, scale in scales.items()}
    x, residual = make(X), make(RESIDUAL)
    q, *others = jitnorm.add_norm_quantize(x, residual, make(WEIGHT), spec=spec, keep_norm=keep_norm, **made)
    assert (q.spec, q.shape) == (expected.spec, expected.shape)
    assert_all_same((q.data, q.scale), (expected.data, expected.scale))
    assert_all_same(others, (total, norm) if keep_norm else (total,))
    assert_all_same((x, residual), (X, RESIDUAL))


def test_outputs_may_be_given_and_be_the_inputs() -> None:
    x, residual, out = to_torch(X), to_torch(RESIDUAL), to_torch(np.zeros_like(X))
    expected = jitnorm.add_rmsnorm(X, RESIDUAL, WEIGHT)
    found = jitnorm.add_rmsnorm(x, residual, to_torch(WEIGHT), out=out, residual_out=residual)
    assert found[0] is out
    assert found[1] is residual
    assert_all_same(found, expected)
    assert_same_bytes(x, X)


def test_in_jax_programs_they_take_the_place_of_the_ops_in_place() -> None:
    @jax.jit
    def program(x: Any, residual: Any, weight: Any) -> Any:
        y, total = jitnorm.add_rmsnorm(x, residual, weight)
        return y, *jitnorm.add_norm_quantize(y, total, weight, spec=MXFP8)

    y, q, total = program(jnp.asarray(X), jnp.asarray(RESIDUAL), jnp.asarray(WEIGHT))
    first = jitnorm.add_rmsnorm(X, RESIDUAL, WEIGHT)
    expected, again = jitnorm.add_norm_quantize(*first, WEIGHT, spec=MXFP8)
    assert_all_same((y, q.data, q.scale, total), (first[0], expected.data, expected.scale, again))


def test_a_residual_of_another_shape_is_refused_by_name() -> None:
    for op in (
        jitnorm.add_rmsnorm,
        jitnorm.gemma_add_rmsnorm,
        lambda *args: jitnorm.add_norm_quantize(*args, spec=MXFP8),
    ):
        with pytest.raises(ValueError, match=r"^residual: shape is \(4, 128\), expected \(5, 128\)"):
            op(X, RESIDUAL[:-1], WEIGHT)
