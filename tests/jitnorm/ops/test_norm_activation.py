"""The activation of a norm: the reference's, rounded to the input's dtype or encoded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from cute_on_host import assert_same
from encoded import (
    KINDS,
    SPECS,
    assert_encoded,
    assert_same_encoding,
    dtype_of,
    given_keywords,
    hidden_size_of,
    hidden_sizes_of,
)
from expected import assert_same_bytes
from frameworks import CPU_FRAMEWORKS, to_torch
from inputs import ALL_DTYPES, INPUT_KINDS, in_turn, make_input, make_weight
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.quant_spec import MXFP8, QuantSpec
from jitnorm.kernels.target import Target
from numpy.typing import NDArray

import jitnorm
from jitnorm.reference import activated_rmsnorm_f32, round_to

ACTIVATIONS = ("silu", "gelu", "gelu_tanh", "relu2")
ROUNDINGS: Any = ("once", "output", "hf", "vllm")


def of_values(activation: str) -> Callable[..., Any]:
    function: Callable[..., Any] = getattr(jitnorm, activation)
    return function


@pytest.mark.parametrize(("size", "dtype", "activation"), in_turn((1, 17, 513, 1000), list(ALL_DTYPES), ACTIVATIONS))
def test_it_is_the_reference_s(size: int, dtype: str, activation: str) -> None:
    weight = make_weight(size, "float32" if size == 17 else dtype)
    for kind in INPUT_KINDS:
        x = make_input(kind, 5, size, dtype)
        expected = round_to(activated_rmsnorm_f32(x, weight, activation, eps=1e-5), x.dtype)
        assert_same_bytes(jitnorm.rmsnorm_silu(x, weight, 1e-5, activation=activation), expected, kind)


@pytest.mark.parametrize(("activation", "dtype"), [("gelu", "float16"), ("gelu_tanh", "float16"), ("gelu", "bfloat16")])
def test_a_norm_of_narrow_rows_is_not_narrow_itself(activation: str, dtype: str) -> None:
    """Its square is rounded, unlike an input's; one in 200,000 results shows whether the rounding error is added."""
    for seed in range(6):
        x, weight = make_input("random", 200, 1000, dtype, seed), make_weight(1000, "float32", seed + 1)
        expected = round_to(activated_rmsnorm_f32(x, weight, activation, eps=1e-5), x.dtype)
        assert_same_bytes(jitnorm.rmsnorm_silu(x, weight, 1e-5, activation=activation), expected)


