"""layernorm_quantize returns the bytes of the reference: on the CPU, in CUDA C++ and on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cute_on_host import assert_same
from encoded import BLOCKINGS, assert_encoded, assert_same_encoding, dtype_of, given_keywords, hidden_size_of
from expected import assert_same_bytes
from frameworks import CPU_FRAMEWORKS, to_torch
from inputs import INPUT_KINDS, make_input, make_weight
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.quant_spec import FP8_TENSOR, FP8_TOKEN, MXFP8, NVFP4, QuantSpec
from jitnorm.kernels.target import Target

from jitnorm import compute_amax, layernorm, layernorm_quantize, quantize
from jitnorm.reference import layernorm_f32, round_to


def parameters(size: int) -> tuple[Any, Any]:
    return make_weight(size, "float32"), make_weight(size, "float32", seed=2) - 1


@pytest.mark.parametrize("number", range(2, len(BLOCKINGS), 3), ids=lambda number: str(BLOCKINGS[number]))
def test_encodings_give_the_reference_s_bytes(number: int) -> None:
    """All kinds of encodings, of the plain or the rounded norm; parameters take turns, too."""
    spec, is_rounded = BLOCKINGS[number], number // 3 % 2 == 1
    dtype, size = dtype_of(spec), hidden_size_of(spec)
    gamma, beta = parameters(size) if number // 3 % 3 else (None, None)
    for kind in INPUT_KINDS:
        x = make_input(kind, 7, size, dtype)
        kept = np.empty_like(x)
        rounding = "output" if is_rounded else "once"
        got = layernorm_quantize(x, gamma, beta, y_out=kept, rounding=rounding, **given_keywords(spec))
        y = layernorm_f32(x, gamma, beta)
        assert_same_bytes(kept, round_to(y, x.dtype), f"y_out of {kind}")
        assert_encoded(got, kept.astype(np.float32) if is_rounded else y, spec, x.shape, kind)


@pytest.mark.parametrize("spec", [NVFP4.with_layout("128x4"), FP8_TOKEN], ids=str)
def test_a_norm_that_is_rounded_has_the_codes_of_two_launches(spec: QuantSpec) -> None:
    x, (gamma, beta) = make_input("nan", 10, 96, "bfloat16").reshape(2, 5, 96), parameters(96)
    for batched in (False, True):
        found = layernorm_quantize(x, gamma, beta, spec=spec, rounding="output", batched=batched)
        assert_same_encoding(found, quantize(layernorm(x, gamma, beta), spec=spec, batched=batched), str(batched))


def test_a_scale_that_is_found_is_that_of_the_rounded_norm() -> None:
    x, (gamma, beta) = make_input("real", 6, 96, "float16"), parameters(96)
    found = layernorm_quantize(x, gamma, beta, spec=FP8_TENSOR, scale="tensor", rounding="output")
    assert_same_bytes(found.amax, compute_amax(layernorm(x, gamma, beta)))


@pytest.mark.parametrize("framework", CPU_FRAMEWORKS)
def test_every_framework_gets_the_same_bytes(framework: str) -> None:
    make, x, (gamma, beta) = CPU_FRAMEWORKS[framework], make_input("real", 6, 96, "bfloat16"), parameters(96)
    found = layernorm_quantize(make(x), make(gamma), make(beta), spec=MXFP8, eps=1e-5)
    expected = layernorm_quantize(x, gamma, beta, spec=MXFP8, eps=1e-5)
    assert_same_bytes(found.data, expected.data, framework)
    assert_same_bytes(found.scale, expected.scale, framework)


def test_only_its_result_is_rounded() -> None:
    x, (gamma, beta) = np.ones((2, 64), np.float16), parameters(64)
    with pytest.raises(ValueError, match=r"^rounding: is 'hf'; allowed are 'once', 'output'"):
        layernorm_quantize(x, gamma, beta, spec=MXFP8, rounding="hf")


ON_HOST = (
    "layernorm:hidden_size=1000,vector_bytes=8,quant=e4m3/row/f32,rounding=output",
    "layernorm:hidden_size=4096,quant=e2m1/16/e4m3/128x4,rounding=output",
    "layernorm:hidden_size=8192,many_rows=true,input=float16,quant=e4m3/32/ue8m0,keep_norm=true,rounding=output",
)


@pytest.mark.parametrize("text", ON_HOST)
def test_cuda_writes_what_the_cpu_writes(text: str) -> None:
    for kind in ("random", "nan"):
        assert_same(KernelConfig.parse(text), Target("sm_90a"), 5, kind, is_cuda=True)


@pytest.mark.gpu
@pytest.mark.parametrize("size", [512, 7168, 65536])
@pytest.mark.parametrize("rounding", ["once", "output"])
@pytest.mark.parametrize("spec", [FP8_TENSOR, NVFP4, NVFP4.with_global_scale("row"), MXFP8, FP8_TOKEN], ids=str)
def test_a_gpu_encodes_what_the_cpu_encodes(spec: QuantSpec, rounding: str, size: int) -> None:
    gamma, beta = map(to_torch, parameters(size))
    for kind in ("random", "nan", "huge", "spiky"):
        x, runs = to_torch(make_input(kind, 33, size, "bfloat16")), []
        for device in ("cpu", "cuda"):
            keywords = given_keywords(spec, lambda array, at=device: to_torch(array, at))
            tensors = (each.to(device) for each in (x, gamma, beta))
            runs.append(layernorm_quantize(*tensors, rounding=rounding, **keywords))
        assert_same_encoding(runs[1], runs[0], kind)
