"""RMSNorm with a bias, plain and quantized, returns the reference's bytes: on the CPU, in CUDA C++ and on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cute_on_host import assert_same
from encoded import BLOCKINGS, assert_encoded, assert_same_encoding, dtype_of, given_keywords, hidden_size_of
from expected import assert_same_bytes
from frameworks import CPU_FRAMEWORKS, to_torch
from inputs import ALL_DTYPES, INPUT_KINDS, in_turn, make_input, make_weight
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.quant_spec import FP8_TOKEN, MXFP8, NVFP4, QuantSpec
from jitnorm.kernels.target import Target

from jitnorm import norm_quantize, rmsnorm, rmsnorm_bias
from jitnorm.reference import inv_rms_f32, rmsnorm_f32, round_to, stored_residual

SIZES = [1, 17, 513, 4096]


def parameters(size: int, dtype: str) -> tuple[Any, Any]:
    weight, bias = make_weight(size, dtype), make_weight(size, dtype, seed=2)
    return weight, bias - bias.dtype.type(1)


def expected(x: Any, weight: Any, bias: Any, eps: float = 1e-6) -> Any:
    return round_to(rmsnorm_f32(x, weight, eps, bias=bias), x.dtype)


@pytest.mark.parametrize(("size", "dtype"), in_turn((*SIZES, 2, 384), list(ALL_DTYPES)))
def test_it_gives_the_reference_s_bytes(size: int, dtype: str) -> None:
    weight, bias = parameters(size, "float32" if size == 17 else dtype)
    for kind in INPUT_KINDS:
        x = make_input(kind, 5, size, dtype)
        assert_same_bytes(rmsnorm_bias(x, weight, bias), expected(x, weight, bias), kind)


def test_the_reference_rounds_the_product_and_then_the_sum() -> None:
    x, (weight, bias) = make_input("random", 4, 96, "float32"), parameters(96, "float32")
    y, scaled = rmsnorm_f32(x, weight, bias=bias), x * inv_rms_f32(x)[:, None]
    assert_same_bytes(y, scaled * weight + bias)
    assert (y != (scaled.astype(np.float64) * weight + bias).astype(np.float32)).any()  # fused


@pytest.mark.parametrize("number", range(0, len(BLOCKINGS), 3), ids=lambda number: str(BLOCKINGS[number]))
def test_encodings_give_the_reference_s_bytes(number: int) -> None:
    """All kinds of encodings, which follow the bias; the other options take turns."""
    spec, adds, unit_bias = BLOCKINGS[number], number // 3 % 2 == 1, number // 3 % 3 == 1
    dtype, size = dtype_of(spec), hidden_size_of(spec)
    weight, bias = parameters(size, "float32" if number % 5 == 0 else dtype)
    for kind in INPUT_KINDS:
        x = make_input(kind, 7, size, dtype)
        residual = make_input("random", 7, size, dtype, seed=3) if adds else None
        added, kept = None if residual is None else residual.copy(), np.empty_like(x)
        got = norm_quantize(
            x, weight, bias=bias, residual=added, unit_bias=unit_bias, y_out=kept, **given_keywords(spec)
        )
        y = rmsnorm_f32(x, weight, residual=residual, weight_bias=float(unit_bias), bias=bias)
        assert_encoded(got, y, spec, x.shape, kind)
        assert_same_bytes(kept, round_to(y, x.dtype), f"y_out of {kind}")
        if residual is not None:
            assert_same_bytes(added, stored_residual(x, residual), f"residual of {kind}")


@pytest.mark.parametrize("spec", [NVFP4.with_layout("128x4"), FP8_TOKEN], ids=str)
def test_a_batch_is_its_matrices_one_by_one(spec: QuantSpec) -> None:
    x, (weight, bias) = make_input("real", 10, 96, "bfloat16").reshape(2, 5, 96), parameters(96, "bfloat16")
    batch = norm_quantize(x, weight, bias=bias, spec=spec, batched=True)
    for i, matrix in enumerate(x):
        one = norm_quantize(matrix, weight, bias=bias, spec=spec)
        assert_same_bytes(batch.data[i], one.data)
        assert_same_bytes(batch.scale[i], one.scale)


@pytest.mark.parametrize("framework", CPU_FRAMEWORKS)
def test_every_framework_gets_the_same_bytes(framework: str) -> None:
    make, x = CPU_FRAMEWORKS[framework], make_input("real", 6, 96, "bfloat16")
    weight, bias = parameters(96, "bfloat16")
    got = rmsnorm_bias(make(x), make(weight), make(bias), 1e-5)
    assert_same_bytes(got, expected(x, weight, bias, 1e-5), framework)


def test_it_may_be_in_place_and_rows_may_lie_at_any_stride() -> None:
    buffer, (weight, bias) = make_input("random", 8, 200, "float16"), parameters(64, "float16")
    view = buffer[::2, 3:67]
    wanted = expected(np.ascontiguousarray(view), weight, bias)
    assert rmsnorm_bias(view, weight, bias, out=view) is view
    assert_same_bytes(view, wanted)


def test_a_bias_of_zero_takes_the_sign_of_a_zero_that_no_bias_keeps() -> None:
    x, ones, zeros = np.full((1, 8), -0.0, np.float16), np.ones(8, np.float16), np.zeros(8, np.float16)
    assert np.signbit(rmsnorm(x, ones)).all()
    assert not np.signbit(rmsnorm_bias(x, ones, zeros)).any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bias": np.ones(64, np.float32)}, "bias: dtype is float32, expected float16"),
        ({"weight": np.ones(64, np.float32)}, "bias: dtype is float16, expected float32"),
        ({"bias": np.ones(63, np.float16)}, r"bias: shape is \(63,\), expected \(64,\)"),
        ({"out": np.ones((4, 64), np.float32)}, "out: dtype is float32, expected float16"),
    ],
)
def test_bad_input_is_refused_and_nothing_is_written(change: dict[str, Any], message: str) -> None:
    out = np.full((4, 64), 7, np.float16)
    call = {"input": np.ones((4, 64), np.float16), "weight": np.ones(64, np.float16), "bias": np.ones(64, np.float16)}
    rmsnorm_bias(**call)  # such a kernel is known, and yet does not serve
    with pytest.raises(ValueError, match=message):
        rmsnorm_bias(**(call | {"out": out} | change))
    assert (out == 7).all()


@pytest.mark.parametrize("text", ["layernorm:hidden_size=64,bias=true", "rmsnorm:hidden_size=64,pair=true,bias=true"])
def test_kernels_without_such_a_bias_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"which has no bias|needs a plain rmsnorm or a rotation"):
        KernelConfig.parse(text)


ON_HOST = (
    "rmsnorm:bias=true,hidden_size=512",
    "rmsnorm:bias=true,hidden_size=513,input=float16,weight=float32,vector_bytes=2",
    "rmsnorm:bias=true,hidden_size=8192,many_rows=true",
    "rmsnorm:bias=true,hidden_size=4096,residual=true,quant=e2m1/16/e4m3/128x4",
    "rmsnorm:bias=true,hidden_size=2048,input=float32,quant=e2m1/16/e4m3/linear/row",
    "rmsnorm:bias=true,hidden_size=1000,unit_bias=true,vector_bytes=8,quant=e4m3/row/f32",
)


@pytest.mark.parametrize("target", [Target("sm_90a"), Target("sm_100a")], ids=str)
@pytest.mark.parametrize("text", ON_HOST)
def test_cuda_writes_what_the_cpu_writes(text: str, target: Target) -> None:
    for kind in ("random", "nan"):
        assert_same(KernelConfig.parse(text), target, 5, kind, is_cuda=True)


@pytest.mark.gpu
@pytest.mark.parametrize("size", [*SIZES, 32768, 262144])
@pytest.mark.parametrize("dtype", ALL_DTYPES)
def test_a_gpu_writes_what_the_cpu_writes(dtype: str, size: int) -> None:
    weight, bias = map(to_torch, parameters(size, "float32" if size == 17 else dtype))
    for kind in INPUT_KINDS if size < 16384 else ("random", "nan", "huge"):
        for rows in (5, 700):
            x = to_torch(make_input(kind, rows if size < 16384 else 5, size, dtype))
            assert_same_bytes(rmsnorm_bias(x.cuda(), weight.cuda(), bias.cuda()), rmsnorm_bias(x, weight, bias), kind)


@pytest.mark.gpu
@pytest.mark.parametrize("size", [512, 7168, 65536])
@pytest.mark.parametrize("adds", [False, True])
@pytest.mark.parametrize("spec", [NVFP4, NVFP4.with_global_scale("row"), MXFP8, FP8_TOKEN], ids=str)
def test_a_gpu_encodes_what_the_cpu_encodes(spec: QuantSpec, adds: bool, size: int) -> None:
    weight, bias = map(to_torch, parameters(size, "bfloat16"))
    for kind in ("random", "nan", "huge", "spiky"):
        x, residual = (
            to_torch(make_input(each, 33, size, "bfloat16", seed))
            for each, seed in zip((kind, "random"), (0, 3), strict=True)
        )
        runs = []
        for device in ("cpu", "cuda"):
            added = residual.to(device, copy=True) if adds else None
            keywords = given_keywords(spec, lambda array, at=device: to_torch(array, at))
            q = norm_quantize(x.to(device), weight.to(device), bias=bias.to(device), residual=added, **keywords)
            runs.append((q, residual if added is None else added))
        assert_same_encoding(runs[1][0], runs[0][0], kind)
        assert_same_bytes(runs[1][1], runs[0][1], f"residual of {kind}")
