"""A generic kernel gives the bytes of the kernel of each hidden size, and checks calls as strictly."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from expected import MXFP4 as MXFP4_OPTIONS
from expected import assert_same_bytes, expected_fp4, expected_rmsnorm
from hypothesis import given, settings
from hypothesis import strategies as st
from inputs import ALL_DTYPES, INPUT_KINDS, make_input, make_weight
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.config_rules import ANY_HIDDEN_SIZE, MAX_HIDDEN_SIZE
from jitnorm.kernels.generator import generate
from jitnorm.kernels.generic import generic_config
from jitnorm.kernels.launch_recipe import launch_recipe
from jitnorm.kernels.target import Target
from kernel_calls import call, make_arguments, outputs_of
from placement import Placed, assert_written_exactly, place, placements

from jitnorm import get_kernel
from jitnorm.toolchains.nvrtc import Nvrtc

CPU = Target("cpu")

# Of any hidden size that is a multiple of 16, 32 or 128, and of any at all.
PLAIN = [
    "rmsnorm:hidden_size={}",
    "rmsnorm:hidden_size={},input=float16,weight=float32,unit_bias=true",
    "rmsnorm:hidden_size={},input=float32,residual=true",
    "rmsnorm:hidden_size={},input=float16,keep_rstd=true,residual=true",
    "rmsnorm:hidden_size={},input=float16,pair=true",
    "layernorm:hidden_size={}",
    "rmsnorm:hidden_size={},amax_only=true",
    "rmsnorm:hidden_size={},residual=true,amax_only=true",
    "rmsnorm:hidden_size={},input=float16,quant=e4m3/tensor/f32",
    "rmsnorm:hidden_size={},residual=true,keep_norm=true,quant=e5m2/tensor/f32",
    "rmsnorm:hidden_size={},quant=e4m3/row/f32,scale_ub=true",
    "layernorm:hidden_size={},quant=e5m2/row/f32",
    "quantize:hidden_size={},quant=e4m3/tensor/f32/linear/tensor",
    "quantize:hidden_size={},input=float32,quant=e4m3/row/f32",
]
BLOCKS_OF_16 = [
    "rmsnorm:hidden_size={},quant=e2m1/16/e4m3/linear/given",
    "rmsnorm:hidden_size={},input=float16,residual=true,keep_norm=true,quant=e2m1/16/e4m3/linear+128x4/row",
    "rmsnorm:hidden_size={},quant=e2m1/16/e4m3/linear+8x4/tensor",
    "layernorm:hidden_size={},quant=e2m1/16/ue8m0/8x4",
    "quantize:hidden_size={},input=float16,quant=e2m1/16/e4m3/128x4/given/up/true",
    "quantize:hidden_size={},quant=e2m1/16/e4m3/128x4/given,alignment=96,inverse_global_scale=true",
    "quantize:hidden_size={},input=float16,quant=e2m1/16/e4m3/128x4/given,batched=true,scale_per_matrix=true",
]
BLOCKS_OF_32 = [
    "rmsnorm:hidden_size={},input=float16,quant=e2m1/32/ue8m0/128x4/none/floor/false",
    "rmsnorm:hidden_size={},residual=true,quant=e4m3/32/ue8m0/linear+128x4",
    "quantize:hidden_size={},quant=e2m1/32/e4m3/linear/row",
    "quantize:hidden_size={},quant=e4m3/32/ue8m0/8x4,alignment=128",
    "quantize:hidden_size={},input=float16,quant=e4m3/32/ue8m0/linear,batched=true",
]
GROUPS_OF_128 = [
    "rmsnorm:hidden_size={},quant=e4m3/128/f32/column4",
    "rmsnorm:hidden_size={},input=float16,residual=true,quant=e4m3/128/f32_ue8m0/column,scale_ub=true",
    "quantize:hidden_size={},quant=e4m3/128/f32",
]
SIZES = {
    1: (1, 17, 511, 512, 513, 1000, 8209),
    16: (16, 48, 528, 4112),
    32: (32, 544, 4096),
    128: (128, 640, 8320),
}
CASES = [
    *((text, 1) for text in PLAIN),
    *((text, 16) for text in BLOCKS_OF_16),
    *((text, 32) for text in BLOCKS_OF_32),
    *((text, 128) for text in GROUPS_OF_128),
]
LEFT_OUT = [
    "quantize:hidden_size=64,gate_columns=-1,quant=e4m3/32/ue8m0",
    "rmsnorm:hidden_size=64,streams=4,quant=e2m1/16/e4m3/128x4/row",
    "quantize:hidden_size=64,quant=e2m1/16,batched=true,masked=true",
    "quantize:hidden_size=64,quant=e2m1/16,axis=0",
    "dequantize:hidden_size=64,quant=e2m1/16",
    "interleave:hidden_size=64,input=uint8",
    "shuffle:hidden_size=64,input=uint8,shuffle_rows=16",
]


def generic_of(config: KernelConfig) -> KernelConfig:
    generic = generic_config(config)
    assert generic is not None
    return generic


def check(config: KernelConfig, kind: str, rows: int, matrices: int = 1) -> None:
    """Both kernels write the same bytes."""
    outputs = []
    for kernel in (get_kernel(config), get_kernel(generic_of(config))):
        arguments = make_arguments(config, kind, rows, matrices)
        call(kernel, *arguments)
        outputs.append(outputs_of(config, arguments))
    for name, wanted in outputs[0].items():
        assert_same_bytes(outputs[1][name], wanted, f"{name} of {config}, {rows} rows, {kind}")


@pytest.mark.parametrize(("text", "multiple"), CASES)
def test_the_bytes_are_those_of_the_kernel_of_each_size(text: str, multiple: int) -> None:
    for size in SIZES[multiple]:
        config = replace(KernelConfig.parse(text.format(size)), vector_bytes=1 if size % 16 else 16)
        for kind in ("random", "nan", "inf", "spiky") if size < 1000 else ("random",):
            check(config, kind, rows=5, matrices=3 if config.batched else 1)


@pytest.mark.parametrize("rows", [0, 1, 9, 129])
@pytest.mark.parametrize("text", [PLAIN[0], BLOCKS_OF_16[1], BLOCKS_OF_32[1], GROUPS_OF_128[0], BLOCKS_OF_16[-1]])
def test_any_number_of_rows_and_all_padding(text: str, rows: int) -> None:
    config = KernelConfig.parse(text.format(256))
    config = replace(config, row_dims=1 + config.batched)
    check(config, "real", rows, matrices=2 if config.batched else 1)


@pytest.mark.parametrize("size", [16384, 65536, 131072, MAX_HIDDEN_SIZE])
def test_long_rows(size: int) -> None:
    for text in (PLAIN[0], PLAIN[5], BLOCKS_OF_16[1]):
        check(KernelConfig.parse(text.format(size)), "random", rows=2)


@pytest.mark.parametrize("kind", INPUT_KINDS)
@pytest.mark.parametrize("dtype", ALL_DTYPES)
def test_the_bytes_are_those_of_the_reference(dtype: str, kind: str) -> None:
    norm = get_kernel(f"rmsnorm:hidden_size=any,input={dtype}")
    fused = get_kernel(f"rmsnorm:hidden_size=any,input={dtype},quant=e2m1/32/ue8m0")
    for size in (32, 96, 512, 1568):
        x, weight = make_input(kind, 7, size, dtype), make_weight(size, dtype)
        out, codes, scales = np.empty_like(x), np.empty((7, size // 2), np.uint8), np.empty((7, size // 32), np.uint8)
        call(norm, x, weight, out, 1e-6)
        call(fused, x, weight, codes, scales, 1e-6)
        assert_same_bytes(out, expected_rmsnorm(x, weight))
        for got, wanted in zip((codes, scales), expected_fp4(x, weight, MXFP4_OPTIONS), strict=True):
            assert_same_bytes(got, wanted)


@settings(deadline=None, max_examples=60)
@given(data=st.data(), dtype=st.sampled_from(sorted(ALL_DTYPES)), size=st.integers(1, 700))
def test_any_strides_and_alignment(data: st.DataObject, dtype: str, size: int) -> None:
    leading = tuple(data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=3)))
    where = {name: data.draw(placements(len(leading), (0, 1, 2, 8))) for name in ("input", "out")}
    x = place((*leading, size), ALL_DTYPES[dtype], where["input"])
    x.view[...] = make_input("random", int(np.prod(leading)), size, dtype).reshape(x.view.shape)
    out, weight = place((*leading, size), ALL_DTYPES[dtype], where["out"]), make_weight(size, dtype)
    kernel = get_kernel(generic_of(KernelConfig("rmsnorm", size, dtype, row_dims=3, vector_bytes=1)))
    call(kernel, x.view, weight, out.view, 1e-6)
    assert_written_exactly(Placed(out.view, out.buffer), expected_rmsnorm(x.view, weight), where["out"])


def test_sizes_alternate_within_a_thread() -> None:
    kernel = get_kernel("rmsnorm:hidden_size=any,input=float16,vector_bytes=1")
    for size in (4096, 3, 512, 1, 4096, 17):
        x, weight = make_input("random", 4, size, "float16"), make_weight(size, "float16")
        out = np.empty_like(x)
        call(kernel, x, weight, out, 1e-6)
        assert_same_bytes(out, expected_rmsnorm(x, weight), str(size))


def test_in_place() -> None:
    x, weight = make_input("real", 30, 384, "bfloat16"), make_weight(384, "bfloat16")
    expected = expected_rmsnorm(x, weight)
    call(get_kernel("rmsnorm:hidden_size=any"), x, weight, x, 1e-6)
    assert_same_bytes(x, expected)


@pytest.mark.parametrize("text", LEFT_OUT)
def test_what_has_no_generic_kernel(text: str) -> None:
    config = KernelConfig.parse(text)
    assert generic_config(config) is None
    with pytest.raises(ValueError, match=r"hidden_size: is 'any'|granularity"):
        replace(config, hidden_size=ANY_HIDDEN_SIZE)


def test_a_call_of_many_rows_has_the_generic_kernel_of_others() -> None:
    config = KernelConfig("rmsnorm", 4096)
    assert generic_config(replace(config, many_rows=True)) == generic_config(config)


def test_the_text_form_says_any() -> None:
    config = generic_of(KernelConfig("rmsnorm", 4096))
    assert str(config).startswith("rmsnorm:hidden_size=any,input=bfloat16,")
    assert KernelConfig.parse(str(config)) == config


def test_a_tensor_without_columns_is_not_of_any_size() -> None:
    with pytest.raises(ValueError, match=r"its last dimension \(hidden size\) is 0; 1 to 262144 is supported"):
        KernelConfig("rmsnorm", 0)


def half(*shape: int) -> Any:
    return np.ones(shape, np.float16)


def test_calls_are_checked_as_strictly() -> None:
    norm = get_kernel("rmsnorm:hidden_size=any,input=float16")
    with pytest.raises(ValueError, match=r"input: its last dimension \(hidden size\) is 0; 1 to 262144 is supported"):
        norm(half(2, 0), half(0), half(2, 0), 1e-6)
    with pytest.raises(ValueError, match=r"input: its last dimension \(hidden size\) is 262145; 1 to 262144"):
        norm(half(1, 262145), half(262145), half(1, 262145), 1e-6)
    with pytest.raises(ValueError, match=r"weight: shape is \(63,\), expected \(64,\)"):
        norm(half(2, 64), half(63), half(2, 64), 1e-6)
    with pytest.raises(ValueError, match=r"out: shape is \(2, 65\), expected \(2, 64\)"):
        norm(half(2, 64), half(64), half(2, 65), 1e-6)
    fused = get_kernel("rmsnorm:hidden_size=any,input=float16,quant=e2m1/16/e4m3/128x4")
    codes, scales = np.zeros((2, 36), np.uint8), np.zeros(128 * 8, np.uint8)
    with pytest.raises(ValueError, match=r"input: its last dimension \(hidden size\) is 72, not a multiple of block"):
        fused(half(2, 72), half(72), codes, scales, 1e-6)
    with pytest.raises(ValueError, match=r"block_scale: shape is \(1023,\), expected \(1024,\)"):
        fused(half(2, 80), half(80), np.zeros((2, 40), np.uint8), scales[:1023], 1e-6)
    aligned = get_kernel("quantize:hidden_size=any,input=float16,quant=e2m1/16,alignment=48")
    with pytest.raises(ValueError, match="is 262144; 1 to 262128 is supported"):
        aligned(half(1, 262144), np.zeros((1, 131088), np.uint8), np.zeros((1, 16386), np.uint8))


def test_a_kernel_for_the_cpu_is_loaded_on_no_device() -> None:
    with pytest.raises(TypeError, match="called with a device alone, but is built for cpu"):
        get_kernel("rmsnorm:hidden_size=any,input=float16")(0)


def test_a_kernel_of_one_size_is_told_nothing() -> None:
    config = KernelConfig("rmsnorm", 4096)
    assert launch_recipe(config, CPU)["hidden_sizes"] is None
    assert "hidden_size" not in generate(config, CPU).text.partition("\n")[2]


@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_100a", "sm_120a"])
@pytest.mark.parametrize("text", [PLAIN[0], PLAIN[5], BLOCKS_OF_16[1], GROUPS_OF_128[1]])
def test_it_compiles_for_every_generation(text: str, target: str) -> None:
    pdl = Target(target).has_pdl
    source = generate(replace(generic_of(KernelConfig.parse(text.format(128))), pdl=pdl), Target(target))
    assert Nvrtc().compile(source.text, source.target)[:4] == b"\x7fELF"
