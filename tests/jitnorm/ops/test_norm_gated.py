"""Norms with gates: the reference's, rounded to the input's dtype or encoded, and by groups within a row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
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
from jitnorm.kernels.quant_spec import FP8_TENSOR, FP8_TOKEN, MXFP8, NVFP4, QuantSpec
from jitnorm.kernels.target import Target
from numpy.typing import NDArray

import jitnorm
from jitnorm.reference import gated_rmsnorm_f32, rmsnorm_f32, round_to, sigmoid_f32

ACTIVATIONS = ("silu", "sigmoid", "gelu", "gelu_tanh", "relu2")
ROUNDINGS: Any = ("once", "output", "hf", "vllm")
BOTH = (True, False)


@pytest.mark.parametrize(
    ("size", "dtype", "activation", "before", "rounding"),
    in_turn((1, 17, 128, 513, 1000), list(ALL_DTYPES), ACTIVATIONS, BOTH, ("once", "once", "hf")),
)
def test_it_is_the_reference_s(size: int, dtype: str, activation: str, before: bool, rounding: Any) -> None:
    weight = make_weight(size, "float32" if size == 17 else dtype)
    for kind in INPUT_KINDS:
        x, gate = make_input(kind, 5, size, dtype), make_input(kind, 5, size, dtype, 7)
        options: dict[str, Any] = {"norm_before_gate": before, "rounding": rounding}
        expected = round_to(gated_rmsnorm_f32(x, gate, weight, activation, eps=1e-5, **options), x.dtype)
        got = jitnorm.rmsnorm_gated(x, gate, weight, 1e-5, activation=activation, **options)
        assert_same_bytes(got, expected, kind)


def test_every_bfloat16_has_the_reference_s_sigmoid() -> None:
    gate = np.arange(1 << 16, dtype=np.uint16).view(ml_dtypes.bfloat16).reshape(512, 128)
    x, weight = np.ones((512, 128), ml_dtypes.bfloat16), np.ones(128, np.float32)
    got = jitnorm.rmsnorm_gated(x, gate, weight, 0.0, activation="sigmoid")
    assert_same_bytes(got, round_to(sigmoid_f32(gate), x.dtype))
    inside = gate[np.abs(gate.astype(np.float32)) <= 86.5]
    np.testing.assert_allclose(sigmoid_f32(inside), 1 / (1 + np.exp(-inside.astype(np.float64))), rtol=4e-7)


@pytest.mark.parametrize("before", BOTH)
def test_it_is_torch_s_within_a_rounding(before: bool) -> None:
    x, gate, weight = (to_torch(make_input("random", 16, 640, "float32", seed)) for seed in (0, 1, 2))
    silu = torch.nn.functional.silu(gate.double())
    h = x.double() if before else x.double() * silu
    y = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6) * weight[0].double()
    got = jitnorm.rmsnorm_gated(x, gate, weight[0], norm_before_gate=before)
    torch.testing.assert_close(got.double(), y * silu if before else y, rtol=2e-6, atol=1e-12)


def test_hf_is_the_rounded_norm_times_the_unrounded_activation() -> None:
    """Transformers' ``Qwen3NextRMSNormGated`` computes this from its norm."""
    x, gate = (make_input("random", 8, 128, "bfloat16", seed) for seed in (0, 5))
    weight = make_weight(128, "bfloat16")
    norm = jitnorm.rmsnorm(x, weight, rounding="hf").astype(np.float32)
    silu = jitnorm.silu(gate.astype(np.float32))
    assert_same_bytes(jitnorm.rmsnorm_gated(x, gate, weight, rounding="hf"), round_to(norm * silu, x.dtype))


# ---- Groups


@pytest.mark.parametrize("before", BOTH)
def test_groups_are_normalized_by_themselves(before: bool) -> None:
    x, gate = (make_input("random", 6, 96, "float16", seed) for seed in (0, 5))
    weight, bias = make_weight(96, "float32"), make_weight(96, "float32", 2)
    got = jitnorm.rmsnorm_gated(x, gate, weight, bias=bias, norm_before_gate=before, group_size=24)
    for at in range(0, 96, 24):
        part = slice(at, at + 24)
        alone = [np.ascontiguousarray(each[:, part]) for each in (x, gate)]
        expected = jitnorm.rmsnorm_gated(*alone, weight[part], bias=bias[part], norm_before_gate=before)
        assert_same_bytes(np.ascontiguousarray(got[:, part]), expected, str(at))


def test_gates_and_groups_may_lie_at_any_stride_and_be_written_in_place() -> None:
    packed, weight = make_input("random", 7, 400, "bfloat16"), make_weight(96, "bfloat16")
    x, gate = packed[:, 8:104], packed[:, 200:296]
    expected = round_to(
        gated_rmsnorm_f32(x.copy(), gate.copy(), weight, norm_before_gate=False, group_size=32), x.dtype
    )
    assert_same_bytes(jitnorm.rmsnorm_gated(x, gate, weight, norm_before_gate=False, group_size=32), expected)
    assert jitnorm.rmsnorm_gated(x, gate, weight, out=x, norm_before_gate=False, group_size=32) is x
    assert_same_bytes(x.copy(), expected)


