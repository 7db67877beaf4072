"""The PTX of CUDA C++ kernels that encode blocks, run on the host, writes the bytes of the CPU target."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from cute_on_host import as_narrow_as_allowed, assert_same, make_arrays, run_on_cpu, run_on_host
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.target import Target
from numpy.typing import NDArray

AMPERE, HOPPER, BLACKWELL, CONSUMER = (Target(name) for name in ("sm_80", "sm_90a", "sm_100a", "sm_120a"))
KERNELS = (
    "rmsnorm:hidden_size=256,quant=e2m1/16/e4m3",
    "rmsnorm:hidden_size=512,quant=e2m1/32/ue8m0",
    "rmsnorm:hidden_size=2048,quant=e2m1/16/e4m3/128x4/row",
    "rmsnorm:hidden_size=4096,residual=true,quant=e2m1/16/e4m3",
    "rmsnorm:hidden_size=8192,many_rows=true,quant=e2m1/16/e4m3",
    "quantize:hidden_size=512,quant=e2m1/16/e4m3/linear/none/up/true",
    "quantize:hidden_size=512,quant=e2m1/32/ue8m0/linear/none/floor",
    "quantize:hidden_size=512,input=float16,quant=e2m1/16/e4m3/linear/given",
    "quantize:hidden_size=512,input=float8_e4m3fn,quant=e2m1/16/e4m3/128x4/given",
    "quantize:hidden_size=96,input=float8_e4m3fn,quant=e2m1/16/e4m3/linear/given,inverse_global_scale=true,alignment=128",
    "quantize:hidden_size=4096,input=float8_e4m3fn,quant=e2m1/32/e4m3/linear+8x4/given",
    "quantize:hidden_size=8192,input=float8_e4m3fn,quant=e2m1/16/e4m3/linear/given,many_rows=true",
    "quantize:hidden_size=512,quant=e2m1/32/ue8m0/linear/none/even",
)


@pytest.mark.parametrize(
    ("text", "target"), [*product(KERNELS, (AMPERE, BLACKWELL)), *product(KERNELS[::3], (HOPPER,))]
)
def test_kernels_write_what_the_cpu_writes(text: str, target: Target) -> None:
    """The targets have none of the GPU's conversions, all of them, or only those of FP8."""
    for kind in ("spiky", "tiny", "inf", "nan"):  # every second row of the last two is random
        assert_same(KernelConfig.parse(text), target, 5, kind, is_cuda=True)


INT8 = (
    "rmsnorm:hidden_size=513,vector_bytes=1,quant=int8/row/f32,keep_norm=true",
    "rmsnorm:hidden_size=4096,residual=true,quant=int8/row/f32,scale_ub=true",
    "rmsnorm:hidden_size=1536,input=float16,quant=int8/tensor/f32,unit_bias=true",
    "layernorm:hidden_size=512,quant=int8/tensor/f32/linear/tensor",
    "quantize:hidden_size=256,input=float32,quant=int8/64/f32/column4",
    "quantize:hidden_size=384,gate_columns=8,quant=int8/128/f32",
    "quantize:hidden_size=512,input=float8_e4m3fn,quant=int8/row/f32",
)


@pytest.mark.parametrize(("text", "target"), [*product(INT8, (AMPERE,)), *product(INT8[::3], (HOPPER,))])
def test_codes_in_int8_are_those_of_the_cpu(text: str, target: Target) -> None:
    for kind in ("spiky", "tiny", "inf", "nan"):
        assert_same(KernelConfig.parse(text), target, 5, kind, is_cuda=True)


GROUPS = (
    "rmsnorm:hidden_size=512,quant=e4m3/16/f32/column4",
    "rmsnorm:hidden_size=768,residual=true,quant=e4m3/32/f32",
    "rmsnorm:hidden_size=256,quant=e4m3/256/f32",
    "rmsnorm:hidden_size=4864,quant=int8/256/f32/column,scale_ub=true",
    "quantize:hidden_size=1280,quant=e4m3/256/f32_ue8m0,input=float16",
    "quantize:hidden_size=48,quant=int8/16/f32,input=float32",
    "rmsnorm:hidden_size=512,quant=e4m3/128/f32_ue8m0/linear/none/up/false/0.003",
)


