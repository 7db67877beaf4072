"""The roundings of norms: "output" is the norm and then its encoding, "hf" is Transformers' norm, both bit for bit."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from cute_on_host import assert_same
from encoded import BLOCKINGS, SPECS, assert_encoded, assert_same_encoding, dtype_of, given_keywords, hidden_size_of
from expected import assert_same_bytes
from frameworks import CPU_FRAMEWORKS, to_torch
from hypothesis import given, settings
from hypothesis import strategies as st
from inputs import ALL_DTYPES, DTYPES, INPUT_KINDS, in_turn, make_input, make_weight
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.generator import generate
from jitnorm.kernels.quant_spec import FP8_TOKEN, MXFP8, NVFP4, QuantSpec
from jitnorm.kernels.target import Target

import jitnorm
from jitnorm.reference import inv_rms_f32, mhc_mix_f32, quantize_nvfp4_row, rmsnorm_f32, round_to, stored_residual

EARLY = ["output", "hf"]
HOPPER = Target("sm_90a")


def half_of(spec: QuantSpec) -> str:
    """The 16-bit dtype in which an encoding is tested: rounding to float32 would change nothing."""
    return "bfloat16" if dtype_of(spec) == "float32" else dtype_of(spec)


# ---- The norm alone


def llama(x: torch.Tensor, weight: torch.Tensor, rstd: torch.Tensor) -> torch.Tensor:
    """The result of ``LlamaRMSNorm`` with the given reciprocal root mean squares."""
    hidden_states = x.to(torch.float32)
    hidden_states = hidden_states * rstd
    return weight * hidden_states.to(x.dtype)


def rstd_of_torch(x: torch.Tensor, eps: float) -> torch.Tensor:
    variance = x.to(torch.float32).pow(2).mean(-1, keepdim=True)
    return torch.rsqrt(variance + eps)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [17, 513, 4096])
def test_hf_is_transformers_norm_bit_for_bit_given_its_statistic(size: int, dtype: str) -> None:
    weight = make_weight(size, dtype)
    for kind in ("random", "real", "tiny"):
        x = make_input(kind, 16, size, dtype)
        rstd = torch.from_numpy(inv_rms_f32(x, 1e-5))[:, None]
        expected = llama(to_torch(x), to_torch(weight), rstd)
        assert_same_bytes(jitnorm.rmsnorm(x, weight, 1e-5, rounding="hf"), expected, kind)


def test_its_own_statistic_hardly_ever_differs_from_torch_s() -> None:
    """The mean is rounded in another order; an ulp of rstd in float32 is rarely visible in bfloat16."""
    x, weight = (to_torch(make_input("random", 64, 4096, "bfloat16", seed=seed)) for seed in (1, 2))
    expected = llama(x, weight[0], rstd_of_torch(x, 1e-5))

    def share(rounding: str) -> float:
        return float((jitnorm.rmsnorm(x, weight[0], 1e-5, rounding=rounding) != expected).float().mean())

    assert share("hf") < 0.001
    assert share("once") > 0.2


@pytest.mark.parametrize(("size", "dtype"), in_turn((1, 17, 513, 4096), list(ALL_DTYPES)))
def test_norms_give_the_reference_s_bytes(size: int, dtype: str) -> None:
    for kind, weight_dtype in in_turn(INPUT_KINDS, ["float32", dtype]):
        x, weight = make_input(kind, 5, size, dtype), make_weight(size, weight_dtype)
        expected = round_to(rmsnorm_f32(x, weight, rounding="hf"), x.dtype)
        assert_same_bytes(jitnorm.rmsnorm(x, weight, rounding="hf"), expected, kind)


@pytest.mark.parametrize("unit_bias", [False, True])
def test_hf_normalizes_the_sum_as_it_is_stored(unit_bias: bool) -> None:
    add = jitnorm.gemma_add_rmsnorm if unit_bias else jitnorm.add_rmsnorm
    norm = jitnorm.gemma_rmsnorm if unit_bias else jitnorm.rmsnorm
    x, residual = (make_input("random", 8, 513, "bfloat16", seed) for seed in (0, 3))
    weight = make_weight(513, "bfloat16")
    y, total = add(x, residual, weight, rounding="hf")
    assert_same_bytes(total, stored_residual(x, residual))
    assert_same_bytes(y, norm(total, weight, rounding="hf"))
    in_place = jitnorm.gemma_fused_add_rmsnorm if unit_bias else jitnorm.fused_add_rmsnorm
    in_place(x, residual, weight, rounding="hf")
    assert_same_bytes(x, y)
    assert_same_bytes(residual, total)


@pytest.mark.parametrize("dtype", DTYPES)
def test_vllm_normalizes_the_unrounded_sum(dtype: str) -> None:
    x, residual = (make_input("random", 8, 513, dtype, seed) for seed in (0, 3))
    weight = make_weight(513, dtype)
    y, total = jitnorm.add_rmsnorm(x, residual, weight, rounding="vllm")
    assert_same_bytes(total, stored_residual(x, residual))
    assert_same_bytes(y, round_to(rmsnorm_f32(x, weight, residual=residual, rounding="vllm"), x.dtype))
    assert y.tobytes() != jitnorm.add_rmsnorm(x, residual, weight, rounding="hf")[0].tobytes()


def test_a_bias_is_added_to_the_rounded_product() -> None:
    x, weight, bias = make_input("random", 8, 96, "float16"), make_weight(96, "float16"), make_weight(96, "float16", 2)
    product = jitnorm.rmsnorm(x, weight, rounding="hf")
    assert_same_bytes(jitnorm.rmsnorm_bias(x, weight, bias, rounding="hf"), product + bias)


def test_heads_are_rows() -> None:
    q, k = make_input("random", 8, 128, "bfloat16"), make_input("real", 4, 128, "bfloat16")
    weight = make_weight(128, "bfloat16")
    found = jitnorm.qk_rmsnorm(q, k, weight, 2 * weight, rounding="hf")
    for got, x, w in zip(found, (q, k), (weight, 2 * weight), strict=True):
        assert_same_bytes(got, jitnorm.rmsnorm(x, w, rounding="hf"))


# ---- Norms that are encoded


@settings(max_examples=8, deadline=None)
@given(st.data())
@pytest.mark.parametrize("number", range(0, len(BLOCKINGS), 2), ids=lambda number: str(BLOCKINGS[number]))
def test_output_fused_is_unfused_bit_for_bit(number: int, data: st.DataObject) -> None:
    """The norm, then its encoding, with and without a residual, also with the norm kept."""
    spec, adds, unit_bias = BLOCKINGS[number], number // 2 % 2 == 1, number % 3 == 1
    dtype, size = half_of(spec), hidden_size_of(spec)
    kind, rows = data.draw(st.sampled_from(INPUT_KINDS)), data.draw(st.integers(0, 20))
    x, weight = make_input(kind, rows, size, dtype, data.draw(st.integers(0, 99))), make_weight(size, dtype)
    residual = make_input("random", rows, size, dtype, seed=3) if adds else None
    keywords = given_keywords(spec)
    y = np.empty_like(x)
    fused = jitnorm.norm_quantize(
        x, weight, residual=None if residual is None else residual.copy(), unit_bias=unit_bias, y_out=y,
        rounding="output", **keywords,
    )  # fmt: skip
    if residual is None:
        alone = (jitnorm.gemma_rmsnorm if unit_bias else jitnorm.rmsnorm)(x, weight)
    else:
        alone, _ = (jitnorm.gemma_add_rmsnorm if unit_bias else jitnorm.add_rmsnorm)(x, residual, weight)
    assert_same_bytes(y, alone)
    assert_same_encoding(fused, jitnorm.quantize(alone, **keywords), kind)
    expected = rmsnorm_f32(x, weight, residual=residual, weight_bias=float(unit_bias), rounding="output")
    assert_encoded(fused, expected, spec, x.shape, kind)


@pytest.mark.parametrize("number", range(0, len(BLOCKINGS), 3), ids=lambda number: str(BLOCKINGS[number]))
def test_what_is_rounded_by_steps_and_encoded_has_the_reference_s_bytes(number: int) -> None:
    """All kinds of encodings, which follow the rounding; the other options take turns."""
    spec, adds, unit_bias, has_bias = BLOCKINGS[number], number % 2 == 1, number // 3 % 4 == 3, number // 3 % 3 == 2
    dtype, size = half_of(spec), hidden_size_of(spec)
    weight = make_weight(size, "float32" if number % 5 == 0 else dtype)
    bias = weight[::-1].copy() if has_bias else None
    for kind, rounding in product(INPUT_KINDS, ("hf", "vllm") if adds else ("hf",)):
        x = make_input(kind, 7, size, dtype)
        residual = make_input("random", 7, size, dtype, seed=3) if adds else None
        got = jitnorm.norm_quantize(
            x, weight, bias=bias, residual=None if residual is None else residual.copy(), unit_bias=unit_bias,
            rounding=rounding, **given_keywords(spec),
        )  # fmt: skip
        y = rmsnorm_f32(x, weight, residual=residual, weight_bias=float(unit_bias), bias=bias, rounding=rounding)
        assert_encoded(got, y, spec, x.shape, kind)


def test_mixed_streams() -> None:
    x, factors = make_input("random", 8, 192, "bfloat16").reshape(4, 2, 192), make_input("random", 4, 2, "float32", 3)
    weight = make_weight(192, "float32")
    got = jitnorm.mhc_rmsnorm_quantize(x, factors, weight, rounding="hf")
    h = mhc_mix_f32(x, factors)
    wanted = quantize_nvfp4_row(rmsnorm_f32(h, weight, rounding="hf", dtype=x.dtype))
    for found, expected in zip(got, (*wanted, inv_rms_f32(h)), strict=True):
        assert_same_bytes(found, expected)


NAMED: dict[str, Any] = {
    "rmsnorm_fp4quant": {},
    "rmsnorm_mxfp8quant": {},
    "rmsnorm_quantize": {},
    "rms_norm_dynamic_per_token_quant": {"epsilon": 1e-6, "quant_dtype": "float8_e4m3fn"},
    "rms_norm_per_block_quant": {"epsilon": 1e-6, "quant_dtype": "float8_e4m3fn", "group_size": [1, 128]},
}


@pytest.mark.parametrize("name", NAMED)
def test_named_ops_take_it(name: str) -> None:
    """With a weight of ones, "output" and "hf" are the norm and its encoding, and "once" is not."""
    function, x = getattr(jitnorm, name), make_input("random", 16, 256, "bfloat16")
    weight = np.ones(256, x.dtype)
    once, output, hf = ([*function(x, weight, **NAMED[name], rounding=each)] for each in ("once", *EARLY))
    for a, b in zip(output, hf, strict=True):
        assert_same_bytes(a, b)
    assert any(a.tobytes() != b.tobytes() for a, b in zip(once, output, strict=True))


@pytest.mark.parametrize("framework", CPU_FRAMEWORKS)
def test_every_framework_gets_the_same_bytes(framework: str) -> None:
    make, x, weight = CPU_FRAMEWORKS[framework], make_input("real", 6, 96, "bfloat16"), make_weight(96, "bfloat16")
    got = jitnorm.rmsnorm(make(x), make(weight), 1e-5, rounding="hf")
    assert_same_bytes(got, jitnorm.rmsnorm(x, weight, 1e-5, rounding="hf"), framework)


def test_torch_compile_keeps_it() -> None:
    x, weight = (to_torch(make_input("random", 4, 96, "bfloat16", seed)) for seed in (0, 1))

    @torch.compile(backend="aot_eager", fullgraph=True)
    def compiled(x: torch.Tensor, weight: torch.Tensor) -> Any:
        return jitnorm.rmsnorm(x, weight, rounding="hf")

    assert_same_bytes(compiled(x, weight[0]), jitnorm.rmsnorm(x, weight[0], rounding="hf"))


# ---- What is the same


@pytest.mark.parametrize(
    ("text", "rounding"),
    [
        ("hidden_size=64,rounding=output", "once"),
        ("hidden_size=64,residual=true,rounding=output", "once"),
        ("hidden_size=64,unit_bias=true,rounding=hf", "once"),
        ("hidden_size=64,unit_bias=true,rounding=hf,quant=e2m1/16/e4m3", "output"),
        ("hidden_size=64,unit_bias=true,residual=true,rounding=hf", "hf"),
        ("hidden_size=64,input=float32,rounding=hf,quant=e2m1/16/e4m3", "once"),
        ("hidden_size=64,amax_parts=256,rounding=output", "output"),
        ("hidden_size=64,pair=true,rounding=hf", "hf"),
        ("hidden_size=64,residual=true,rounding=vllm", "vllm"),
        ("hidden_size=64,rounding=vllm", "hf"),
        ("hidden_size=64,unit_bias=true,residual=true,rounding=vllm", "once"),
    ],
)
def test_a_rounding_that_changes_no_bit_has_no_kernel_of_its_own(text: str, rounding: str) -> None:
    assert KernelConfig.parse(f"rmsnorm:{text}").rounding == rounding


@pytest.mark.parametrize("target", [Target("cpu"), HOPPER], ids=str)
def test_sources_that_round_once_have_no_trace_of_it(target: Target) -> None:
    text = "rmsnorm:hidden_size=4096,residual=true,quant=e2m1/16/e4m3"
    once, hf = (generate(KernelConfig.parse(f"{text},rounding={each}"), target).text for each in ("once", "hf"))
    for trace in (" Rounding kRounding", "rounded_step", "JITNORM_ROUNDS"):
        assert trace not in once
    assert "Rounding kRounding = Rounding::kEachStep" in hf
    assert "JITNORM_ROUNDS" not in hf


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda x, w: jitnorm.rmsnorm(x, w, rounding="late"),
            "rounding: is 'late'; allowed are 'once', 'output', 'hf'",
        ),
        (lambda x, w: jitnorm.norm_quantize(x, w, spec=MXFP8, rounding=""), "rounding: is ''; allowed are 'once'"),
    ],
)
def test_others_are_refused(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(np.ones((2, 64), np.float16), np.ones(64, np.float16))


def test_layer_normalization_rounds_its_result_alone() -> None:
    with pytest.raises(ValueError, match="rounding: is 'hf'; allowed are 'once', 'output'"):
        KernelConfig.parse("layernorm:hidden_size=64,quant=e2m1/16/e4m3,rounding=hf")


# ---- CUDA C++

ON_HOST = (
    "rmsnorm:rounding=hf,hidden_size=513,vector_bytes=2",
    "rmsnorm:rounding=hf,hidden_size=4096,input=float16,weight=float32",
    "rmsnorm:rounding=hf,hidden_size=8192,residual=true,many_rows=true",
    "rmsnorm:rounding=hf,hidden_size=2048,bias=true,residual=true,quant=e2m1/16/e4m3/linear/row",
    "rmsnorm:rounding=output,hidden_size=1000,unit_bias=true,vector_bytes=8,quant=e4m3/row/f32",
    "rmsnorm:rounding=output,hidden_size=4096,residual=true,keep_norm=true,quant=e2m1/16/e4m3/128x4",
)


@pytest.mark.parametrize("target", [HOPPER, Target("sm_100a")], ids=str)
@pytest.mark.parametrize("text", ON_HOST)
def test_cuda_writes_what_the_cpu_writes(text: str, target: Target) -> None:
    for kind in ("random", "nan"):
        assert_same(KernelConfig.parse(text), target, 5, kind, is_cuda=True)


@pytest.mark.gpu
@pytest.mark.parametrize("rounding", EARLY)
@pytest.mark.parametrize(("number", "spec"), list(enumerate(SPECS)), ids=str)
def test_a_gpu_gives_the_reference_s_bytes(number: int, spec: QuantSpec, rounding: Any) -> None:
    dtype, size = half_of(spec), hidden_size_of(spec)
    adds, unit_bias, has_bias = number // 2 % 2 == 1, number % 4 == 3, number % 3 == 2
    weight = make_weight(size, dtype)
    bias = weight[::-1].copy() if has_bias else None
    for kind in INPUT_KINDS:
        x = make_input(kind, 130, size, dtype)
        residual = make_input("random", 130, size, dtype, seed=3) if adds else None
        q = jitnorm.norm_quantize(
            to_torch(x, "cuda"), to_torch(weight, "cuda"), bias=None if bias is None else to_torch(bias, "cuda"),
            residual=None if residual is None else to_torch(residual, "cuda"), unit_bias=unit_bias, rounding=rounding,
            **given_keywords(spec, lambda array: to_torch(array, "cuda")),
        )  # fmt: skip
        y = rmsnorm_f32(x, weight, residual=residual, weight_bias=float(unit_bias), bias=bias, rounding=rounding)
        assert_encoded(q, y, spec, x.shape, kind)


@pytest.mark.gpu
@pytest.mark.parametrize("adds", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1, 17, 513, 4096, 32768, 262144])
def test_a_gpu_rounds_each_step_as_the_cpu_does(size: int, dtype: str, adds: bool) -> None:
    weight = to_torch(make_weight(size, "float32" if size == 17 else dtype))
    for kind in INPUT_KINDS if size < 16384 else ("random", "nan", "huge"):
        for rows in (5, 700) if size < 16384 else (5,):
            x, residual = (to_torch(make_input(each, rows, size, dtype, 3)) for each in (kind, "random"))
            runs = []
            for device in ("cpu", "cuda"):
                arguments = [each.to(device) for each in ((x, residual, weight) if adds else (x, weight))]
                found: Any = (jitnorm.add_rmsnorm if adds else jitnorm.rmsnorm)(*arguments, rounding="hf")
                runs.append(found if adds else (found,))
            for got, wanted in zip(runs[1], runs[0], strict=True):
                assert_same_bytes(got, wanted, kind)


@pytest.mark.gpu
@pytest.mark.parametrize("size", [512, 7168, 65536])
@pytest.mark.parametrize("spec", [NVFP4, NVFP4.with_global_scale("row"), MXFP8, FP8_TOKEN], ids=str)
def test_on_a_gpu_output_fused_is_unfused(spec: QuantSpec, size: int) -> None:
    x, weight = (to_torch(make_input("random", 33, size, "bfloat16", seed), "cuda") for seed in (0, 1))
    fused = jitnorm.norm_quantize(x, weight[0], rounding="output", **given_keywords(spec))
    unfused = jitnorm.quantize(jitnorm.rmsnorm(x, weight[0]), **given_keywords(spec))
    assert_same_encoding(fused, unfused, str(spec))
