"""The kernels' headers are ordinary C++: each compiles alone, and a source contains what its entry point needs."""

from __future__ import annotations

import re
import subprocess

import pytest
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.constants import constants, sample
from jitnorm.kernels.generator import generate
from jitnorm.kernels.headers import (
    CONDITIONS,
    CONFIGURATION,
    FOLDER,
    Definition,
    cut,
    definitions_in,
    headers,
    holding_of,
    order_of,
)
from jitnorm.kernels.target import Target

from jitnorm.toolchains import ToolchainMissingError
from jitnorm.toolchains.cxx import find_cxx
from jitnorm.toolchains.nvrtc import Nvrtc
from jitnorm.toolchains.nvrtc_program import ptx_of

CPU, HOPPER, BLACKWELL = Target("cpu"), Target("sm_90a"), Target("sm_100a")
ALL = sorted(
    path.relative_to(FOLDER).as_posix() for folder in ("common", "cpu", "cuda") for path in (FOLDER / folder).iterdir()
)
# One for each schedule and each enumerator.
CONFIGS = [
    KernelConfig.parse(text)
    for text in (
        "rmsnorm:hidden_size=4096",
        "rmsnorm:hidden_size=4096,residual=true,quant=e4m3/row/f32",
        "rmsnorm:hidden_size=4096,streams=4,quant=e2m1/16/e4m3",
        "quantize:hidden_size=4096,quant=e2m1/16/e4m3,gate_columns=-1",
        "quantize:hidden_size=4096,activation=swigluoai,gate_columns=1",
        "quantize:hidden_size=4096,activation=gelu",
        "quantize:hidden_size=4096,activation=gelu_tanh,quant=e4m3/row/f32",
        "quantize:hidden_size=4096,activation=relu2",
        "quantize:hidden_size=4096,input=float8_e4m3fn,quant=e2m1/16/e4m3/linear/given",
        "quantize:hidden_size=4096,quant=e2m1/16/e4m3,batched=true,masked=true",
        "quantize:hidden_size=4096,quant=e2m1/32/ue8m0",
        "quantize:hidden_size=4096,quant=e2m1/16/e4m3/linear/none/up/true",
        "quantize:hidden_size=4096,quant=e4m3/128/f32",
        "quantize:hidden_size=4096,quant=e2m1/16/e4m3,axis=0",
        "quantize:hidden_size=4096,quant=e4m3/128x128/f32",
        "dequantize:hidden_size=4096,quant=e2m1/16/e4m3",
        "dequantize:hidden_size=4096,quant=e2m1/16/e4m3,axis=0",
        "dequantize:hidden_size=4096,quant=e4m3/row/f32",
        "dequantize:hidden_size=4096,quant=e5m2/row/f32",
        "quantize:hidden_size=4096,quant=int8/row/f32",
        "dequantize:hidden_size=4096,quant=int8/row/f32",
        "interleave:hidden_size=4096,input=uint8",
        "shuffle:hidden_size=4096,shuffle_rows=16",
        "rmsnorm:hidden_size=1024,backward=true",
        "layernorm:hidden_size=4096,residual=true,backward=true",
        "rmsnorm:hidden_size=262144,backward=true",
        "sum_rows:hidden_size=4096,input=float32",
        "rmsnorm:hidden_size=4097,vector_bytes=1,residual=true,quant=e4m3/row/f32",
        "layernorm:hidden_size=1000,vector_bytes=8,backward=true",
    )
]
SCHEDULED = [
    KernelConfig.parse(text)
    for text in (
        "rmsnorm:hidden_size=4096,schedule=4x2ao2",
        "rmsnorm:hidden_size=4096,quant=e2m1/16/e4m3/128x4,schedule=4x2ao2",
        "rmsnorm:hidden_size=4096,schedule=8x1h",
        "rmsnorm:hidden_size=4096,quant=e4m3/row/f32,schedule=8x1h",
        "rmsnorm:hidden_size=4096,quant=e4m3/128/f32,schedule=8x1h",
        "layernorm:hidden_size=4096,schedule=4x2ap2o1",
        "layernorm:hidden_size=4096,schedule=8x1qc",
        "layernorm:hidden_size=4096,schedule=8x1wuqko3",
        "layernorm:hidden_size=4096,schedule=8x1uqcko3",
        "layernorm:hidden_size=4096,quant=e2m1/16/e4m3/128x4,schedule=8x1wuqko3",
        "layernorm:hidden_size=4096,quant=e4m3/tensor/f32,keep_norm=true,schedule=8x1q",
        "quantize:hidden_size=4096,quant=e2m1/16/e4m3,gate_columns=-1,activation=gelu,schedule=8x1mp3o1",
        "quantize:hidden_size=4096,quant=e4m3/128/f32,activation=silu,rounding=output,schedule=4x2mp6o1",
    )
]
# Those for which a condition holds.
SPECIAL = [
    KernelConfig.parse(text)
    for text in (
        "rmsnorm:hidden_size=4096,residual=true,rounding=hf",
        "quantize:hidden_size=4096,gate_columns=4096,quant=e2m1/16,rounding=hf",
        "quantize:hidden_size=4096,activation=silu,quant=e2m1/16,rounding=output",
        "quantize:hidden_size=4096,gate_columns=4096,activation=swiglu:7:1.5:1",
        "quantize:hidden_size=4096,activation=swish:1.5",
        "quantize:hidden_size=4096,activation=fatrelu:1",
        "quantize:hidden_size=4096,gate_columns=4096,values_first=true",
        "rmsnorm:hidden_size=4096,quant=e4m3/column/f32/linear/given",
        "quantize:hidden_size=4800,quant=e4m3/96/f32",
        "quantize:hidden_size=4096,amax_parts=256",
        "quantize:hidden_size=4096,quant=e4m3/tensor/f32/linear/tensor",
        "quantize:hidden_size=4096,quant=e2m1/16/e4m3/linear/tensor",
        "quantize:hidden_size=4096,quant=e2m1/32/ue8m0/linear/none/even",
        "dequantize:hidden_size=4096,quant=e4m3/column/f32/linear/given",
        "rmsnorm:hidden_size=128,pair=true,rope=neox",
        "rmsnorm:hidden_size=128,pair=true,rope=neox,rotary_size=64",
        "rmsnorm:hidden_size=80,pair=true,rope=neox,rounding=hf",
        "rmsnorm:hidden_size=80,pair=true,rope=neox,paged=true",
        "quantize:hidden_size=128,pair=true,rope=interleaved,angles=int32",
        "rmsnorm:hidden_size=128,pair=true,rope=neox,paged=true,quant=e4m3/tensor/f32",
    )
]
FINISHED = [
    KernelConfig.parse(text)
    for text in (
        "rmsnorm:hidden_size=4096,activation=silu,activates_norm=true",
        "rmsnorm:hidden_size=4096,activation=silu,activates_norm=true,rounding=hf",
        "rmsnorm:hidden_size=4096,gate=norm,activation=sigmoid",
        "rmsnorm:hidden_size=4096,gate=norm,rounding=hf",
        "rmsnorm:hidden_size=4096,gate=norm,quant=e4m3/row/f32",
        "rmsnorm:hidden_size=4096,gate=input,weight_rows=2",
        "rmsnorm:hidden_size=4096,gate=input,weight_rows=2,amax_parts=256",
        "rmsnorm:hidden_size=4096,gate=input,rounding=hf",
        "rmsnorm:hidden_size=4096,residual=true,sandwich=true",
        "rmsnorm:hidden_size=4096,residual=true,sandwich=true,rounding=hf",
        "rmsnorm:hidden_size=4096,residual=true,sandwich=true,activation=silu,activates_norm=true,rounding=hf",
    )
]
EXPERTS = [
    KernelConfig.parse(f"quantize:hidden_size={size},quant=e2m1/16/e4m3/128x4/given,experts=8,scale_per_matrix=true")
    for size in (256, 4096)
]
OTHERS = [
    KernelConfig.parse("rmsnorm:hidden_size=4096,weight=none"),
    KernelConfig.parse("rmsnorm:hidden_size=1024,weight=none,backward=true"),
    KernelConfig.parse("rmsnorm:hidden_size=262144,weight=none,backward=true"),
    KernelConfig.parse("rmsnorm:hidden_size=1536,pair=true,second_size=512"),
    KernelConfig.parse("quantize:hidden_size=4096,quant=e2m1/16/e4m3,gathers=true"),
    KernelConfig.parse("quantize:hidden_size=4096,quant=e2m1/16/e4m3/128x4,batched=true"),
    KernelConfig.parse("mhc_post:hidden_size=4096,streams=4"),
    KernelConfig.parse("rmsnorm:hidden_size=4096,weights=2"),
    KernelConfig.parse("quantize:hidden_size=4096,streams=4,sinkhorn=20"),
    KernelConfig.parse("layernorm:hidden_size=4096,residual=true,gate_bias=true"),
    KernelConfig.parse("layernorm:hidden_size=4096,modulated=true,weight=none"),
    KernelConfig.parse("layernorm:hidden_size=4096,modulated=true,weight=none,quant=e2m1/16,rounding=output"),
    KernelConfig.parse("quantize:hidden_size=4096,streams=4,sinkhorn=20,prenorm=true"),
    KernelConfig.parse("rmsnorm:hidden_size=4096,all_reduce=one_shot,ranks=2"),
    KernelConfig.parse("rmsnorm:hidden_size=4096,residual=true,all_reduce=one_shot,ranks=2,rounding=hf"),
    KernelConfig.parse("rmsnorm:hidden_size=4096,residual=true,all_reduce=two_shot,ranks=2"),
    KernelConfig.parse("rmsnorm:hidden_size=4096,residual=true,all_reduce=two_shot,ranks=2,rounds_sum=true"),
    KernelConfig.parse("quantize:hidden_size=4096,all_reduce=two_shot,ranks=2"),
    KernelConfig.parse("rmsnorm:hidden_size=4096,residual=true,all_reduce=one_shot_scatter,ranks=2"),
    KernelConfig.parse("rmsnorm:hidden_size=4096,residual=true,all_reduce=reduce_scatter,ranks=2"),
    KernelConfig.parse("rmsnorm:hidden_size=4096,residual=true,quant=e2m1/16,all_reduce=all_gather,ranks=2"),
]
# With instructions for pairs of floats, and for sums with narrower ones.
PACKED = [
    KernelConfig.parse(text)
    for text in (
        "layernorm:hidden_size=4096",
        "quantize:hidden_size=4096,activation=gelu",
        "quantize:hidden_size=4096,quant=e2m1/16/e4m3,gate_columns=-1",
        "quantize:hidden_size=4096,quant=e2m1/16/e4m3/linear/none/up/true",
    )
]
SOURCES = [
    *((config, target) for config in (*CONFIGS, *SPECIAL, *FINISHED, *EXPERTS, *OTHERS) for target in (CPU, HOPPER)),
    *((config, HOPPER) for config in SCHEDULED),
    *((config, BLACKWELL) for config in PACKED),
]