@pytest.mark.parametrize(("text", "target"), [*product(GROUPS, (AMPERE,)), *product(GROUPS[::2], (HOPPER,))])
def test_groups_of_every_size_are_those_of_the_cpu(text: str, target: Target) -> None:
    for kind in ("spiky", "tiny", "inf", "nan"):
        assert_same(KernelConfig.parse(text), target, 5, kind, is_cuda=True)


# Of three and six chunks, which cross warps: several rows a warp, one warp, several, which reload the row, a cluster.
CROSSING = (
    ("rmsnorm:hidden_size=96,quant=e4m3/48/f32/column4", AMPERE),
    ("quantize:hidden_size=1440,quant=int8/96/f32,input=float32", AMPERE),
    ("layernorm:hidden_size=9600,quant=e4m3/96/f32,many_rows=true", HOPPER),
    ("rmsnorm:hidden_size=4896,residual=true,quant=e4m3/48/f32_ue8m0/packed,scale_ub=true", HOPPER),
    ("quantize:hidden_size=72000,quant=e4m3/96/f32", AMPERE),
    ("quantize:hidden_size=72000,quant=int8/48/f32", HOPPER),
)


@pytest.mark.parametrize(("text", "target"), CROSSING)
def test_groups_across_warps_are_those_of_the_cpu(text: str, target: Target) -> None:
    for kind in ("spiky", "nan"):
        assert_same(KernelConfig.parse(text), target, 3, kind, is_cuda=True)


# Chunks of several accesses, some of whole groups of lanes that store them together, and rows that end within a chunk.
TOGETHER = (
    "rmsnorm:hidden_size=320,input=float32",
    "rmsnorm:hidden_size=80,input=float32,residual=true",
    "layernorm:hidden_size=1027,input=float32,vector_bytes=4",
    "rmsnorm:hidden_size=1536,vector_bytes=8,quant=e4m3/128/f32,keep_norm=true",
    "rmsnorm:hidden_size=1540,vector_bytes=8,residual=true",
    "quantize:hidden_size=530,vector_bytes=4,gate_columns=530",
    "layernorm:hidden_size=1024,vector_bytes=2,weight=bfloat16",
    "rmsnorm:hidden_size=1041,vector_bytes=2,weights=2",
    "dequantize:hidden_size=64,input=float32,quant=e4m3/row/f32",
    "dequantize:hidden_size=96,quant=e2m1/16/e4m3",
    "dequantize:hidden_size=48,input=float32,quant=e2m1/16/e4m3",
)


@pytest.mark.parametrize(("text", "target"), [*product(TOGETHER, (HOPPER,)), *product(TOGETHER[::3], (AMPERE,))])
def test_chunks_that_lanes_store_together_are_those_of_the_cpu(text: str, target: Target) -> None:
    for kind in ("spiky", "nan"):
        assert_same(KernelConfig.parse(text), target, 5, kind, is_cuda=True)


# Of whole chunks, of rows that end within one, in lanes of several rows, and of gates.
UNALIGNED = (
    "rmsnorm:hidden_size=1024,vector_bytes=2,residual=true",
    "rmsnorm:hidden_size=384,vector_bytes=2,residual=true,quant=e2m1/16/e4m3,schedule=1x1p4n24",
    "rmsnorm:hidden_size=1000,vector_bytes=4,weight=float32,quant=e4m3/row/f32",
    "rmsnorm:hidden_size=1056,input=float32,weight=float32,vector_bytes=4,bias=true",
    "layernorm:hidden_size=1029,vector_bytes=1,weight=float32,quant=int8/tensor/f32",
    "quantize:hidden_size=896,input=float32,vector_bytes=4,activation=silu,schedule=1x1p4n56",
    "quantize:hidden_size=512,input=float16,vector_bytes=2,gate_columns=512,quant=e4m3/128/f32",
    "quantize:hidden_size=104,input=float32,vector_bytes=8,quant=e4m3/row/f32",
    "quantize:hidden_size=512,input=float8_e4m3fn,vector_bytes=1,quant=e2m1/16/e4m3/linear/given",
)


