"""Sandwich norms: the reference's, rounded to the input's dtype or encoded; each step also exists as an op."""

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
from inputs import ALL_DTYPES, DTYPES, INPUT_KINDS, in_turn, make_input, make_weight
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.quant_spec import MXFP8, QuantSpec
from jitnorm.kernels.target import Target
from numpy.typing import NDArray

import jitnorm
from jitnorm.reference import round_to, sandwich_rmsnorm_f32

ROUNDINGS: Any = ("once", "hf", "vllm", "output")
BOTH = (False, True)


def make(kind: str, rows: int, size: int, dtype: str, weight_dtype: str = "") -> tuple[NDArray[Any], ...]:
    """The input, the residual and both weights."""
    weights = (make_weight(size, weight_dtype or dtype, seed) for seed in (1, 2))
    return (make_input(kind, rows, size, dtype), make_input("random", rows, size, dtype, 5), *weights)


@pytest.mark.parametrize(
    ("size", "dtype", "rounding", "unit_bias"),
    in_turn((1, 17, 513, 1000), list(ALL_DTYPES), ("once", "hf", "vllm"), BOTH),
)
def test_it_is_the_reference_s(size: int, dtype: str, rounding: Any, unit_bias: bool) -> None:
    for kind in INPUT_KINDS:
        tensors = make(kind, 5, size, dtype, "float32" if size == 17 else "")
        y, total = jitnorm.sandwich_rmsnorm(*tensors, 1e-5, unit_bias=unit_bias, rounding=rounding)
        expected = sandwich_rmsnorm_f32(*tensors, 1e-5, weight_bias=float(unit_bias), rounding=rounding)
        assert_same_bytes(total, expected[1], kind)
        assert_same_bytes(y, round_to(expected[0], tensors[0].dtype), kind)


@pytest.mark.parametrize(("rounding", "unit_bias"), in_turn(["hf", "vllm"], BOTH))
def test_it_is_two_norms_one_after_another(rounding: str, unit_bias: bool) -> None:
    x, residual, first, second = make("random", 8, 513, "bfloat16")
    norm = jitnorm.gemma_rmsnorm if unit_bias else jitnorm.rmsnorm
    add = jitnorm.gemma_add_rmsnorm if unit_bias else jitnorm.add_rmsnorm
    expected = add(norm(x, first, rounding="hf"), residual, second, rounding=rounding)
    found = jitnorm.sandwich_rmsnorm(x, residual, first, second, unit_bias=unit_bias, rounding=rounding)
    for got, wanted in zip(found, expected, strict=True):
        assert_same_bytes(got, wanted)


def test_without_roundings_it_is_two_norms_in_float32() -> None:
    tensors = make("random", 8, 513, "float32")
    expected = jitnorm.add_rmsnorm(jitnorm.rmsnorm(tensors[0], tensors[2]), tensors[1], tensors[3])
    for got, wanted in zip(jitnorm.sandwich_rmsnorm(*tensors), expected, strict=True):
        assert_same_bytes(got, wanted)


def test_a_statistic_that_is_infinite_leaves_the_padding_alone() -> None:
    x = np.full((1, 17), 1e-30, np.float32)
    ones = np.ones(17, np.float32)
    y, total = jitnorm.sandwich_rmsnorm(x, x, ones, ones, 0.0)
    expected = sandwich_rmsnorm_f32(x, x, ones, ones, 0.0)
    assert np.isinf(total).all()
    assert_same_bytes(y, expected[0])


@pytest.mark.parametrize(
    ("spec", "rounding", "unit_bias"), in_turn(KINDS[6::9], ROUNDINGS, (True, False, False)), ids=str
)
def test_it_is_encoded(spec: QuantSpec, rounding: Any, unit_bias: bool) -> None:
    dtype, size = dtype_of(spec), hidden_size_of(spec)
    for kind in INPUT_KINDS:
        tensors = make(kind, 5, size, dtype)
        options: dict[str, Any] = {"unit_bias": unit_bias, "rounding": rounding}
        q, total = jitnorm.sandwich_norm_quantize(*tensors, **options, **given_keywords(spec))
        y, stored = sandwich_rmsnorm_f32(*tensors, weight_bias=float(unit_bias), rounding=rounding)
        assert_encoded(q, y, spec, (5, size), f"{kind}, {rounding}")
        assert_same_bytes(total, stored)


def test_output_fused_is_unfused() -> None:
    tensors = make("real", 5, 96, "bfloat16")
    q, _, y = jitnorm.sandwich_norm_quantize(*tensors, spec=MXFP8, rounding="output", keep_norm=True)
    assert_same_bytes(y, jitnorm.sandwich_rmsnorm(*tensors)[0])
    assert_same_encoding(q, jitnorm.quantize(y, spec=MXFP8), "MXFP8")


