"""The generator's texts: complete, the same on every machine, and different for different configurations."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.generator import generate
from jitnorm.kernels.quant_spec import (
    FP8_BLOCK,
    FP8_GROUP,
    FP8_TENSOR,
    FP8_TOKEN,
    INT8_TOKEN,
    MXFP4,
    MXFP8,
    NVFP4,
    QuantSpec,
)
from jitnorm.kernels.target import TARGET_NAMES, Target
from python_process import run_python

from jitnorm.toolchains.nvrtc import Nvrtc
from jitnorm.toolchains.nvrtc_program import ptx_of

CPU, HOPPER = Target("cpu"), Target("sm_90a")
PLAIN = KernelConfig("rmsnorm", 4096)
FUSED = KernelConfig("rmsnorm", 4096, quant=QuantSpec(scale_layout="linear+128x4", global_scale="given"))

DIGEST_PROGRAM = """
import hashlib
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.generator import generate
from jitnorm.kernels.target import TARGET_NAMES, Target
config = KernelConfig.parse("rmsnorm:hidden_size=4096,quant=e2m1/16/e4m3/linear+128x4/given")
texts = [generate(config, Target(name)).text for name in TARGET_NAMES]
print(hashlib.sha256("".join(texts).encode()).hexdigest())
"""


@pytest.mark.parametrize("name", TARGET_NAMES)
@pytest.mark.parametrize("config", [PLAIN, FUSED], ids=["plain", "fused"])
def test_every_target_gets_a_complete_source(name: str, config: KernelConfig) -> None:
    source = generate(config, Target(name))
    assert (source.config, source.target) == (config, Target(name))
    assert "#include" not in source.text
    assert f"// {config}\n// for {name}." in source.text
    assert ("__global__" in source.text) == (name != "cpu")
    assert 'extern "C"' in source.text


def test_every_process_writes_the_same_text(tmp_path: Path) -> None:
    digests = {run_python(DIGEST_PROGRAM, cwd=tmp_path, PYTHONHASHSEED=seed) for seed in ("1", "2")}
    assert len(digests) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"hidden_size": 4112},
        {"input": "float16", "weight": "float16"},
        {"weight": "float32"},
        {"quant": None},
        {"quant": MXFP4},
        {"quant": replace(NVFP4, block_size=32)},
        {"quant": replace(NVFP4, scale_format="ue8m0")},
        {"quant": replace(NVFP4, scale_layout="128x4")},
        {"quant": replace(NVFP4, global_scale="given")},
        {"row_dims": 2},
        {"vector_bytes": 8},
        {"pdl": True},
        {"residual": True},
        {"unit_bias": True},
        {"keep_norm": True},
        {"op": "quantize", "weight": "none"},
        {"quant": replace(NVFP4, global_scale="row")},
        {"quant": replace(NVFP4, scale_layout="8x4")},
        {"quant": MXFP8},
        {"quant": FP8_TENSOR},
        {"quant": FP8_TOKEN},
        {"quant": FP8_GROUP},
        {"quant": INT8_TOKEN},
        {"input": "float32", "weight": "float32"},
        {"quant": None, "pair": True},
        {"batched": True},
        {"batched": True, "masked": True},
        {"quant": NVFP4.with_global_scale("given"), "batched": True, "scale_per_matrix": True},
        {"quant": replace(NVFP4, four_over_six=True)},
        {"quant": replace(NVFP4, global_scale="tensor")},
        {"quant": None, "amax_parts": 256},
    ],
    ids=lambda change: ",".join(f"{name}={value}" for name, value in change.items()),
)
def test_every_field_changes_more_than_the_comment_on_top(change: dict[str, object]) -> None:
    config = KernelConfig("rmsnorm", 4096, quant=NVFP4)
    assert code(replace(config, **change)) != code(config)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "change"),
    [
        ("quantize:hidden_size=4096,quant=e4m3/32/ue8m0", {"quant": replace(MXFP8, scale_rounding="floor")}),
        ("quantize:hidden_size=4096,quant=e4m3/32/ue8m0", {"alignment": 8192}),
        ("quantize:hidden_size=4096,quant=e4m3/32/ue8m0", {"input": "float8_e4m3fn"}),
        ("quantize:hidden_size=4096,quant=e4m3/row/f32", {"scale_ub": True}),
        ("quantize:hidden_size=4096,quant=e4m3/128/f32", {"scale_ub": True}),
        ("quantize:hidden_size=4096,quant=e4m3/tensor/f32", {"quant": replace(FP8_TENSOR, global_scale="tensor")}),
        ("quantize:hidden_size=4096,quant=e4m3/row/f32", {"quant": FP8_TOKEN.with_scale_floor(1.0)}),
        ("quantize:hidden_size=4096,quant=e4m3/128/f32", {"quant": FP8_GROUP.with_scale_floor(1.0)}),
        ("quantize:hidden_size=4096,quant=e2m1/16/e4m3/linear/given", {"inverse_global_scale": True}),
        ("quantize:hidden_size=4096,quant=e2m1/16", {"axis": 0}),
        ("quantize:hidden_size=4096,quant=e2m1/16", {"experts": 8}),
        ("quantize:hidden_size=4096,quant=e2m1/16", {"gathers": True}),
        ("quantize:hidden_size=4096,quant=e2m1/16", {"op": "dequantize"}),
        ("quantize:hidden_size=4096,quant=e2m1/16,axis=0", {"quant": replace(NVFP4, four_over_six=True)}),
        ("quantize:hidden_size=4096,quant=e4m3/128/f32", {"quant": FP8_BLOCK}),
        ("quantize:hidden_size=4096,quant=e4m3/128x128/f32", {"quant": replace(FP8_BLOCK, scale_format="f32_ue8m0")}),
        ("quantize:hidden_size=4096,quant=e4m3/128x128/f32", {"batched": True}),
        ("dequantize:hidden_size=4096,quant=e4m3/128/f32", {"quant": FP8_BLOCK}),
        ("dequantize:hidden_size=4096,quant=e2m1/16", {"axis": 0}),
        ("dequantize:hidden_size=4096,quant=e2m1/16", {"tensor_scale": True}),
        ("dequantize:hidden_size=4096,quant=e2m1/16", {"input": "float32"}),
        ("dequantize:hidden_size=4096,quant=e2m1/16", {"vector_bytes": 4}),
        ("dequantize:hidden_size=4096,quant=e2m1/16", {"batched": True}),
        ("shuffle:hidden_size=64,shuffle_rows=16", {"shuffle_rows": 32}),
    ],
)
def test_every_option_of_an_encoding_or_an_op_on_items_does_so_too(text: str, change: dict[str, object]) -> None:
    config = KernelConfig.parse(text)
    assert code(replace(config, **change)) != code(config)  # type: ignore[arg-type]


def code(config: KernelConfig, target: Target = HOPPER) -> str:
    return re.sub(r"//.*", "", generate(config, target).text)


def test_the_narrow_formats_use_the_instruction_where_there_is_one() -> None:
    for name in TARGET_NAMES:
        text, target = generate(FUSED, Target(name)).text, Target(name)
        assert f"kHasNativeE2M1 = {str(target.has_native_e2m1).lower()}," in text
        assert f"kHasNativeFp8 = {str(target.has_native_e4m3).lower()}," in text


@pytest.mark.parametrize("element", ["e4m3", "e5m2"])
@pytest.mark.parametrize("name", ["sm_86", "sm_89"])
def test_fp8_is_encoded_by_the_instruction_from_ada_on(element: str, name: str) -> None:
    toolchain = Nvrtc()
    target = Target(name)
    source = generate(KernelConfig("rmsnorm", 4096, quant=QuantSpec(element, "tensor", "f32")), target)
    ptx = ptx_of(toolchain.location, source.text, "kernel.cu", toolchain.flags(target))
    assert (f"cvt.rn.satfinite.{element}x2.f32" in ptx) == target.has_native_e4m3


def test_programmatic_dependent_launch_is_refused_before_hopper() -> None:
    config = replace(PLAIN, pdl=True)
    assert "kHasPdl = true," in generate(config, HOPPER).text
    for name in ("cpu", "sm_80", "sm_89"):
        with pytest.raises(ValueError, match=rf"pdl: is True, but {name} has no .* begins with sm_90a; use False"):
            generate(config, Target(name))


def compile_for(target: Target, config: KernelConfig) -> None:
    cubin = Nvrtc().compile(generate(config, target).text, target)
    assert b".text.jitnorm_kernel\0" in cubin


@pytest.mark.parametrize("name", TARGET_NAMES[1:])
def test_nvrtc_compiles_for_every_target_without_a_gpu(name: str) -> None:
    for text in (
        "rmsnorm:hidden_size=512,residual=true,unit_bias=true,keep_norm=true,quant=e2m1/16/e4m3/8x4/row",
        "quantize:hidden_size=96,input=float16,quant=e4m3/32/ue8m0/8x4/none/floor",
        "quantize:hidden_size=200,quant=e4m3/128x128/f32,batched=true,row_dims=2,vector_bytes=8",
    ):
        compile_for(Target(name), KernelConfig.parse(text))


@pytest.mark.parametrize("name", ["sm_80", "sm_90a", "sm_120a"])
def test_nvrtc_compiles_rows_of_clusters_and_what_stands_for_them(name: str) -> None:
    text = "rmsnorm:hidden_size=131072,input=float32,quant=e4m3/128/f32_ue8m0/column4,scale_ub=true"
    compile_for(Target(name), KernelConfig.parse(text))


@pytest.mark.parametrize(
    "text",
    [
        "rmsnorm:hidden_size=100,input=float16,row_dims=3,vector_bytes=2",
        "rmsnorm:hidden_size=4096,weight=float32,quant=e2m1/16/e4m3/linear+128x4/given",
        "rmsnorm:hidden_size=96,input=float16,quant=e2m1/32/ue8m0/128x4,row_dims=2,vector_bytes=4",
        "quantize:hidden_size=17,input=float32,quant=e5m2/row/f32,vector_bytes=1",
        "quantize:hidden_size=4096,quant=e2m1/16/e4m3/linear/tensor/up/true",
        "rmsnorm:hidden_size=4096,residual=true,amax_parts=256",
        "quantize:hidden_size=96,input=float8_e4m3fn,quant=e4m3/32/ue8m0/8x4/none/floor/false,alignment=128",
        "layernorm:hidden_size=4097,input=float16",
        "quantize:hidden_size=4096,quant=e2m1/16/e4m3/128x4/given,gate_columns=8",
        "quantize:hidden_size=1000,quant=e4m3/row/f32,gate_columns=-1,vector_bytes=8",
        "rmsnorm:hidden_size=7168,streams=4,weight=float32,quant=e2m1/16/e4m3/linear/row,keep_rstd=true,pdl=false",
        "rmsnorm:hidden_size=72,input=float16,weight=float32,pair=true,row_dims=2,vector_bytes=8",
        "rmsnorm:hidden_size=72,pair=true,rope=interleaved,rotary_size=20,quant=e5m2/tensor/f32,rounding=hf,row_dims=2",
        "rmsnorm:hidden_size=72,pair=true,rope=neox,paged=true,keep_heads=true,quant=e4m3/tensor/f32,slots=int32,row_dims=2",
        "rmsnorm:hidden_size=4096,residual=true,quant=e2m1/16/e4m3/linear+128x4/row,batched=true,row_dims=2",
        "quantize:hidden_size=256,quant=e4m3/tensor/f32,batched=true,masked=true,scale_per_matrix=true",
        "quantize:hidden_size=256,quant=e2m1/16/e4m3/linear+8x4/given,experts=3,scale_per_matrix=true",
        "quantize:hidden_size=256,quant=e2m1/16/e4m3/128x4/row,gathers=true",
        "dequantize:hidden_size=4096,quant=e2m1/16/e4m3/128x4/given,batched=true,scale_per_matrix=true",
        "dequantize:hidden_size=17,input=float32,quant=e5m2/row/f32,row_dims=2,vector_bytes=1",
        "dequantize:hidden_size=17,quant=e2m1/32/ue8m0,axis=0,tensor_scale=true",
        "quantize:hidden_size=17,input=float8_e4m3fn,quant=e2m1/16/e4m3/linear/given/up/true,axis=0",
        "interleave:hidden_size=17,input=float8_e4m3fn,batched=true",
        "shuffle:hidden_size=17,input=uint8,shuffle_rows=32,vector_bytes=1",
    ],
)
def test_nvrtc_compiles_what_the_oldest_and_the_newest_targets_have(text: str) -> None:
    """Targets with the same abilities share a source; those of the first and the last target differ most."""
    config = KernelConfig.parse(text)
    for name in (TARGET_NAMES[1], TARGET_NAMES[-1]):
        compile_for(Target(name), config)
