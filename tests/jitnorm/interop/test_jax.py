"""JAX arrays on the CPU, outside jax.jit; test_jax_programs.py tests what jax-tvm-ffi adds."""

from __future__ import annotations

import pytest
from expected import assert_same_bytes, expected_rmsnorm
from frameworks import to_jax, to_numpy
from inputs import DTYPES, make_input, make_weight

from jitnorm import rmsnorm

jax = pytest.importorskip("jax", reason="JAX is not installed")
ROWS, SIZE = 5, 96


@pytest.mark.parametrize("dtype", DTYPES)
def test_outputs_are_arrays_that_jax_computes_with(dtype: str) -> None:
    x, weight = make_input("real", ROWS, SIZE, dtype), make_weight(SIZE, dtype)
    out = rmsnorm(to_jax(x), to_jax(weight))
    doubled = jax.jit(lambda y: y + y)(out)
    expected = expected_rmsnorm(x, weight)
    assert_same_bytes(doubled, expected + expected)


def test_inputs_that_jax_has_yet_to_compute_are_waited_for() -> None:
    x, weight = make_input("real", ROWS, SIZE, "float16"), make_weight(SIZE, "float16")
    pending = jax.jit(lambda a: a[::-1] * 2)(to_jax(x))
    assert_same_bytes(rmsnorm(pending, to_jax(weight)), expected_rmsnorm(x[::-1] * 2, weight))


def test_inputs_stay_as_they_are() -> None:
    x, weight = make_input("real", ROWS, SIZE, "float16"), make_weight(SIZE, "float16")
    array = to_jax(x.copy())
    rmsnorm(array, to_jax(weight))
    assert_same_bytes(array, x)


def test_an_output_outlives_the_call_and_its_inputs() -> None:
    x, weight = make_input("real", ROWS, SIZE, "float16"), make_weight(SIZE, "float16")
    outputs = [rmsnorm(to_jax(x * i), to_jax(weight)) for i in range(1, 20)]
    for i, out in enumerate(outputs, start=1):
        assert_same_bytes(out, expected_rmsnorm(x * i, weight), f"output {i}")


@pytest.mark.parametrize("make", [to_jax, to_numpy])
def test_jax_outputs_are_refused_for_they_are_immutable(make: object) -> None:
    x, weight = make_input("real", ROWS, SIZE, "float16"), make_weight(SIZE, "float16")
    out = to_jax(x * 0)
    with pytest.raises(TypeError, match="out: is written, but JAX arrays are immutable; leave an output None"):
        rmsnorm(make(x), make(weight), out=out)  # type: ignore[operator]
    assert_same_bytes(out, x * 0)