def test_no_lambda_is_generic() -> None:
    """NVRTC 13.0 mistakes the function of a generic lambda for a host function, and rejects it."""
    for name in ALL:
        assert not re.search(r"\]\([^()]*\bauto\b", (FOLDER / name).read_text(encoding="utf-8")), name


def test_the_sample_of_constants_that_editors_see_is_current() -> None:
    """To regenerate it: `path.write_text(sample())`."""
    assert (FOLDER / "common" / "configuration.h").read_text(encoding="utf-8") == sample()


def definitions(*, is_cpu: bool) -> list[Definition]:
    names = [name for name in order_of(is_cpu) if name != CONFIGURATION]
    holding = [(target, holding_of("\n".join(constants(config, target)))) for config, target in SOURCES]
    assert frozenset().union(*(conditions for _, conditions in holding)) == CONDITIONS.keys()
    of_target = {conditions for target, conditions in holding if target.is_cpu == is_cpu}
    return [each for conditions in of_target for name in names for each in cut(name, is_cpu, conditions)]


def test_a_source_has_the_headers_of_its_target() -> None:
    for is_cpu in (True, False):
        order = order_of(is_cpu)
        assert sorted(order) == [name for name in ALL if not name.startswith("cuda/" if is_cpu else "cpu/")]


@pytest.mark.parametrize("is_cpu", [True, False], ids=["cpu", "cuda"])
def test_every_definition_is_a_part_of_a_source(is_cpu: bool) -> None:
    texts = [generate(config, target).text for config, target in SOURCES if target.is_cpu == is_cpu]
    unused = [each.text for each in definitions(is_cpu=is_cpu) if not any(each.text in text for text in texts)]
    assert unused == []