@pytest.mark.parametrize("moves_all", [False, True])
@pytest.mark.parametrize(("text", "target"), [*product(UNALIGNED, (HOPPER,)), *product(UNALIGNED[::3], (AMPERE,))])
def test_rows_at_any_address_are_those_of_the_cpu(text: str, target: Target, moves_all: bool) -> None:
    config = KernelConfig.parse(text)
    place = as_narrow_as_allowed(config, moves_all=moves_all)
    for kind in ("spiky", "nan"):
        assert_same(config, target, 5, kind, is_cuda=True, place=place)


GIVEN = (
    "quantize:hidden_size=48,input=float16,quant=e4m3/column/f32/linear/given",
    "rmsnorm:hidden_size=1536,residual=true,quant=e5m2/column/f32/linear/given",
    "quantize:hidden_size=512,quant=int8/4x256/f32/linear/given",
    "quantize:hidden_size=513,vector_bytes=1,quant=e4m3/row/f32/linear/given",
    "quantize:hidden_size=384,gate_columns=384,quant=e4m3/128/f32/linear/given",
    "quantize:hidden_size=96,input=float8_e4m3fn,quant=e4m3/allx48/f32/linear/given",
)


@pytest.mark.parametrize(("text", "target"), [*product(GIVEN, (AMPERE,)), *product(GIVEN[::3], (HOPPER,))])
def test_codes_by_given_scales_are_those_of_the_cpu(text: str, target: Target) -> None:
    for kind in ("spiky", "nan"):
        assert_same(KernelConfig.parse(text), target, 5, kind, is_cuda=True)


ROUNDED = (
    "quantize:hidden_size=64,gate_columns=64,rounding=hf",
    "quantize:hidden_size=512,input=float16,gate_columns=512,rounding=output,quant=e4m3/32/ue8m0",
    "quantize:hidden_size=96,gate_columns=8,rounding=hf,activation=gelu_tanh,quant=e4m3/row/f32",
    "quantize:hidden_size=1024,activation=relu2,rounding=output,quant=e2m1/16/e4m3",
    "quantize:hidden_size=64,gate_columns=64,rounding=hf,activation=swiglu:2:1.5:1",
    "rmsnorm:hidden_size=512,rounding=hf,residual=true,quant=e4m3/128/f32_ue8m0/packed",
    "rmsnorm:hidden_size=256,rounding=output,quant=e2m1/16/e4m3/linear/given/up/mae",
    "rmsnorm:hidden_size=512,rounding=vllm,residual=true,quant=int8/row/f32",
)


@pytest.mark.parametrize(("text", "target"), [*product(ROUNDED, (AMPERE,)), *product(ROUNDED[::2], (HOPPER,))])
def test_what_is_rounded_before_it_is_encoded_is_the_cpus(text: str, target: Target) -> None:
    for kind in ("spiky", "inf", "nan"):
        assert_same(KernelConfig.parse(text), target, 5, kind, is_cuda=True)


NUMBERS = (
    "quantize:hidden_size=64,gate_columns=64,activation=swiglu:2:1:0,quant=e2m1/16/e4m3",
    "quantize:hidden_size=96,gate_columns=8,activation=swiglu:2:1.5:1",
    "quantize:hidden_size=512,activation=swish:1.702,input=float16,quant=e4m3/row/f32",
    "quantize:hidden_size=48,gate_columns=48,activation=fatrelu:0.25,values_first=true",
)


@pytest.mark.parametrize("text", NUMBERS)
def test_activations_with_numbers_are_those_of_the_cpu(text: str) -> None:
    for kind in ("spiky", "inf", "nan"):
        assert_same(KernelConfig.parse(text), AMPERE, 5, kind, is_cuda=True)