@pytest.mark.parametrize("framework", CPU_FRAMEWORKS)
def test_every_framework_gets_the_same_bytes(framework: str) -> None:
    make = CPU_FRAMEWORKS[framework]
    x, gate = (make_input("random", 6, 96, "bfloat16", seed).reshape(2, 3, 96) for seed in (0, 5))
    weight = make_weight(96, "bfloat16")
    for group_size in (None, 32):
        got = jitnorm.rmsnorm_gated(make(x), make(gate), make(weight), group_size=group_size)
        assert_same_bytes(got, jitnorm.rmsnorm_gated(x, gate, weight, group_size=group_size), framework)


@pytest.mark.parametrize("group_size", [None, 24])
def test_no_weight_is_one_of_ones(group_size: int | None) -> None:
    x, gate = (make_input("random", 6, 96, "float16", seed) for seed in (0, 5))
    got, expected = (
        jitnorm.rmsnorm_gated(x, gate, weight, group_size=group_size) for weight in (None, np.ones(96, np.float16))
    )
    assert_same_bytes(got, expected)
    options = {"spec": MXFP8, "norm_before_gate": False}
    assert_same_encoding(
        jitnorm.rmsnorm_gated_quantize(x, gate, None, **options),
        jitnorm.rmsnorm_gated_quantize(x, gate, np.ones(96, np.float16), **options),
        "MXFP8",
    )


# ---- Encoded


@pytest.mark.parametrize(
    ("spec", "activation", "before", "rounding"), in_turn(KINDS[4::9], ACTIVATIONS, BOTH, ROUNDINGS), ids=str
)
def test_it_is_encoded(spec: QuantSpec, activation: str, before: bool, rounding: Any) -> None:
    dtype, size = dtype_of(spec), hidden_size_of(spec)
    weight = make_weight(size, dtype)
    options: dict[str, Any] = {"activation": activation, "norm_before_gate": before, "rounding": rounding}
    for kind in INPUT_KINDS:
        x, gate = make_input(kind, 5, size, dtype), make_input("random", 5, size, dtype, 7)
        got = jitnorm.rmsnorm_gated_quantize(x, gate, weight, **options, **given_keywords(spec))
        assert_encoded(got, gated_rmsnorm_f32(x, gate, weight, **options), spec, (5, size), f"{kind}, {activation}")


@pytest.mark.parametrize("spec", [FP8_TENSOR, NVFP4.with_global_scale("given"), MXFP8], ids=str)
def test_groups_are_encoded_as_a_row(spec: QuantSpec) -> None:
    x, gate = (make_input("random", 6, 192, "bfloat16", seed) for seed in (0, 5))
    weight = make_weight(192, "bfloat16")
    options: dict[str, Any] = {"norm_before_gate": False, "group_size": 64}
    got = jitnorm.rmsnorm_gated_quantize(x, gate, weight, **options, **given_keywords(spec))
    assert_encoded(got, gated_rmsnorm_f32(x, gate, weight, **options), spec, (6, 192), str(spec))
    out = np.empty_like(got.data)
    again = jitnorm.rmsnorm_gated_quantize(x, gate, weight, out=out, **options, **given_keywords(spec))
    assert again.data is out
    assert_same_bytes(out, got.data)


def test_output_fused_is_unfused() -> None:
    x, gate = (make_input("real", 5, 96, "bfloat16", seed) for seed in (0, 5))
    weight = make_weight(96, "bfloat16")
    fused = jitnorm.rmsnorm_gated_quantize(x, gate, weight, spec=MXFP8, rounding="output")
    assert_same_encoding(fused, jitnorm.quantize(jitnorm.rmsnorm_gated(x, gate, weight), spec=MXFP8), "MXFP8")


def test_no_rows_give_no_rows() -> None:
    x, weight = np.ones((0, 64), np.float16), np.ones(64, np.float16)
    assert jitnorm.rmsnorm_gated(x, x, weight, group_size=16).shape == (0, 64)
    assert jitnorm.rmsnorm_gated_quantize(x, x, weight, spec=MXFP8).data.shape == (0, 64)


