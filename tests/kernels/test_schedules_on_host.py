"""The PTX of a kernel, run on the host, writes the bytes of the CPU target with every schedule."""

from __future__ import annotations

import re
from functools import partial
from random import Random

import pytest
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.target import Target

from jitnorm.toolchains import ToolchainMissingError
from jitnorm.toolchains.nvrtc import Nvrtc

try:
    Nvrtc()
except ToolchainMissingError as error:
    pytest.skip(str(error), allow_module_level=True)

from cute_on_host import assert_same
from drawn_schedules import OPS, config_by_rules, drawn_config
from warp_orders import Drawn, FirstAhead, NewOrder, Together

SCHEDULES = [
    "rmsnorm:hidden_size=2048,schedule=4x1w",
    "rmsnorm:hidden_size=2000,schedule=2x2r2",
    "rmsnorm:hidden_size=2560,residual=true,schedule=3x2o20",
    "rmsnorm:hidden_size=2560,quant=e2m1/16/e4m3/128x4/given,residual=true,schedule=5x1",
    "rmsnorm:hidden_size=2560,quant=e2m1/32/ue8m0/8x4,residual=true,schedule=5x1we",
    "rmsnorm:hidden_size=1568,quant=e4m3/32/ue8m0/128x4,residual=true,schedule=2x2er2",
    "rmsnorm:hidden_size=1536,quant=e2m1/16/e4m3/linear/row,schedule=2x2r2",
    "rmsnorm:hidden_size=1536,quant=e2m1/16/e4m3/8x4/given,schedule=3x1r2",
    "rmsnorm:hidden_size=1536,quant=e2m1/16/e4m3/128x4,schedule=1x3wp4",
    "rmsnorm:hidden_size=1536,quant=e2m1/32/ue8m0/8x4,schedule=3x1wu",
    "rmsnorm:hidden_size=2000,input=float16,weight=float16,schedule=2x2u",
    "rmsnorm:hidden_size=4096,quant=e4m3/row/f32,schedule=8x1b2",
    "rmsnorm:hidden_size=3072,quant=e4m3/32/ue8m0,pdl=true,schedule=2x3w",
    "rmsnorm:hidden_size=2000,residual=true,quant=e4m3/row/f32,pdl=true,schedule=2x2wql",
    "rmsnorm:hidden_size=1536,unit_bias=true,quant=e2m1/16/e4m3/128x4/given,schedule=3x1wuql",
    "rmsnorm:hidden_size=2000,quant=e4m3/row/f32,pdl=true,schedule=2x2wuqd",
    "rmsnorm:hidden_size=1536,pdl=true,schedule=3x1wuqld",
    "rmsnorm:hidden_size=2048,residual=true,quant=e4m3/tensor/f32,schedule=2x2wq",
    "layernorm:hidden_size=1536,schedule=3x1ql",
    "layernorm:hidden_size=1536,schedule=3x1r4",
    "layernorm:hidden_size=2000,keep_statistics=true,schedule=2x2",
    "layernorm:hidden_size=2560,input=float16,pdl=true,schedule=1x5q",
    "layernorm:hidden_size=3072,schedule=6x1b2",
    "layernorm:hidden_size=2000,quant=e4m3/tensor/f32,keep_norm=true,schedule=2x2ql",
    "layernorm:hidden_size=1568,quant=e4m3/32/ue8m0/8x4,schedule=2x2w",
    "layernorm:hidden_size=2000,quant=int8/row/f32,schedule=4x1wqd",
    "layernorm:hidden_size=1500,vector_bytes=8,schedule=1x3r2",
    "quantize:hidden_size=1536,quant=e2m1/16/e4m3/128x4,gate_columns=-1,schedule=2x2",
    "quantize:hidden_size=1552,quant=e2m1/16/e4m3/128x4,gate_columns=-1,schedule=4x1b4o8",
    "quantize:hidden_size=2048,quant=e4m3/128/f32,gate_columns=2048,pdl=true,schedule=4x1b2",
    "quantize:hidden_size=2560,quant=e4m3/tensor/f32,weight=none,schedule=6x1b3",
    "quantize:hidden_size=2000,quant=none,weight=none,gate_columns=2000,schedule=2x2b2",
    "rmsnorm:hidden_size=1200,quant=e2m1/16/e4m3/128x4/given,schedule=2x2wqdg",
    "rmsnorm:hidden_size=2560,quant=e2m1/16/e4m3/linear/row,schedule=3x2wuqg",
    "rmsnorm:hidden_size=2560,residual=true,quant=e4m3/row/f32,pdl=true,schedule=2x3wqlg",
    "rmsnorm:hidden_size=3584,activates_norm=true,activation=silu,schedule=2x4qdg",
    "rmsnorm:hidden_size=1496,vector_bytes=8,quant=e4m3/tensor/f32,schedule=2x2g",
    "rmsnorm:hidden_size=6656,schedule=2x7g",
    "rmsnorm:hidden_size=2304,quant=e2m1/16/e4m3/128x4/given,schedule=1x5uql",
    "rmsnorm:hidden_size=2896,quant=e4m3/row/f32,pdl=true,schedule=1x6qd",
    "rmsnorm:hidden_size=4096,quant=e2m1/16/e4m3/linear/row,schedule=1x8q",
    "layernorm:hidden_size=2432,pdl=true,schedule=3x2qdg",
    "layernorm:hidden_size=2432,quant=e4m3/32/ue8m0/128x4,schedule=2x3uqcgr2",
    "rmsnorm:hidden_size=4608,quant=e4m3/row/f32,schedule=8x2wqdgb4",
    "rmsnorm:hidden_size=384,quant=e2m1/16/e4m3/128x4/given,schedule=1x3wp16n8",
    "rmsnorm:hidden_size=640,residual=true,pdl=true,schedule=1x3p2n16",
    "rmsnorm:hidden_size=1000,vector_bytes=8,quant=e4m3/row/f32,schedule=1x4wup8n16",
    "rmsnorm:hidden_size=112,quant=e4m3/16/f32,schedule=1x4wp32n2",
    "rmsnorm:hidden_size=48,schedule=1x3wp32n1",
    "rmsnorm:hidden_size=640,quant=e2m1/32/ue8m0/8x4,schedule=1x5uqp16n8",
    "layernorm:hidden_size=1408,quant=e4m3/row/f32,schedule=1x6p4n16",
    "rmsnorm:hidden_size=256,pair=true,second_size=64,schedule=1x4wp8n4",
    "rmsnorm:hidden_size=1536,pair=true,second_size=512,schedule=3x1wuql",
    "rmsnorm:hidden_size=2000,pair=true,second_size=592,schedule=2x2wqd",
    "rmsnorm:hidden_size=16384,pair=true,second_size=2048,schedule=32x1wqlb8",
    "layernorm:hidden_size=384,quant=e4m3/32/ue8m0/128x4,schedule=1x3p4n8",
    "layernorm:hidden_size=320,weight=float32,pdl=true,schedule=1x3qp16n8",
    "layernorm:hidden_size=384,weight=float32,quant=e4m3/32/ue8m0,schedule=1x1wqr2p4",
    "layernorm:hidden_size=112,weight=float32,quant=e4m3/tensor/f32,schedule=1x1wqp8n8",
    "rmsnorm:hidden_size=128,quant=e4m3/row/f32,pdl=true,schedule=1x1wqp8n8",
    "rmsnorm:hidden_size=384,quant=e2m1/16/e4m3/linear/row,schedule=1x1wqp4",
    "rmsnorm:hidden_size=384,gate=norm,quant=e4m3/tensor/f32,schedule=1x3p16n8",
    "layernorm:hidden_size=320,schedule=1x2r2p4n16",
    "layernorm:hidden_size=500,vector_bytes=8,schedule=1x1r2p4",
    "rmsnorm:hidden_size=768,quant=e2m1/16/e4m3/linear/row,activation=silu,schedule=1x3p4n16",
    "quantize:hidden_size=768,quant=e2m1/16/e4m3/128x4/given/up/true,schedule=1x3p4n16",
    "quantize:hidden_size=768,quant=e4m3/128/f32,gate_columns=768,schedule=1x3p4n16",
    "quantize:hidden_size=1152,quant=e4m3/128/f32,gate_columns=1152,pdl=true,schedule=1x1p4n72",
    "quantize:hidden_size=1408,quant=e2m1/16/e4m3/128x4/given,schedule=1x2p8n44",
    "quantize:hidden_size=384,quant=e4m3/tensor/f32,weight=none,schedule=1x1p4n24",
    "quantize:hidden_size=1024,quant=e4m3/32/ue8m0,gate_columns=1024,schedule=1x3p16n24",
    "quantize:hidden_size=1536,quant=none,weight=none,gate_columns=1536,schedule=1x1p3n96",
    "rmsnorm:hidden_size=2048,pdl=true,schedule=4x1wuqldh",
    "rmsnorm:hidden_size=2000,unit_bias=true,schedule=2x2wuqdh",
    "rmsnorm:hidden_size=1168,residual=true,pdl=true,schedule=3x1wqlh",
    "rmsnorm:hidden_size=1408,residual=true,quant=e4m3/row/f32,schedule=2x2h",
    "rmsnorm:hidden_size=1168,quant=e4m3/tensor/f32,input=float16,weight=float16,schedule=3x1wuh",
    "rmsnorm:hidden_size=4112,quant=int8/row/f32,schedule=8x2wqhb2",
    "rmsnorm:hidden_size=4112,residual=true,pdl=true,schedule=10x1wqlhb2",
    "rmsnorm:hidden_size=3072,weight=none,schedule=3x2hr2",
    "rmsnorm:hidden_size=1168,activation=silu,activates_norm=true,schedule=3x1wuh",
    "rmsnorm:hidden_size=1552,weights=3,residual=true,pdl=true,schedule=2x2wqdh",
    "rmsnorm:hidden_size=1168,residual=true,sandwich=true,schedule=3x1qh",
    "rmsnorm:hidden_size=1168,gate=input,weight=float32,schedule=3x1qh",
    "rmsnorm:hidden_size=1168,gate=norm,quant=e4m3/row/f32,schedule=3x1wh",
    "layernorm:hidden_size=1168,weight=float32,pdl=true,schedule=3x1wuqdh",
    "layernorm:hidden_size=2064,weight=float32,quant=e4m3/tensor/f32,schedule=5x1hr2",
    "layernorm:hidden_size=1536,residual=true,branch_gate=true,gate_bias=true,schedule=3x1h",
    "quantize:hidden_size=2048,quant=e4m3/128/f32,activation=relu2,schedule=4x1hb2",
    "quantize:hidden_size=1168,quant=int8/row/f32,activation=gelu,schedule=3x1h",
    "rmsnorm:hidden_size=1152,residual=true,quant=e4m3/128/f32,pdl=true,schedule=3x1weqlh",
    "rmsnorm:hidden_size=2064,quant=e4m3/16/f32,schedule=3x2uh",
    "layernorm:hidden_size=1568,quant=e4m3/32/ue8m0/128x4,schedule=4x1hr2",
    "rmsnorm:hidden_size=9216,residual=true,pdl=true,schedule=18x1wqd",
    "layernorm:hidden_size=1536,pdl=true,schedule=3x1uqc",
    "layernorm:hidden_size=2432,schedule=5x1qcr2",
    "layernorm:hidden_size=2064,quant=e4m3/row/f32,schedule=3x2qc",
    "layernorm:hidden_size=1552,schedule=1x4cp2",
    "layernorm:hidden_size=2064,weight=bfloat16,schedule=5x1wuqd",
    "layernorm:hidden_size=4608,quant=e4m3/32/ue8m0,schedule=10x1qcb2",
    "rmsnorm:hidden_size=3088,weight=float32,residual=true,schedule=7x1qlc",
    "quantize:hidden_size=256,streams=4,sinkhorn=20,schedule=1x2p4n8",
    "quantize:hidden_size=256,streams=4,sinkhorn=20,prenorm=true,schedule=1x2p4n8",
    "quantize:hidden_size=640,streams=4,sinkhorn=20,prenorm=true,schedule=1x2p4",
    "quantize:hidden_size=912,quant=e4m3/column/f32/linear/given,schedule=2x1r4",
    "rmsnorm:hidden_size=400,keep_norm=true,quant=e4m3/column/f32/linear/given,schedule=1x2wp8n16",
    "layernorm:hidden_size=384,weight=float32,quant=e4m3/96/f32,schedule=1x1wqr2p4",
    "rmsnorm:hidden_size=1152,quant=e4m3/96/f32,schedule=1x3r2p2",
    "rmsnorm:hidden_size=768,weights=2,pdl=true,schedule=2x1w",
    "rmsnorm:hidden_size=384,pair=true,schedule=1x1p3",
]
# Rows side by side, of which warps have parts.
SIDE_BY_SIDE = [
    "rmsnorm:hidden_size=640,quant=e2m1/16/e4m3/128x4/given,pdl=true,schedule=1x1wuqdp4n40",
    "rmsnorm:hidden_size=1152,quant=e4m3/128/f32,schedule=1x3qp4n24",
    "rmsnorm:hidden_size=544,residual=true,quant=e2m1/32/ue8m0/8x4,schedule=1x1wp8n36",
    "rmsnorm:hidden_size=600,vector_bytes=8,schedule=1x2wuqr2p8n20",
    "rmsnorm:hidden_size=640,quant=e4m3/row/f32,pdl=true,schedule=1x1wuqdp4n40",
    "rmsnorm:hidden_size=1184,quant=e2m1/16/e4m3/linear/row,schedule=1x2r2p8n40",
    "rmsnorm:hidden_size=640,activation=silu,activates_norm=true,schedule=1x1wuqp4n40",
    "rmsnorm:hidden_size=640,gate=norm,quant=e2m1/16/e4m3,schedule=1x2wqp8n20",
    "rmsnorm:hidden_size=576,residual=true,sandwich=true,schedule=1x1qp8n36",
    "rmsnorm:hidden_size=1568,weights=2,pdl=true,schedule=1x2wp8n52",
    "layernorm:hidden_size=640,weight=float32,quant=e4m3/32/ue8m0,schedule=1x1uqdr2p4n40",
    "layernorm:hidden_size=1152,weight=float32,keep_statistics=true,schedule=1x3qp4n24",
    "layernorm:hidden_size=320,weight=float32,quant=e4m3/row/f32,schedule=1x1wqp8n20",
    "layernorm:hidden_size=640,weight=none,bias=false,modulated=true,schedule=1x1qp4n40",
]
# Rows of a block, not all of which a call has.
ABSENT = [
    "rmsnorm:hidden_size=640,quant=e4m3/row/f32,schedule=1x1wqp4n40",
    "layernorm:hidden_size=1024,weight=float32,quant=e4m3/tensor/f32,schedule=1x2ucp4",
    "rmsnorm:hidden_size=512,weight=float32,schedule=1x1cp2",
]