# What pairs of floats, or sums with narrower ones, are computed in.
PACKED = (
    "rmsnorm:hidden_size=520,input=float16,weight=float16,vector_bytes=8,quant=e4m3/tensor/f32",
    "rmsnorm:hidden_size=1009,vector_bytes=2,weight=float32",
    "rmsnorm:hidden_size=512,input=float32,weight=float32,unit_bias=true,quant=e5m2/row/f32",
    "rmsnorm:hidden_size=512,rounding=hf,bias=true,quant=e4m3/128/f32",
    "rmsnorm:hidden_size=512,rounding=output,quant=int8/row/f32",
    "rmsnorm:hidden_size=512,activation=silu,quant=e2m1/16/e4m3",
    "rmsnorm:hidden_size=512,gate=norm,activation=silu,quant=e4m3/32/ue8m0",
    "layernorm:hidden_size=1009,vector_bytes=1,weight=bfloat16,quant=e4m3/row/f32",
    "layernorm:hidden_size=4096,input=float16",
    "layernorm:hidden_size=512,weight=none,modulated=true",
    "quantize:hidden_size=512,gate_columns=512,quant=e2m1/16/e4m3",
    "quantize:hidden_size=512,gate_columns=8,rounding=hf,quant=e4m3/128/f32",
    "quantize:hidden_size=512,gate_columns=1,activation=swigluoai,quant=e2m1/32/ue8m0",
    "quantize:hidden_size=512,gate_columns=512,activation=gelu",
    "quantize:hidden_size=512,gate_columns=512,activation=gelu_tanh,quant=e4m3/row/f32",
    "quantize:hidden_size=512,activation=gelu",
    "quantize:hidden_size=512,activation=gelu_tanh",
    "quantize:hidden_size=512,activation=relu2,rounding=output,quant=e2m1/16/e4m3",
    "quantize:hidden_size=256,quant=e2m1/16/e4m3/linear/none/up/mae",
)


@pytest.mark.parametrize(("text", "target"), [*product(PACKED, (BLACKWELL,)), *product(PACKED[::4], (CONSUMER,))])
def test_blackwell_s_arithmetic_is_that_of_the_cpu(text: str, target: Target) -> None:
    for kind in ("spiky", "tiny", "inf", "nan"):
        assert_same(KernelConfig.parse(text), target, 5, kind, is_cuda=True)


SQUARES = (
    ("quantize:hidden_size=256,quant=e4m3/128x128/f32,pdl=true", 256, HOPPER),
    ("quantize:hidden_size=200,vector_bytes=8,input=float16,quant=e4m3/128x128/f32", 130, AMPERE),
    ("quantize:hidden_size=135,vector_bytes=1,input=float32,quant=e4m3/128x128/f32_ue8m0", 7, BLACKWELL),
    ("quantize:hidden_size=144,input=float8_e4m3fn,quant=e4m3/128x128/f32_ue8m0", 129, AMPERE),
)


@pytest.mark.parametrize(("text", "rows", "target"), SQUARES)
def test_square_blocks_are_those_of_the_cpu(text: str, rows: int, target: Target) -> None:
    """This includes the last blocks, with fewer rows or columns, and blocks with a NaN, which fills its block."""
    for kind in ("spiky", "nan"):
        assert_same(KernelConfig.parse(text), target, rows, kind, is_cuda=True)


def blocks() -> NDArray[np.float32]:
    """32 rows of 16 blocks: all magnitudes, edges of codes and their neighbors, zeros, infinities, NaN, any bits."""
    rng = np.random.default_rng(0)
    found = rng.standard_normal((32, 16, 16)).astype(np.float32)
    found *= np.exp2(rng.integers(-30, 30, (32, 16, 1))).astype(np.float32)
    edges = np.array([0, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 1.75, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8], np.float32)
    found[:12] = rng.choice(edges, (12, 16, 16)) * np.sign(found[:12]) * np.exp2(rng.integers(-4, 8, (12, 16, 1)))
    for row, to in ((10, 0), (11, np.inf)):
        found[row] = np.nextafter(np.abs(found[row]), np.float32(to)) * np.sign(rng.standard_normal((16, 16)))
    found[12], found[13, :, 3:], found[14, ::2] = 0, -0.0, 1e-39
    found[15, ::3, 2], found[16, ::3, 5] = np.nan, np.inf
    found[17] = np.exp2(rng.integers(-149, 128, (16, 16)))
    found[18:20] = rng.integers(0, 1 << 32, (2, 16, 16), dtype=np.uint32).view(np.float32)
    return found.reshape(32, 256)


