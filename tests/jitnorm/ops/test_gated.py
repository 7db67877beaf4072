"""silu_and_mul_quantize is quantize of the unrounded product of activated gates and values."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from encoded import BLOCKINGS, assert_encoded, assert_same_encoding, dtype_of, given_keywords, hidden_size_of, rows_of
from expected import assert_same_bytes
from frameworks import CPU_FRAMEWORKS
from inputs import INPUT_KINDS, in_turn, make_input
from jitnorm.kernels.quant_spec import FP8_TOKEN, MXFP8, NVFP4, QuantSpec

import jitnorm
from jitnorm import (
    gelu_and_mul,
    gelu_tanh_and_mul,
    quantize,
    silu,
    silu_and_mul,
    silu_and_mul_nvfp4_quantize,
    silu_and_mul_quantize,
)
from jitnorm.reference import gated_f32, swiglu_f32


@pytest.mark.parametrize("spec", BLOCKINGS[::2], ids=str)
def test_formats_give_the_reference_s_bytes(spec: QuantSpec) -> None:
    dtype, size = dtype_of(spec), hidden_size_of(spec)
    for kind in INPUT_KINDS:
        x = make_input(kind, 5, 2 * size, dtype)
        got = silu_and_mul_quantize(x, **given_keywords(spec))
        assert_encoded(got, swiglu_f32(x), spec, (5, size), f"{kind}, {dtype}")


@pytest.mark.parametrize(
    ("spec", "activation"), in_turn(BLOCKINGS[1::2], ["gelu", "gelu_tanh", "swigluoai", "relu2"]), ids=str
)
def test_gates_may_have_another_activation(spec: QuantSpec, activation: str) -> None:
    dtype, size = dtype_of(spec), hidden_size_of(spec)
    granularity = 1 if activation == "swigluoai" else None
    for kind in INPUT_KINDS:
        x = make_input(kind, 5, 2 * size, dtype)
        got = silu_and_mul_quantize(x, granularity=granularity, activation=activation, **given_keywords(spec))
        expected = gated_f32(x, activation, granularity)
        assert_encoded(got, expected, spec, (5, size), f"{kind}, {dtype}, {activation}")


ROUNDED = [(a, r) for a in ("silu", "gelu", "gelu_tanh", "relu2") for r in ("output", "hf")] + [("swigluoai", "output")]


@pytest.mark.parametrize(
    ("spec", "rounded", "dtype"), in_turn(BLOCKINGS[::3], ROUNDED, ["bfloat16", "float16"]), ids=str
)
def test_products_may_be_rounded_before_they_are_encoded(spec: QuantSpec, rounded: tuple[str, str], dtype: str) -> None:
    activation, rounding = rounded
    size = hidden_size_of(spec)
    for kind in INPUT_KINDS:
        x = make_input(kind, 5, 2 * size, dtype)
        chosen: dict[str, Any] = {"activation": activation, "rounding": rounding}
        got = silu_and_mul_quantize(x, **chosen, **given_keywords(spec))
        assert_encoded(got, gated_f32(x, **chosen), spec, (5, size), f"{kind}, {dtype}")


# Those in whose dtypes something is rounded.
HALVES = [spec for spec in BLOCKINGS if dtype_of(spec) != "float32"]


@pytest.mark.parametrize(("spec", "rounding"), in_turn(HALVES[1::4], ["output", "hf"]), ids=str)
def test_a_rounded_product_gives_what_two_calls_do(spec: QuantSpec, rounding: str) -> None:
    x = make_input("random", 5, 2 * hidden_size_of(spec), dtype_of(spec))
    fused = silu_and_mul_quantize(x, rounding=rounding, **given_keywords(spec))
    assert_same_encoding(fused, quantize(silu_and_mul(x, rounding=rounding), **given_keywords(spec)), rounding)


@pytest.mark.parametrize(("spec", "rounding"), in_turn(HALVES[::4], ["output", "hf"]), ids=str)
def test_an_activation_of_values_may_be_rounded_too(spec: QuantSpec, rounding: str) -> None:
    x = make_input("random", 5, hidden_size_of(spec), dtype_of(spec))
    fused = quantize(x, activation="silu", rounding=rounding, **given_keywords(spec))
    assert_same_encoding(fused, quantize(silu(x), **given_keywords(spec)), rounding)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("op", [silu_and_mul, gelu_and_mul, gelu_tanh_and_mul], ids=lambda op: op.__name__)
def test_each_step_may_be_rounded_as_torch_does(op: Any, dtype: str) -> None:
    gate, value = make_input("random", 5, 201, dtype), make_input("real", 5, 201, dtype)
    activation = getattr(jitnorm, op.__name__.removesuffix("_and_mul"))
    product = torch.from_numpy(activation(gate).view(np.int16)).view(getattr(torch, dtype))
    product = product * torch.from_numpy(value.view(np.int16)).view(product.dtype)
    assert_same_bytes(op(np.concatenate([gate, value], -1), rounding="hf"), product, dtype)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: quantize(x, spec=NVFP4, rounding="hf"), "rounding: is 'hf', but without an activation"),
        (lambda x: silu_and_mul_quantize(x, spec=NVFP4, rounding="up"), "rounding: is 'up'; allowed are 'once'"),
    ],
)
def test_a_rounding_that_is_not_there_is_refused(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(np.ones((2, 64), np.float16))


@pytest.mark.parametrize(
    ("granularity", "spec"), in_turn([1, 2, 4, 8, 16, 24, 32, 48, 96, None], [NVFP4, MXFP8]), ids=str
)
def test_gates_and_values_may_take_turns(granularity: int | None, spec: QuantSpec) -> None:
    x = make_input("finite_patterns", 9, 192, "bfloat16")
    got = silu_and_mul_quantize(x, spec=spec, granularity=granularity)
    assert_encoded(got, swiglu_f32(x, granularity), spec, (9, 96), str(granularity))


def test_interleaved_columns_give_what_halves_give() -> None:
    halves = make_input("real", 5, 128, "float16")
    turns = halves.reshape(5, 2, 8, 8).transpose(0, 2, 1, 3).reshape(5, 128)
    expected = silu_and_mul_quantize(halves, spec=NVFP4)
    assert_same_encoding(silu_and_mul_quantize(turns, spec=NVFP4, granularity=8), expected, "8")


@pytest.mark.parametrize("size", [1, 15, 17, 33])
def test_halves_of_any_length(size: int) -> None:
    """The values then start at any element."""
    x = make_input("random", 5, 2 * size, "float16")
    assert_encoded(silu_and_mul_quantize(x, spec=FP8_TOKEN), swiglu_f32(x), FP8_TOKEN, (5, size), str(size))


@pytest.mark.parametrize("framework", CPU_FRAMEWORKS)
def test_every_framework_gets_the_same_bytes(framework: str) -> None:
    x = make_input("real", 6, 128, "bfloat16").reshape(2, 3, 128)
    got = silu_and_mul_quantize(CPU_FRAMEWORKS[framework](x), spec=NVFP4)
    assert_encoded(got, swiglu_f32(rows_of(x)), NVFP4, (2, 3, 64), framework)


def test_rows_may_lie_at_any_stride() -> None:
    x = make_input("random", 12, 300, "float16").reshape(2, 6, 300)
    for view in (x[:, ::2, :256], x[:, 1::2, 3:259]):
        y = swiglu_f32(rows_of(np.ascontiguousarray(view)))
        assert_encoded(silu_and_mul_quantize(view, spec=NVFP4), y, NVFP4, (2, 3, 128), str(view.strides))


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        (129, {}, "input: its last dimension is 129, not a multiple of 2"),
        (130, {}, "hidden size. is 65, not a multiple of block_size 16"),
        (128, {"granularity": 24}, "granularity: is 24, which does not divide the hidden size 64"),
        (128, {"granularity": 128}, "granularity: is 128; 1 to 64 is allowed"),
        (128, {"activation": "tanh"}, "activation: is 'tanh'; allowed are 'silu', 'gelu', .* 'swigluoai'"),
        (128, {"granularity": 0}, "granularity: is 0; expected None or a positive int"),
        (128, {"granularity": 8.0}, "granularity: is 8.0; expected None or a positive int"),
    ],
)
def test_bad_input_is_refused(columns: int, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        silu_and_mul_quantize(np.ones((2, columns), np.float16), spec=NVFP4, **options)


@pytest.mark.parametrize("framework", CPU_FRAMEWORKS)
@pytest.mark.parametrize(("layout", "flags"), [("linear", (False,)), ("128x4", ()), ("8x4", (True, True))])
def test_silu_and_mul_nvfp4_quantize_is_one_case_of_it(layout: str, flags: tuple[bool, ...], framework: str) -> None:
    make = CPU_FRAMEWORKS[framework]
    x, scale = make_input("real", 6, 192, "bfloat16").reshape(2, 3, 192), np.array([0.37], np.float32)
    expected = silu_and_mul_quantize(x, spec=NVFP4.with_layout(layout), global_scale=scale)
    codes, scales = silu_and_mul_nvfp4_quantize(make(x), make(scale), 16, *flags)
    assert (tuple(codes.shape), len(scales.shape)) == ((6, 48), 2)
    assert_same_bytes(codes, expected.data.view(np.uint8).reshape(6, 48))
    assert_same_bytes(scales, expected.scale.view(np.uint8).reshape(tuple(scales.shape)))


def test_silu_and_mul_nvfp4_quantize_has_four_over_six_too() -> None:
    recipe = SimpleNamespace(e4m3_max=448, err_mode="MSE", err_use_fast_math=False)
    x = make_input("real", 5, 192, "float16")
    expected = silu_and_mul_quantize(x, spec=QuantSpec("e2m1", 16, "e4m3", four_over_six=True))
    codes, scales = silu_and_mul_nvfp4_quantize(x, None, is_sf_swizzled_layout=False, nvfp4_4over6=recipe)
    assert_same_bytes(codes, expected.data.view(np.uint8))
    assert_same_bytes(scales, expected.scale.view(np.uint8))


def test_silu_and_mul_nvfp4_quantize_names_what_is_wrong() -> None:
    x = np.ones((2, 128), np.float16)
    with pytest.raises(ValueError, match="sf_vec_size: is 64; allowed are 16, 32"):
        silu_and_mul_nvfp4_quantize(x, None, 64)
    with pytest.raises(TypeError, match="nvfp4_4over6: is a bool; expected None or"):
        silu_and_mul_nvfp4_quantize(x, None, nvfp4_4over6=True)
    with pytest.raises(ValueError, match=r"global_scale: shape is \(2,\), expected \(1,\)"):
        silu_and_mul_nvfp4_quantize(x, np.ones(2, np.float32))