# Rows that share warps; with two chunks per lane, lanes would have a part of a block in each of two passes.
SHARING_WARPS = [
    "quantize:hidden_size=640,quant=e4m3/128/f32,gate_columns=640",
    "quantize:hidden_size=640,quant=int8/128/f32",
]


@pytest.mark.parametrize("text", SHARING_WARPS)
def test_many_short_rows_have_whole_blocks(text: str) -> None:
    assert_same(KernelConfig.parse(f"{text},many_rows=true"), Target("sm_90a"), 5, "random", is_cuda=True)


AHEAD = [
    "rmsnorm:hidden_size=2048,pdl=true,schedule=4x1wao4",
    "rmsnorm:hidden_size=2560,residual=true,quant=e2m1/16/e4m3/128x4/given,pdl=true,schedule=3x2ao1",
    "rmsnorm:hidden_size=1552,quant=e4m3/row/f32,schedule=1x4wao8",
    "rmsnorm:hidden_size=4096,quant=e2m1/32/ue8m0/8x4,residual=true,schedule=2x4eao2",
    "layernorm:hidden_size=1536,input=float32,schedule=3x1ao4",
    "layernorm:hidden_size=1536,weight=bfloat16,quant=e4m3/tensor/f32,schedule=3x1uap2o1",
    "rmsnorm:hidden_size=8192,quant=e2m1/32/ue8m0/128x4,schedule=2x8ao2",
    "rmsnorm:hidden_size=2048,residual=true,quant=e2m1/16/e4m3/8x4,schedule=2x2wao2",
    "layernorm:hidden_size=2048,quant=e4m3/row/f32,pdl=true,schedule=2x2uap2o1",
    "layernorm:hidden_size=1568,quant=e4m3/32/ue8m0/128x4,schedule=2x2uap3o1",
    "layernorm:hidden_size=384,quant=e4m3/tensor/f32,schedule=1x1uap24o1",
]
# Resident blocks of rows, of which the last have fewer, or none.
RESIDENT = [
    "layernorm:hidden_size=1536,schedule=3x1wuqko4",
    "layernorm:hidden_size=1536,pdl=true,schedule=3x1wqhko4",
    "layernorm:hidden_size=1488,keep_statistics=true,schedule=2x2wkgr2o4",
    "layernorm:hidden_size=1500,vector_bytes=8,weight=bfloat16,schedule=3x1wqkr3o2",
    "layernorm:hidden_size=1568,quant=e4m3/32/ue8m0/128x4,schedule=4x1wuqkr2o2",
    "layernorm:hidden_size=384,quant=e4m3/tensor/f32,schedule=1x1wuqkp4o8",
    "layernorm:hidden_size=256,pdl=true,schedule=1x1wuqkp8o4n16",
    "layernorm:hidden_size=208,weight=float32,quant=e4m3/tensor/f32,many_rows=true",  # as the rules divide them
    "rmsnorm:hidden_size=336,quant=e2m1/16/e4m3/128x4,many_rows=true",
    "rmsnorm:hidden_size=2048,pdl=true,schedule=4x1wko4",
    "rmsnorm:hidden_size=2048,weight=none,schedule=2x2wuqko4",
    "rmsnorm:hidden_size=1536,input=float32,schedule=3x1wkr2o4",
    "rmsnorm:hidden_size=1152,quant=e2m1/16/e4m3/128x4/given,schedule=3x1wuqkr2o2",
    "rmsnorm:hidden_size=1536,quant=e2m1/16/e4m3/linear/row,schedule=3x1wqko4",
    "rmsnorm:hidden_size=1296,quant=e4m3/row/f32,pdl=true,schedule=2x2wqkgr2o4",
    "rmsnorm:hidden_size=2048,residual=true,quant=e2m1/16/e4m3/8x4,schedule=4x1wqkr2o2",
    "rmsnorm:hidden_size=1536,residual=true,quant=e4m3/row/f32,schedule=3x1wqko2",
    "rmsnorm:hidden_size=1536,gate=norm,quant=e4m3/tensor/f32,schedule=3x1wko4",
    "layernorm:hidden_size=1536,pdl=true,schedule=3x1uqcko4",
    "layernorm:hidden_size=1488,quant=e4m3/tensor/f32,schedule=2x2uqckr2o4",
    "layernorm:hidden_size=2064,quant=e4m3/row/f32,schedule=3x2qcko4",
    "layernorm:hidden_size=1568,quant=e4m3/32/ue8m0/128x4,schedule=1x4uqckp2o2",
]