GLOBAL_SCALES = (0.37, 2688.0, 1e-20, 1e-38, 3e-45, 2.0**126, 3.4e38, 0.0, -1.5, float("inf"), float("nan"))
QUANTS = ("e2m1/16/e4m3", "e2m1/16/e4m3/linear/none/up/true", "e2m1/32/ue8m0", "e2m1/32/ue8m0/linear/none/floor")
WITH_GLOBAL_SCALE = ("e2m1/16/e4m3/linear/given", "e2m1/16/e4m3/linear/given/up/true")


def blocks_alike() -> NDArray[np.float32]:
    """128 rows of 32 blocks, those of a row alike, and so all blocks of a warp."""
    return np.repeat(blocks().reshape(-1, 1, 16)[::4], 32, axis=1).reshape(128, 512)


@pytest.mark.parametrize("target", [AMPERE, HOPPER, BLACKWELL], ids=str)
@pytest.mark.parametrize("quant", QUANTS + WITH_GLOBAL_SCALE)
@pytest.mark.parametrize("values", [blocks(), blocks_alike()], ids=["different", "alike"])
def test_every_kind_of_block_is_encoded_as_on_the_cpu(values: NDArray[np.float32], quant: str, target: Target) -> None:
    """Warps of ordinary blocks and of zeros have paths that no other block may take, whatever its global scale."""
    rows, hidden_size = values.shape
    config = KernelConfig.parse(f"quantize:hidden_size={hidden_size},input=float32,quant={quant}")
    for global_scale in GLOBAL_SCALES if quant in WITH_GLOBAL_SCALE else (None,):
        expected, actual = make_arrays(config, rows, "random"), make_arrays(config, rows, "random")
        for arrays in (expected, actual):
            arrays["input"][...] = values
            if global_scale is not None:
                arrays["global_scale"][...] = global_scale
        run_on_cpu(config, expected, 0.0)
        run_on_host(config, target, actual, rows, 0.0, is_cuda=True)
        for name, array in expected.items():
            assert (actual[name].view(np.uint8) == array.view(np.uint8)).all(), (name, global_scale)


@pytest.mark.parametrize("target", [AMPERE, HOPPER], ids=str)
@pytest.mark.parametrize("quant", WITH_GLOBAL_SCALE)
def test_every_block_of_fp8_is_rescaled_and_encoded_as_on_the_cpu(quant: str, target: Target) -> None:
    config = KernelConfig.parse(f"quantize:hidden_size=256,input=float8_e4m3fn,quant={quant}")
    for global_scale in GLOBAL_SCALES:
        expected, actual = make_arrays(config, 16, "random"), make_arrays(config, 16, "random")
        for arrays in (expected, actual):
            arrays["input"][::2] &= 0x77  # rows without NaN
            arrays["global_scale"][...] = global_scale
        run_on_cpu(config, expected, 0.0)
        run_on_host(config, target, actual, 16, 0.0, is_cuda=True)
        for name, array in expected.items():
            assert (actual[name].view(np.uint8) == array.view(np.uint8)).all(), (name, global_scale)


def test_a_hidden_size_that_is_no_power_of_two_is_divided_by() -> None:
    config = KernelConfig.parse("rmsnorm:hidden_size=768,quant=e2m1/16/e4m3")
    for size in (768, 1024):
        assert_same(replace(config, hidden_size=size), HOPPER, 5, "real", is_cuda=True)