def gated(x: NDArray[Any], weight: NDArray[Any], **options: Any) -> Any:
    return jitnorm.rmsnorm_gated(x, x, weight, **options)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x, w: gated(x, w, activation="swigluoai"), "activation: is 'swigluoai'; allowed are .* 'sigmoid'"),
        (
            lambda x, w: gated(x, w, group_size=48),
            "group_size: is 48; expected None or an int that divides 64, the hidden size",
        ),
        (lambda x, w: gated(x, w, group_size=0), "group_size: is 0; expected None or an int"),
        (lambda x, w: jitnorm.rmsnorm_gated(x, x[:, :32], w), r"gate: shape is \(2, 32\)"),
        (lambda x, w: jitnorm.rmsnorm_gated(x, x[:, :31], w, group_size=32), r"gate: shape is \(2, 31\)"),
        (lambda x, w: gated(x, w[:16], group_size=16), r"weight: shape is \(16,\), expected \(64,\)"),
        (
            lambda x, w: jitnorm.rmsnorm_gated_quantize(x, x, w, spec=FP8_TOKEN, group_size=16),
            "group_size: is 16, which needs scales of the tensor, or of blocks in the linear layout",
        ),
        (lambda x, w: KernelConfig("rmsnorm", 64, gate="both"), "gate: is 'both'; allowed are '', 'input', 'norm'"),
        (lambda x, w: KernelConfig("rmsnorm", 64, gate="norm", residual=True), "op: can have only one of residual"),
        (lambda x, w: KernelConfig("rmsnorm", 64, weight_rows=0), "weight_rows: is 0; expected a positive int"),
        (
            lambda x, w: KernelConfig("rmsnorm", 64, weight_rows=2, batched=True),
            "weight_rows: is 2, which needs a weight and",
        ),
    ],
)
def test_others_are_refused(call: Callable[[NDArray[Any], NDArray[Any]], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(np.ones((2, 64), np.float16), np.ones(64, np.float16))


# ---- CUDA C++

ON_HOST = (
    "rmsnorm:hidden_size=513,vector_bytes=2,gate=norm,activation=sigmoid,rounding=hf",
    "rmsnorm:hidden_size=48,gate=input,weight_rows=3,bias=true",
    "rmsnorm:hidden_size=1024,gate=norm,weight_rows=2,quant=e4m3/row/f32",
)


@pytest.mark.parametrize("text", ON_HOST)
def test_cuda_writes_what_the_cpu_writes(text: str) -> None:
    for kind in ("random", "nan"):
        assert_same(KernelConfig.parse(text), Target("sm_90a"), 6, kind, is_cuda=True)


def on_both(op: Callable[..., Any], *tensors: torch.Tensor, **options: Any) -> list[Any]:
    return [op(*(each.to(device) for each in tensors), **options) for device in ("cpu", "cuda")]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ALL_DTYPES)
@pytest.mark.parametrize("size", [1, 17, 128, 513, 1152, 4096, 16384, 65536, 262144])
def test_a_gpu_gives_the_cpu_s_bytes(size: int, dtype: str) -> None:
    weight = to_torch(make_weight(size, dtype))
    cases = in_turn(INPUT_KINDS, ACTIVATIONS, BOTH, ("once", "once", "hf", "hf"), (5, 130))
    for kind, activation, before, rounding, rows in cases:
        x, gate = (to_torch(make_input(kind, rows if size < 5000 else 3, size, dtype, seed)) for seed in (0, 7))
        options = {"activation": activation, "norm_before_gate": before, "rounding": rounding}
        expected, got = on_both(jitnorm.rmsnorm_gated, x, gate, weight, **options)
        assert_same_bytes(got, expected, kind)


@pytest.mark.gpu
@pytest.mark.parametrize("group_size", [1, 24, 128, 512, 1280, 10240])
@pytest.mark.parametrize("before", BOTH)
def test_a_gpu_normalizes_groups_as_the_cpu_does(before: bool, group_size: int) -> None:
    size = 8 * group_size
    weight = to_torch(make_weight(size, "bfloat16"))
    for kind in INPUT_KINDS:
        packed = to_torch(make_input(kind, 33, 2 * size + 8, "bfloat16"))
        options = {"norm_before_gate": before, "group_size": group_size}
        expected, got = (
            jitnorm.rmsnorm_gated(each[:, :size], each[:, size + 8 :], weight.to(each.device), **options)
            for each in (packed, packed.cuda())
        )
        assert_same_bytes(got, expected, kind)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("spec", "activation", "before", "rounding"), in_turn(SPECS, ACTIVATIONS, BOTH, ROUNDINGS), ids=str
)
def test_a_gpu_encodes_it_as_the_cpu_does(spec: QuantSpec, activation: str, before: bool, rounding: str) -> None:
    dtype = dtype_of(spec)
    for size in hidden_sizes_of(spec):
        weight = to_torch(make_weight(size, dtype))
        for kind in INPUT_KINDS:
            x, gate = (to_torch(make_input(each, 130, size, dtype, 7)) for each in (kind, "random"))
            runs = [
                jitnorm.rmsnorm_gated_quantize(
                    x.to(device), gate.to(device), weight.to(device), activation=activation, norm_before_gate=before,
                    rounding=rounding, **given_keywords(spec, lambda array, to=device: to_torch(array, to)),
                )
                for device in ("cpu", "cuda")
            ]  # fmt: skip
            assert_same_encoding(runs[1], runs[0], kind)


@pytest.mark.gpu
def test_a_gpu_gives_heads_of_strided_gates_the_reference_s_bytes() -> None:
    x, gate = make_input("random", 60, 128, "bfloat16"), make_input("real", 60, 256, "bfloat16", 5)
    weight = make_weight(128, "bfloat16")
    got = jitnorm.rmsnorm_gated(to_torch(x, "cuda"), to_torch(gate, "cuda")[:, 128:], to_torch(weight, "cuda"))
    norm = rmsnorm_f32(x, weight)
    expected = round_to(norm * jitnorm.silu(gate[:, 128:].astype(np.float32)), x.dtype)
    assert_same_bytes(got, expected)