# Resident blocks with a table of an activation, for rows of a warp or several, in one block or two.
TABULATED = [
    "quantize:hidden_size=1536,quant=e2m1/16/e4m3/128x4,activation=gelu,pdl=true,schedule=3x1mp2o1",
    "quantize:hidden_size=1920,quant=e4m3/128/f32,activation=silu,rounding=output,schedule=2x2mp3o1",
    "quantize:hidden_size=640,quant=e4m3/32/ue8m0/8x4,gate_columns=640,activation=gelu,schedule=1x1mp8o1n40",
    "quantize:hidden_size=1552,quant=e2m1/16/e4m3/128x4/given,gate_columns=-1,rounding=hf,schedule=4x1mb2o1",
    "quantize:hidden_size=1024,quant=none,gate_columns=16,activation=swiglu:3:0.5:1,schedule=2x1mp4o1",
    "quantize:hidden_size=1536,quant=e2m1/32/ue8m0/8x4,activation=swish:1.702,schedule=1x3mp4o1",
    "quantize:hidden_size=1024,quant=e2m1/16/e4m3/linear/none/up/true,activation=gelu_tanh,schedule=2x1mp2o1",
    "quantize:hidden_size=496,quant=e4m3/tensor/f32,activation=gelu,schedule=1x1mp4o1",
]