def test_both_may_be_written_in_place_at_any_stride() -> None:
    packed, weight = make_input("random", 7, 400, "bfloat16"), make_weight(96, "bfloat16")
    x, residual = packed[:, 8:104], packed[:, 200:296]
    expected = jitnorm.sandwich_rmsnorm(x.copy(), residual.copy(), weight, weight)
    found = jitnorm.sandwich_rmsnorm(x, residual, weight, weight, out=x, residual_out=residual)
    assert found[0] is x
    assert found[1] is residual
    for got, wanted in zip(found, expected, strict=True):
        assert_same_bytes(got.copy(), wanted)


@pytest.mark.parametrize("framework", CPU_FRAMEWORKS)
def test_every_framework_gets_the_same_bytes(framework: str) -> None:
    tensors = make("random", 6, 96, "bfloat16")
    found = jitnorm.sandwich_rmsnorm(*map(CPU_FRAMEWORKS[framework], tensors))
    for got, wanted in zip(found, jitnorm.sandwich_rmsnorm(*tensors), strict=True):
        assert_same_bytes(got, wanted, framework)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x, w: jitnorm.sandwich_rmsnorm(x, x[:, :32], w, w), r"residual: shape is \(2, 32\)"),
        (lambda x, w: jitnorm.sandwich_rmsnorm(x, x, w[:32], w), r"input_weight: shape is \(32,\), expected \(64,\)"),
        (lambda x, w: jitnorm.sandwich_rmsnorm(x, x, w, w.astype(np.float32)), "input_weight: dtype is float16"),
        (lambda x, w: KernelConfig("rmsnorm", 64, sandwich=True), "sandwich: is True, which takes a residual"),
    ],
)
def test_others_are_refused(call: Callable[[NDArray[Any], NDArray[Any]], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(np.ones((2, 64), np.float16), np.ones(64, np.float16))


# ---- CUDA C++

ON_HOST = (
    "rmsnorm:hidden_size=513,vector_bytes=2,residual=true,sandwich=true,rounding=hf",
    "rmsnorm:hidden_size=1152,residual=true,sandwich=true,unit_bias=true,quant=e2m1/16/e4m3/128x4",
    "rmsnorm:hidden_size=2560,residual=true,sandwich=true,rounding=vllm,quant=e4m3/row/f32",
)


@pytest.mark.parametrize("text", ON_HOST)
def test_cuda_writes_what_the_cpu_writes(text: str) -> None:
    for kind in ("random", "nan"):
        assert_same(KernelConfig.parse(text), Target("sm_90a"), 5, kind, is_cuda=True)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ALL_DTYPES)
@pytest.mark.parametrize("size", [1, 17, 128, 513, 1152, 5376, 16384, 65536, 262144])
def test_a_gpu_gives_the_cpu_s_bytes(size: int, dtype: str) -> None:
    for kind, rounding, unit_bias, rows in in_turn(INPUT_KINDS, ("once", "hf", "vllm"), BOTH, (5, 130)):
        tensors = [to_torch(each) for each in make(kind, rows if size < 6000 else 3, size, dtype)]
        options: dict[str, Any] = {"unit_bias": unit_bias, "rounding": rounding}
        expected = jitnorm.sandwich_rmsnorm(*tensors, **options)
        found = jitnorm.sandwich_rmsnorm(*(each.cuda() for each in tensors), **options)
        for got, wanted in zip(found, expected, strict=True):
            assert_same_bytes(got, wanted, kind)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_gpu_works_in_place_on_many_rows(dtype: str) -> None:
    tensors = [to_torch(each) for each in make("random", 3000, 5376, dtype)]
    x, residual, *weights = [each.cuda() for each in tensors]
    jitnorm.sandwich_rmsnorm(x, residual, *weights, out=x, residual_out=residual)
    for got, wanted in zip((x, residual), jitnorm.sandwich_rmsnorm(*tensors), strict=True):
        assert_same_bytes(got, wanted)


@pytest.mark.gpu
@pytest.mark.parametrize(("spec", "rounding", "unit_bias"), in_turn(SPECS, ROUNDINGS, BOTH), ids=str)
def test_a_gpu_encodes_it_as_the_cpu_does(spec: QuantSpec, rounding: str, unit_bias: bool) -> None:
    for size in hidden_sizes_of(spec):
        for kind in INPUT_KINDS:
            tensors = [to_torch(each) for each in make(kind, 130, size, dtype_of(spec))]
            runs = [
                jitnorm.sandwich_norm_quantize(
                    *(each.to(device) for each in tensors), rounding=rounding, unit_bias=unit_bias,
                    **given_keywords(spec, lambda array, to=device: to_torch(array, to)),
                )
                for device in ("cpu", "cuda")
            ]  # fmt: skip
            assert_same_encoding(runs[1][0], runs[0][0], kind)
            assert torch.equal(runs[1][1].cpu().view(torch.uint8), runs[0][1].view(torch.uint8))