@pytest.mark.parametrize(("config", "target"), SOURCES, ids=str)
def test_a_source_includes_nothing_and_defines_nothing_twice(config: KernelConfig, target: Target) -> None:
    text = generate(config, target).text
    for trace in ("#include", "#pragma once", "__CUDACC__", *CONDITIONS):
        assert trace not in text
    for definition in definitions(is_cpu=target.is_cpu):
        assert text.count(f"\n\n{definition.text}\n\n") <= 1, definition.text


def test_a_source_has_what_its_entry_point_reaches_by_name() -> None:
    """Definitions come with their comments and headings; specializations only if they match the constants."""
    _, after = headers("constexpr Combine kCombine = Combine::kMix;", "load_row<kCombine>(a, row, h);", is_cpu=True)
    assert "\n\n// Hyper-connections (mHC): the sum of kStreams rows" in after
    assert "load_row<Combine::kMix>" in after
    assert "load_row<Combine::kAdd>" not in after
    assert "Where a row starts" in after
    assert "sigmoid(" not in after
    before, after = headers("", "UInt32 x;", is_cpu=True)
    assert "typedef unsigned int UInt32;" in before
    assert not after


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("#define TWICE(x) \\\n  (2 * (x))", {"TWICE"}),
        ("typedef Chunk<float, 16> Held;", {"Held"}),
        ("typedef UInt32 Codes[kLanes * 2];", {"Codes"}),
        ("enum class Op { kA, kB };", {"Op"}),
        ("template <typename T>\nstruct alignas(kBytes) Tile {\n  int at;\n};", {"Tile"}),
        ("template <>\nstruct Access<16> {\n  typedef uint4 Type;\n};", {"Access"}),
        ("template <int kWidth>\nINLINE float sum(const float* x) {\n  return f(x);\n}", {"sum"}),
        ("template <>\nINLINE float scale_of<Format::kA>(float x);", {"scale_of"}),
        ("constexpr int kA = f(1), kUnseen = 2;\nconstexpr bool kB = kA < 3;", {"kA", "kB"}),
        ("INLINE void f(int a,\n              int b) {}", {"f"}),
        ('static_assert(kA == 1, "a");', set()),
    ],
)
def test_a_definition_is_known_by_the_names_in_its_lines_that_are_not_indented(code: str, names: set[str]) -> None:
    (definition,) = definitions_in(f"// A comment (like this).\n{code}")
    assert definition.names == names


