"""Activations with parameters from the caller, and values that precede gates."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from encoded import assert_encoded
from expected import assert_same_bytes
from inputs import ALL_DTYPES, INPUT_KINDS, in_turn, make_input
from jitnorm.kernels.activations import Numbers, canonical, numbers_of
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.quant_spec import FP8_TOKEN, MXFP8, NVFP4, QuantSpec

import jitnorm
from jitnorm.reference import activated_f32, gated_f32, round_to

CLAMPED = partial(jitnorm.silu_and_mul_with_clamp, limit=2.5)
# Calls, the activation that they have, and how gates and values stand.
GATED: list[tuple[Any, str, dict[str, Any]]] = [
    (CLAMPED, "swiglu:2.5:1:0", {}),
    (partial(CLAMPED, alpha=1.3, beta=-0.25, granularity=8), "swiglu:2.5:1.3:-0.25", {"granularity": 8}),
    (partial(jitnorm.swigluoai_and_mul, alpha=1.1, limit=3), "swiglu:3:1.1:1", {"granularity": 1}),
    (partial(jitnorm.fatrelu_and_mul, threshold=0.3), "fatrelu:0.3", {}),
    (jitnorm.mul_and_silu, "silu", {"values_first": True}),
    (partial(CLAMPED, rounding="hf"), "swiglu:2.5:1:0", {"rounding": "hf"}),
    (partial(jitnorm.mul_and_silu, rounding="hf"), "silu", {"values_first": True, "rounding": "hf"}),
]


@pytest.mark.parametrize(("call", "dtype"), in_turn(GATED, list(ALL_DTYPES)))
def test_gates_are_the_reference_s(call: tuple[Any, str, dict[str, Any]], dtype: str) -> None:
    function, activation, options = call
    for kind in INPUT_KINDS:
        x = make_input(kind, 5, 2 * 40, dtype)
        expected = round_to(gated_f32(x, activation, **options), ALL_DTYPES[dtype])
        assert_same_bytes(function(x), expected, f"{activation}, {kind}")


def test_values_are_the_reference_s() -> None:
    for kind in INPUT_KINDS:
        x = make_input(kind, 5, 201, "bfloat16")
        assert_same_bytes(jitnorm.gelu_quick(x), round_to(activated_f32(x, "swish:1.702"), x.dtype), kind)


@pytest.mark.parametrize(
    ("spec", "activation"),
    [(NVFP4, "swiglu:7:1:0"), (MXFP8, "swiglu:10:1.5:1"), (FP8_TOKEN, "fatrelu:-0.5"), (MXFP8, "swish:0.5")],
    ids=str,
)
def test_what_they_give_may_be_quantized(spec: QuantSpec, activation: str) -> None:
    x = make_input("random", 5, 192, "bfloat16") * np.float32(9).astype("float32")
    x = x.astype("float16")
    got = jitnorm.silu_and_mul_quantize(x, spec=spec, activation=activation)
    assert_encoded(got, gated_f32(x, activation), spec, (5, 96), activation)
    if not activation.startswith("swiglu"):
        got = jitnorm.quantize(x, spec=spec, activation=activation)
        assert_encoded(got, activated_f32(x, activation), spec, (5, 192), activation)


def test_values_may_stand_before_gates_that_are_quantized() -> None:
    x = make_input("random", 5, 192, "float16")
    got = jitnorm.silu_and_mul_quantize(x, spec=MXFP8, values_first=True)
    assert_encoded(got, gated_f32(x, "silu", values_first=True), MXFP8, (5, 96), "values first")


def test_a_bound_holds_for_what_gates_give() -> None:
    x, bound = make_input("random", 5, 192, "bfloat16"), np.array([0.5], np.float32)
    q = jitnorm.silu_and_mul_quantize(x, spec=FP8_TOKEN, scale_ub=bound)
    assert_same_bytes(q.scale, np.minimum(np.abs(gated_f32(x, "silu")).max(1), bound[0]) / np.float32(448))


def test_limits_beyond_all_values_change_nothing() -> None:
    x = make_input("random", 5, 80, "bfloat16")
    assert_same_bytes(jitnorm.silu_and_mul_with_clamp(x, 2.0**127), jitnorm.silu_and_mul(x))
    halves = np.concatenate([x[:, 40:], x[:, :40]], -1)
    assert_same_bytes(jitnorm.mul_and_silu(x), jitnorm.silu_and_mul(halves))


def test_they_are_those_of_torch_within_its_rounding() -> None:
    x = torch.linspace(-20, 20, 400).reshape(2, 200)
    gate, up = x.clamp(max=3)[:, :100], x.clamp(-3, 3)[:, 100:]
    expected = gate * torch.sigmoid(1.7 * gate) * (up + 0.5)
    found = jitnorm.silu_and_mul_with_clamp(x, 3.0, alpha=1.7, beta=0.5)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(jitnorm.gelu_quick(x), x * torch.sigmoid(1.702 * x), rtol=1e-5, atol=1e-7)
    fat = torch.nn.functional.threshold(x[:, :100], 0.7, 0.0) * x[:, 100:]
    assert torch.equal(jitnorm.fatrelu_and_mul(x, 0.7), fat)


def test_one_kernel_serves_all_texts_of_an_activation() -> None:
    def config(activation: str) -> KernelConfig:
        return KernelConfig("quantize", 64, activation=activation, gate_columns=64)

    assert config("swiglu:7.0:1:0") == config("swiglu:7:1.0:0.0")
    assert config("swish:1") == config("silu")
    assert config("swiglu:7:1.702:1") == config("swigluoai")
    assert KernelConfig.parse(str(config("swiglu:0.1:3:-2"))) == config("swiglu:0.1:3:-2")
    assert numbers_of(canonical("swish:1.702")) == Numbers(alpha=float(np.float32(1.702)))
    assert numbers_of("silu") is None


def test_numbers_of_numpy_are_numbers() -> None:
    x = make_input("random", 2, 64, "float16")
    assert_same_bytes(CLAMPED(x, limit=np.float32(2.5)), CLAMPED(x))
    assert_same_bytes(jitnorm.fatrelu_and_mul(x, np.int8(1)), jitnorm.fatrelu_and_mul(x, 1))
    with pytest.raises(TypeError, match=r"^threshold: is a bool; expected a number"):
        jitnorm.fatrelu_and_mul(x, np.True_)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: jitnorm.silu_and_mul_with_clamp(x, 0), "limit: is 0; allowed are numbers from"),
        (lambda x: jitnorm.silu_and_mul_with_clamp(x, float("nan")), "limit: is nan; allowed are"),
        (lambda x: jitnorm.silu_and_mul_with_clamp(x, 7, alpha=1000), "alpha: is 1000; allowed are .* 0.01 to 100"),
        (lambda x: jitnorm.silu_and_mul_with_clamp(x, 7, beta=float("inf")), "beta: is inf; allowed are"),
        (lambda x: jitnorm.fatrelu_and_mul(x, "1"), "threshold: is a str; expected a number"),
        (
            lambda x: jitnorm.quantize(x, spec=MXFP8, activation="swiglu:7:1:0"),
            "activation: is 'swiglu:7:1:0'; allowed",
        ),
        (lambda x: jitnorm.silu_and_mul_quantize(x, spec=MXFP8, activation="swish"), "activation: is 'swish'; allowed"),
        (lambda x: jitnorm.silu_and_mul_quantize(x, spec=MXFP8, activation="swish:a"), "activation: is 'swish:a'; al"),
        (lambda x: jitnorm.silu_and_mul_quantize(x, spec=MXFP8, activation="silu:1"), "activation: is 'silu:1'; al"),
    ],
)
def test_numbers_out_of_range_are_refused(call: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        call(np.ones((2, 64), np.float16))