def test_it_is_torch_s_within_a_rounding() -> None:
    x, weight = (to_torch(make_input("random", 16, 640, "float32", seed)) for seed in (0, 1))
    wide = x.double() * torch.rsqrt(x.double().pow(2).mean(-1, keepdim=True) + 1e-6) * weight[0].double()
    expected = torch.nn.functional.silu(wide)
    torch.testing.assert_close(jitnorm.rmsnorm_silu(x, weight[0]).double(), expected, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize(("activation", "rounding", "dtype"), in_turn(ACTIVATIONS, ["hf", "vllm"], ["bfloat16"]))
def test_hf_is_the_rounded_norm_and_then_the_activation(activation: str, rounding: str, dtype: str) -> None:
    for kind in INPUT_KINDS:
        x, weight = make_input(kind, 5, 96, dtype), make_weight(96, dtype)
        norm = jitnorm.rmsnorm(x, weight, rounding=rounding)
        got = jitnorm.rmsnorm_silu(x, weight, activation=activation, rounding=rounding)
        assert_same_bytes(got, of_values(activation)(norm), kind)


@pytest.mark.parametrize(
    ("spec", "activation", "rounding", "adds", "unit_bias"),
    in_turn(KINDS[::9], ACTIVATIONS, ROUNDINGS, (False, True), (False, False, True)),
    ids=str,
)
def test_it_is_encoded(spec: QuantSpec, activation: str, rounding: Any, adds: bool, unit_bias: bool) -> None:
    dtype, size = dtype_of(spec), hidden_size_of(spec)
    weight = make_weight(size, dtype)
    options: dict[str, Any] = {"activation": activation, "rounding": rounding, "unit_bias": unit_bias}
    for kind in INPUT_KINDS:
        x = make_input(kind, 5, size, dtype)
        residual = make_input("random", 5, size, dtype, seed=3) if adds else None
        given = None if residual is None else residual.copy()
        got = jitnorm.norm_quantize(x, weight, residual=given, **options, **given_keywords(spec))
        y = activated_rmsnorm_f32(
            x, weight, activation, residual=residual, weight_bias=float(unit_bias), rounding=rounding
        )
        assert_encoded(got, y, spec, (5, size), f"{kind}, {activation}, {rounding}")


def test_output_fused_is_unfused() -> None:
    x, weight = make_input("real", 5, 96, "bfloat16"), make_weight(96, "bfloat16")
    fused = jitnorm.norm_quantize(x, weight, spec=MXFP8, activation="silu", rounding="output")
    assert_same_encoding(fused, jitnorm.quantize(jitnorm.rmsnorm_silu(x, weight), spec=MXFP8), "MXFP8")


def test_what_is_encoded_is_returned_by_the_functional_form() -> None:
    x, residual = (make_input("random", 5, 96, "bfloat16", seed) for seed in (0, 3))
    weight = make_weight(96, "bfloat16")
    q, total, y = jitnorm.add_norm_quantize(x, residual, weight, spec=MXFP8, activation="silu", keep_norm=True)
    expected = activated_rmsnorm_f32(x, weight, "silu", residual=residual)
    assert_encoded(q, expected, MXFP8, (5, 96), "MXFP8")
    assert_same_bytes(y, round_to(expected, x.dtype))
    assert_same_bytes(total, jitnorm.add_rmsnorm(x, residual, weight)[1])


def test_no_weight_is_one_of_ones() -> None:
    x = make_input("random", 6, 96, "float16")
    assert_same_bytes(jitnorm.rmsnorm_silu(x, None), jitnorm.rmsnorm_silu(x, np.ones(96, np.float16)))


@pytest.mark.parametrize("framework", CPU_FRAMEWORKS)
def test_every_framework_gets_the_same_bytes(framework: str) -> None:
    make = CPU_FRAMEWORKS[framework]
    x, weight = make_input("random", 6, 96, "bfloat16").reshape(2, 3, 96), make_weight(96, "bfloat16")
    got = jitnorm.rmsnorm_silu(make(x), make(weight), 1e-5)
    assert_same_bytes(got, jitnorm.rmsnorm_silu(x, weight, 1e-5), framework)


def test_rows_may_be_replaced_in_place_at_any_stride() -> None:
    x, weight = make_input("random", 12, 64, "float32"), make_weight(47, "float32")
    view, before = x[::2, 3:50], x.copy()
    assert jitnorm.rmsnorm_silu(view, weight, out=view) is view
    before[::2, 3:50] = activated_rmsnorm_f32(before[::2, 3:50], weight, "silu")
    assert_same_bytes(x, before)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x, w: jitnorm.rmsnorm_silu(x, w, activation="sigmoid"), "activation: is 'sigmoid'; allowed are"),
        (lambda x, w: jitnorm.rmsnorm_silu(x, w, activation="tanh"), "activation: is 'tanh'; allowed are 'silu', 'gel"),
        (lambda x, w: jitnorm.rmsnorm_silu(x, w, activation="swigluoai"), "activation: is 'swigluoai'; allowed are"),
        (lambda x, w: jitnorm.norm_quantize(x, w, spec=MXFP8, activation="?"), "activation: is '.'; allowed are"),
        (lambda x, w: KernelConfig("rmsnorm", 64, activates_norm=True), "activates_norm: is True, which takes an act"),
        (lambda x, w: KernelConfig("quantize", 64, activates_norm=True), "op: is 'quantize', which has no activates_"),
    ],
)
def test_others_are_refused(call: Callable[[NDArray[Any], NDArray[Any]], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(np.ones((2, 64), np.float16), np.ones(64, np.float16))


# ---- CUDA C++

ON_HOST = (
    "rmsnorm:hidden_size=513,vector_bytes=2,activation=gelu,activates_norm=true,rounding=hf",
    "rmsnorm:hidden_size=4096,residual=true,activation=silu,activates_norm=true,rounding=output,quant=e2m1/16/e4m3/128x4",
    "rmsnorm:hidden_size=1000,vector_bytes=8,input=float16,activation=relu2,activates_norm=true,quant=e4m3/row/f32",
)


@pytest.mark.parametrize("text", ON_HOST)
def test_cuda_writes_what_the_cpu_writes(text: str) -> None:
    for kind in ("random", "nan"):
        assert_same(KernelConfig.parse(text), Target("sm_90a"), 5, kind, is_cuda=True)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ALL_DTYPES)
@pytest.mark.parametrize("size", [1, 17, 513, 1152, 4096, 65536, 131072])
def test_a_gpu_gives_the_cpu_s_bytes(size: int, dtype: str) -> None:
    weight = to_torch(make_weight(size, dtype))
    for kind, activation, rounding in in_turn(INPUT_KINDS, ACTIVATIONS, ("once", "hf")):
        x = to_torch(make_input(kind, 5, size, dtype))
        runs = [
            jitnorm.rmsnorm_silu(x.to(device), weight.to(device), activation=activation, rounding=rounding)
            for device in ("cpu", "cuda")
        ]
        assert_same_bytes(runs[1], runs[0], kind)


@pytest.mark.gpu
@pytest.mark.parametrize(("spec", "activation", "rounding"), in_turn(SPECS, ACTIVATIONS, ROUNDINGS), ids=str)
def test_a_gpu_encodes_it_as_the_cpu_does(spec: QuantSpec, activation: str, rounding: str) -> None:
    dtype = dtype_of(spec)
    for size in hidden_sizes_of(spec):
        weight = to_torch(make_weight(size, dtype))
        for kind in INPUT_KINDS:
            x = to_torch(make_input(kind, 130, size, dtype))
            runs = [
                jitnorm.norm_quantize(
                    x.to(device), weight.to(device), activation=activation, rounding=rounding,
                    **given_keywords(spec, lambda array, to=device: to_torch(array, to)),
                )
                for device in ("cpu", "cuda")
            ]  # fmt: skip
            assert_same_encoding(runs[1], runs[0], kind)
