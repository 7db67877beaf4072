"""The GPU's bytes are the CPU target's, for layer normalization, activations, gates and mixed streams."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from encoded import assert_same_encoding, given_keywords
from expected import assert_same_bytes
from frameworks import to_torch
from inputs import ALL_DTYPES, INPUT_KINDS, make_input, make_weight
from jitnorm.kernels.quant_spec import FP8_TOKEN, INT8_TOKEN, MXFP4, MXFP8, NVFP4, QuantSpec
from jitnorm.kernels.target import Target

import jitnorm

pytestmark = pytest.mark.gpu

ROW_NVFP4 = NVFP4.with_global_scale("row")
SPECS = [NVFP4.with_layout("128x4"), MXFP8, MXFP4, ROW_NVFP4, FP8_TOKEN, QuantSpec("e5m2", "tensor", "f32"), INT8_TOKEN]


def kinds(size: int) -> tuple[str, ...]:
    return INPUT_KINDS if size < 16384 else ("random", "nan", "huge")


@pytest.mark.parametrize("size", [1, 17, 513, 1536, 4096, 32768, 262144])
@pytest.mark.parametrize(("dtype", "of_parameters"), [(a, b) for a in ALL_DTYPES for b in sorted({a, "float32"})])
def test_layernorm(dtype: str, of_parameters: str, size: int) -> None:
    gamma, beta = (to_torch(make_weight(size, of_parameters, seed)) for seed in (1, 2))
    for kind in kinds(size):
        x = to_torch(make_input(kind, 5, size, dtype))
        expected = jitnorm.layernorm_with_statistics(x, gamma, beta)
        given = x.cuda(), gamma.cuda(), beta.cuda()
        assert_same_bytes(jitnorm.layernorm(*given), expected[0], kind)
        for found, each in zip(jitnorm.layernorm_with_statistics(*given), expected, strict=True):
            assert_same_bytes(found, each, kind)


def assert_same_gated(
    size: int, dtype: str, spec: QuantSpec, granularity: int | None, activation: str = "silu"
) -> None:
    for kind in kinds(size):
        x = to_torch(make_input(kind, 5, 2 * size, dtype))
        runs = [
            jitnorm.silu_and_mul_quantize(
                x.to(device),
                granularity=granularity,
                activation=activation,
                **given_keywords(spec, lambda a, d=device: to_torch(a, d)),
            )
            for device in ("cpu", "cuda")
        ]
        assert_same_encoding(runs[1], runs[0], kind)


@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.parametrize("size", [96, 4096, 65536])
def test_swiglu_of_halves(size: int, spec: QuantSpec) -> None:
    assert_same_gated(size, list(ALL_DTYPES)[size // 32 % 3], spec, None)


@pytest.mark.parametrize("granularity", [1, 2, 8, 16, 24, 48])
def test_swiglu_of_columns_that_take_turns(granularity: int) -> None:
    assert_same_gated(96, "bfloat16", NVFP4, granularity)


@pytest.mark.parametrize("size", [15, 33])
def test_swiglu_of_halves_of_any_length(size: int) -> None:
    assert_same_gated(size, "float16", FP8_TOKEN, None)


@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.parametrize(("activation", "granularity"), [("gelu", None), ("gelu_tanh", None), ("swigluoai", 1)])
def test_other_gates(activation: str, granularity: int | None, spec: QuantSpec) -> None:
    for size in (96, 4096):
        assert_same_gated(size, list(ALL_DTYPES)[size // 32 % 3], spec, granularity, activation)


GATES = ("silu_and_mul", "gelu_and_mul", "gelu_tanh_and_mul", "swigluoai_and_mul")
VALUES = ("silu", "gelu", "gelu_tanh", "relu2", "gelu_quick")
# With numbers of the caller's, and what stands behind them.
NUMBERS = ("swiglu:7:1:0", "swiglu:2.5:1.3:-0.25", "fatrelu:0.5", "swish:0.3")


@pytest.mark.parametrize("activation", NUMBERS)
def test_gates_with_numbers(activation: str) -> None:
    for number, (size, granularity) in enumerate(((96, None), (4096, 8), (65536, None))):
        assert_same_gated(size, list(ALL_DTYPES)[number], (MXFP8, FP8_TOKEN, MXFP8)[number], granularity, activation)
    x = to_torch(make_input("random", 5, 2 * 1152, "bfloat16"))
    runs = [jitnorm.silu_and_mul_quantize(x.to(at), spec=MXFP8, values_first=True) for at in ("cpu", "cuda")]
    assert_same_bytes(runs[1].data, runs[0].data)


def test_clamped_gates_that_are_rounded() -> None:
    for dtype in ALL_DTYPES:
        x = to_torch(make_input("random", 5, 2 * 1000, dtype))
        for call in (
            lambda x: jitnorm.silu_and_mul_with_clamp(x, 1.5, rounding="hf"),
            lambda x: jitnorm.swigluoai_and_mul(x, alpha=1.1, limit=3.0),
            lambda x: jitnorm.fatrelu_and_mul(x, 0.3),
            lambda x: jitnorm.mul_and_silu(x, rounding="hf"),
        ):
            assert_same_bytes(call(x.cuda()), call(x), dtype)


@pytest.mark.parametrize("size", [1, 33, 1152, 4096, 65536])
@pytest.mark.parametrize("dtype", ALL_DTYPES)
@pytest.mark.parametrize("name", [*GATES, *VALUES])
def test_activations_that_are_rounded(name: str, dtype: str, size: int) -> None:
    op: Any = getattr(jitnorm, name)
    for kind in kinds(size):
        x = to_torch(make_input(kind, 5, 2 * size if name in GATES else size, dtype))
        assert_same_bytes(op(x.cuda()), op(x), kind)


@pytest.mark.parametrize("name", VALUES)
def test_every_bfloat16_and_a_part_of_all_float32(name: str) -> None:
    op: Any = getattr(jitnorm, name)
    narrow = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(torch.bfloat16).reshape(16, 4096)
    wide = (
        torch.arange(-(1 << 31), 1 << 31, 1021).to(torch.int32)[: 1024 * 4096].view(torch.float32).reshape(1024, 4096)
    )
    for x in (narrow, wide):
        assert_same_bytes(op(x.cuda()), op(x))


@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.parametrize("activation", [*VALUES[:-1], "swish:1.702", "fatrelu:-1"])
def test_quantized_activations(activation: str, spec: QuantSpec) -> None:
    for size in (96, 4096):
        for kind in kinds(size):
            x = to_torch(make_input(kind, 5, size, list(ALL_DTYPES)[size // 32 % 3]))
            runs = [
                jitnorm.quantize(
                    x.to(device), activation=activation, **given_keywords(spec, lambda a, d=device: to_torch(a, d))
                )
                for device in ("cpu", "cuda")
            ]
            assert_same_encoding(runs[1], runs[0], kind)


@pytest.mark.parametrize("name", VALUES)
def test_activations_in_place(name: str) -> None:
    op: Any = getattr(jitnorm, name)
    x = to_torch(make_input("random", 7, 8192, "bfloat16"))
    expected, on_gpu = op(x), x.cuda()
    op(on_gpu, on_gpu)
    assert_same_bytes(on_gpu, expected)


@pytest.mark.parametrize("streams", [1, 2, 3, 4])
@pytest.mark.parametrize("size", [112, 7168, 65536])
def test_mixed_streams(size: int, streams: int) -> None:
    dtype = list(ALL_DTYPES)[streams % 3]
    weight = to_torch(make_weight(size, "float32"))
    factors = to_torch(make_input("random", 5, streams, "float32", 3))
    for kind in kinds(size):
        x = to_torch(make_input(kind, 5 * streams, size, dtype)).reshape(5, streams, size)
        runs: list[Any] = [
            jitnorm.mhc_rmsnorm_quantize(*(tensor.to(device) for tensor in (x, factors, weight)))
            for device in ("cpu", "cuda")
        ]
        for got, wanted in zip(runs[1], runs[0], strict=True):
            assert_same_bytes(got, wanted, kind)


@pytest.mark.parametrize("size", [2560, 4096, 5120, 7168, 8192])
@pytest.mark.parametrize("quant", ["none", "e2m1/16/e4m3/128x4", "e4m3/row/f32"])
@pytest.mark.parametrize("op", ["rmsnorm", "layernorm"])
def test_the_kernels_for_many_rows(op: str, quant: str, size: int) -> None:
    """Calls large enough to use them would take the CPU too long, so they get few rows here, an odd number."""
    gamma, beta = (to_torch(make_weight(size, "float32", seed)) for seed in (1, 2))
    parameters = (gamma, beta) if op == "layernorm" else (gamma,)
    config = f"{op}:hidden_size={size},weight=float32,residual=true,quant={quant}"
    for kind in ("random", "nan", "spiky"):
        runs = []
        for device, many in (("cpu", "false"), ("cuda", "true")):
            target = "cpu" if device == "cpu" else Target.of_capability(*torch.cuda.get_device_capability())
            x, residual = (to_torch(make_input(kind, 5, size, "bfloat16", seed)).to(device) for seed in (0, 3))
            outputs = [*outputs_of(quant, size, device), residual]
            kernel = jitnorm.get_kernel(f"{config},many_rows={many}", target)
            kernel(x, residual, *(p.to(device) for p in parameters), *outputs, 1e-6)
            runs.append(outputs)
        for got, wanted in zip(runs[1], runs[0], strict=True):
            assert_same_bytes(got, wanted, kind)


def outputs_of(quant: str, size: int, device: str) -> list[torch.Tensor]:
    """The outputs of five encoded rows."""
    if quant == "none":
        return [torch.empty(5, size, dtype=torch.bfloat16, device=device)]
    if quant.startswith("e4m3"):
        codes = torch.empty(5, size, dtype=torch.float8_e4m3fn, device=device)
        return [codes, torch.empty(5, dtype=torch.float32, device=device)]
    codes = torch.empty(5, size // 2, dtype=torch.uint8, device=device)
    return [codes, torch.empty(128 * -(-size // 64) * 4, dtype=torch.uint8, device=device)]