def test_every_source_of_a_kind_has_the_same_constants() -> None:
    def names(config: KernelConfig, target: Target) -> list[str]:
        return re.findall(r"\b(\w+)(?: = .*[;,]|;)$", "\n".join(constants(config, target)), re.MULTILINE)

    of_rows = [config for config in CONFIGS if config.is_row_wise]
    of_items = [config for config in CONFIGS if not config.is_row_wise]
    for target in (CPU, HOPPER):
        assert len({tuple(names(config, target)) for config in of_rows}) == 1
        assert len({tuple(names(config, target)) for config in of_items}) == 1
    assert set(names(of_rows[0], CPU)) == set(names(of_items[0], CPU)) <= set(names(of_rows[0], HOPPER))


def test_each_header_of_the_host_opens_alone() -> None:
    headers = [str(FOLDER / name) for name in ALL if not name.startswith("cuda")]
    command = [str(find_cxx()), "-std=c++17", "-Wall", "-Wno-unused", "-fsyntax-only", "-x", "c++", *headers]
    found = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert found.returncode == 0, found.stderr


def test_each_header_of_gpus_opens_alone() -> None:
    try:
        toolchain = Nvrtc()
    except ToolchainMissingError as error:
        pytest.skip(str(error))
    flags = (*toolchain.flags(HOPPER), f"--include-path={FOLDER}")
    for name in ALL:
        if name.startswith("cuda"):
            assert ptx_of(toolchain.location, f'#include "{name}"\n', "editor.cu", flags), name


def test_a_header_says_what_it_is_first() -> None:
    for name in ALL:
        lines = (FOLDER / name).read_text(encoding="utf-8").splitlines()
        assert lines[0].startswith("// "), name
        assert "#pragma once" in lines, name
