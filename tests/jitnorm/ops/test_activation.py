"""Activations of values and of gates: the reference's, rounded to the input's dtype or encoded unrounded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from encoded import BLOCKINGS, assert_encoded, dtype_of, given_keywords, hidden_size_of, rows_of
from expected import assert_same_bytes
from frameworks import CPU_FRAMEWORKS
from inputs import ALL_DTYPES, INPUT_KINDS, in_turn, make_input
from jitnorm.kernels.quant_spec import NVFP4, QuantSpec
from numpy.typing import NDArray

import jitnorm
from jitnorm.reference import activated_f32, gated_f32, round_to

VALUES = ("silu", "gelu", "gelu_tanh", "relu2")
# The function of each activation of gates, and the granularity that it has by default.
GATES = {
    "silu": (jitnorm.silu_and_mul, None),
    "gelu": (jitnorm.gelu_and_mul, None),
    "gelu_tanh": (jitnorm.gelu_tanh_and_mul, None),
    "swigluoai": (jitnorm.swigluoai_and_mul, 1),
}


def of_values(name: str) -> Callable[..., Any]:
    function: Callable[..., Any] = getattr(jitnorm, name)
    return function


def rounded(y: NDArray[np.float32], dtype: str) -> NDArray[Any]:
    return round_to(y, ALL_DTYPES[dtype])


# ---- Of values -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "dtype"), in_turn(2 * VALUES, list(ALL_DTYPES)))
def test_values_are_the_reference_s(name: str, dtype: str) -> None:
    for kind in INPUT_KINDS:
        x = make_input(kind, 5, 201, dtype)
        assert_same_bytes(of_values(name)(x), rounded(activated_f32(x, name), dtype), kind)


@pytest.mark.parametrize("name", VALUES)
def test_every_bfloat16_is_the_reference_s(name: str) -> None:
    x = np.arange(1 << 16, dtype=np.uint16).view(ml_dtypes.bfloat16).reshape(512, 128)
    assert_same_bytes(of_values(name)(x), rounded(activated_f32(x, name), "bfloat16"))


@pytest.mark.parametrize("name", VALUES)
def test_values_may_be_replaced_in_place_at_any_stride(name: str) -> None:
    x = make_input("random", 12, 64, "float32").reshape(2, 6, 64)
    view, before = x[:, ::2, 3:50], x.copy()
    assert of_values(name)(view, view) is view
    expected = before.copy()
    expected[:, ::2, 3:50] = activated_f32(before[:, ::2, 3:50], name)
    assert_same_bytes(x, expected)


@pytest.mark.parametrize(("spec", "name"), in_turn(BLOCKINGS[1::3], VALUES), ids=str)
def test_values_may_be_quantized_unrounded(spec: QuantSpec, name: str) -> None:
    dtype, size = dtype_of(spec), hidden_size_of(spec)
    for kind in INPUT_KINDS:
        x = make_input(kind, 5, size, dtype)
        got = jitnorm.quantize(x, activation=name, **given_keywords(spec))
        assert_encoded(got, activated_f32(x, name), spec, (5, size), f"{kind}, {dtype}, {name}")


def test_the_scale_of_an_fp8_input_does_not_apply_to_new_values() -> None:
    x = make_input("random", 5, 96, "float32").astype(ml_dtypes.float8_e4m3fn)
    got = jitnorm.quantize(x, activation="gelu", **given_keywords(NVFP4.with_global_scale("given")))
    assert_encoded(got, activated_f32(x, "gelu"), NVFP4.with_global_scale("given"), (5, 96), "E4M3")


# ---- Of gates --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "dtype"), in_turn(2 * list(GATES), list(ALL_DTYPES)))
def test_gates_are_the_reference_s(name: str, dtype: str) -> None:
    function, granularity = GATES[name]
    for kind in INPUT_KINDS:
        x = make_input(kind, 5, 2 * 33, dtype)
        assert_same_bytes(function(x), rounded(gated_f32(x, name, granularity), dtype), kind)


@pytest.mark.parametrize(("granularity", "name"), in_turn([None, 1, 2, 8, 24, 48], list(GATES)))
def test_gates_and_values_may_take_turns(granularity: int | None, name: str) -> None:
    x = make_input("finite_patterns", 5, 96, "bfloat16")
    got = GATES[name][0](x, granularity=granularity)
    assert_same_bytes(got, rounded(gated_f32(x, name, granularity), "bfloat16"))


@pytest.mark.parametrize("framework", CPU_FRAMEWORKS)
def test_every_framework_gets_the_same_bytes(framework: str) -> None:
    make = CPU_FRAMEWORKS[framework]
    x = make_input("real", 6, 128, "bfloat16").reshape(2, 3, 128)
    for name, (function, granularity) in GATES.items():
        expected = rounded(gated_f32(rows_of(x), name, granularity), "bfloat16").reshape(2, 3, 64)
        assert_same_bytes(function(make(x)), expected, name)
    for name in VALUES:
        assert_same_bytes(of_values(name)(make(x)), rounded(activated_f32(x, name), "bfloat16"), name)


def test_gates_may_be_given_an_output() -> None:
    x, out = make_input("random", 4, 64, "float16"), np.zeros((4, 40), np.float16)[:, :32]
    assert jitnorm.gelu_and_mul(x, out) is out
    assert_same_bytes(out, rounded(gated_f32(x, "gelu"), "float16"))


def test_no_rows_give_no_rows() -> None:
    assert jitnorm.silu_and_mul(np.ones((0, 64), np.float16)).shape == (0, 32)
    assert jitnorm.gelu(np.ones((0, 64), np.float16)).shape == (0, 64)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: jitnorm.silu_and_mul(x[:, :63]), "input: its last dimension is 63, not a multiple of 2"),
        (lambda x: jitnorm.silu_and_mul(x, x[:, :32]), "out: overlaps the memory of input"),
        (lambda x: jitnorm.gelu_and_mul(x, granularity=24), "granularity: is 24, which does not divide the hidden"),
        (lambda x: jitnorm.gelu_and_mul(x, granularity=True), "granularity: is True; expected None or a positive int"),
        (lambda x: jitnorm.gelu(x.astype(ml_dtypes.float8_e4m3fn)), "input dtype: is .float8_e4m3fn.; allowed are"),
        (lambda x: jitnorm.gelu(x, np.ones((4, 32), np.float16)), r"out: shape is \(4, 32\), expected \(4, 64\)"),
        (lambda x: jitnorm.quantize(x, spec=NVFP4, activation="swigluoai"), "activation: is 'swigluoai'; allowed are"),
    ],
)
def test_bad_input_is_refused(call: Callable[[NDArray[Any]], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(np.ones((4, 64), np.float16))