@pytest.mark.parametrize(("blocks", "order"), [(1, partial(Drawn, 0)), (2, FirstAhead), (5, Together)])
@pytest.mark.parametrize("text", RESIDENT)
def test_resident_blocks_go_through_all_rows(text: str, blocks: int, order: NewOrder) -> None:
    config = KernelConfig.parse(text)
    assert_same(config, Target("sm_90a"), 5, "random", most_blocks=blocks, order=order, is_cuda=True)


@pytest.mark.parametrize(
    ("kind", "blocks", "order"), [("nan", 2, partial(Drawn, 0)), ("tiny", 4, FirstAhead), ("zeros", 2, Together)]
)
@pytest.mark.parametrize("text", TABULATED)
def test_activations_are_looked_up_or_computed(text: str, kind: str, blocks: int, order: NewOrder) -> None:
    """Every second row is random, whose magnitudes are in the table; those of the kind may not be."""
    config = KernelConfig.parse(text)
    assert_same(config, Target("sm_90a"), 5, kind, most_blocks=blocks, order=order, is_cuda=True)


@pytest.mark.parametrize("target", ["sm_80", "sm_100a"])
@pytest.mark.parametrize("text", TABULATED[2:4])
def test_other_targets_may_look_activations_up_too(text: str, target: str) -> None:
    assert_same(KernelConfig.parse(text), Target(target), 5, "nan", most_blocks=2, order=FirstAhead, is_cuda=True)


@pytest.mark.parametrize(("blocks", "order"), [(1, partial(Drawn, 0)), (2, FirstAhead), (5, Together)])
@pytest.mark.parametrize("text", AHEAD)
def test_rows_are_loaded_ahead_whatever_blocks_there_are(text: str, blocks: int, order: NewOrder) -> None:
    config = KernelConfig.parse(text)
    assert_same(config, Target("sm_90a"), 5, "random", most_blocks=blocks, order=order, is_cuda=True)


@pytest.mark.parametrize("text", SCHEDULES)
def test_the_bytes_are_the_cpu_s(text: str) -> None:
    """Every second row of the kind is random, without NaN."""
    assert_same(KernelConfig.parse(text), Target("sm_90a"), 5, "nan", is_cuda=True)


@pytest.mark.parametrize("order", [partial(Drawn, 0), FirstAhead, Together])
@pytest.mark.parametrize("text", SIDE_BY_SIDE)
def test_rows_side_by_side_wait_for_the_warps_that_have_parts_of_them(text: str, order: NewOrder) -> None:
    assert_same(KernelConfig.parse(text), Target("sm_90a"), 5, "random", order=order, is_cuda=True)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("op", OPS)
def test_a_drawn_schedule_gives_the_bytes_of_the_cpu(op: str, seed: int) -> None:
    numbers, target = Random(f"{op} {seed}"), Target("sm_90a")
    config = drawn_config(op, numbers, target)
    kind, rows = numbers.choice(("random", "nan", "tiny", "huge")), numbers.choice((1, 3, 5))
    assert_same(config, target, rows, kind, order=partial(Drawn, seed), is_cuda=True)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("op", OPS)
def test_the_rules_give_the_bytes_of_the_cpu_at_a_drawn_length(op: str, seed: int) -> None:
    numbers = Random(f"rules {op} {seed}")
    assert_same(config_by_rules(op, numbers), Target("sm_90a"), numbers.choice((1, 3, 9)), "nan", is_cuda=True)


@pytest.mark.parametrize("text", ABSENT)
def test_threads_of_rows_that_a_call_does_not_have_read_nothing(text: str) -> None:
    assert_same(KernelConfig.parse(text), Target("sm_90a"), 1, "random", is_cuda=True)


@pytest.mark.parametrize("text", [text for text in SCHEDULES + SIDE_BY_SIDE if re.search(r"schedule=\w*q", text)])
@pytest.mark.parametrize("kind", ["zeros", "tiny", "huge", "inf"])
def test_statistics_outside_of_the_normal_range_are_exact_too(text: str, kind: str) -> None:
    """There is no fast path to their quotients and roots."""
    for eps in (0.0, 1e-5):
        assert_same(KernelConfig.parse(text), Target("sm_90a"), 5, kind, eps=eps, is_cuda=True)
