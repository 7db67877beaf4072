"""The PTX of CUDA C++ kernels of gradients, run on the host, writes the bytes of the CPU target."""

from __future__ import annotations

from functools import partial

import pytest
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.target import Target

from jitnorm.toolchains import ToolchainMissingError
from jitnorm.toolchains.nvrtc import Nvrtc

try:
    Nvrtc()
except ToolchainMissingError as error:
    pytest.skip(str(error), allow_module_level=True)

from cute_on_host import as_narrow_as_allowed, assert_same, make_arrays, run_on_host
from expected import assert_same_bytes
from warp_orders import Drawn, FirstAhead, NewOrder

from jitnorm.reference import sum_rows_f32

# Rows and a kernel for them: of packs, of one to many warps, staged or loaded straight, in clusters, and too long.
KERNELS = [
    (600, "rmsnorm:hidden_size=16"),
    (70, "rmsnorm:hidden_size=100,vector_bytes=8"),
    (70, "rmsnorm:hidden_size=128,pdl=true"),
    (33, "layernorm:hidden_size=512"),
    (9, "rmsnorm:hidden_size=640,bias=true"),
    (9, "rmsnorm:hidden_size=1000,unit_bias=true"),
    (5, "rmsnorm:hidden_size=1111,vector_bytes=2,residual=true"),
    (5, "rmsnorm:hidden_size=1152,input=float16,weight=float32"),
    (5, "layernorm:hidden_size=2048,residual=true"),
    (3, "rmsnorm:hidden_size=3040,input=float32"),
    (3, "rmsnorm:hidden_size=16384"),
    (3, "layernorm:hidden_size=16384"),
    (70, "rmsnorm:hidden_size=20000,pdl=true"),
    (2, "layernorm:hidden_size=20000,input=float32"),
    (2, "rmsnorm:hidden_size=40000,vector_bytes=8"),
    (600, "layernorm:hidden_size=16"),
    (70, "layernorm:hidden_size=128,frozen=true"),
    (5, "rmsnorm:hidden_size=1152,frozen=true,residual=true"),
    (3, "layernorm:hidden_size=16384,frozen=true"),
    (3, "rmsnorm:hidden_size=20000,frozen=true"),
    (2, "layernorm:hidden_size=40000,vector_bytes=8,frozen=true"),
]


@pytest.mark.parametrize("target", [Target("sm_80"), Target("sm_90a")], ids=str)
@pytest.mark.parametrize(("rows", "text"), KERNELS)
def test_gradients_are_those_of_the_cpu(rows: int, text: str, target: Target) -> None:
    if "pdl" in text and not target.has_pdl:
        text = text.replace(",pdl=true", "")
    for kind in ("random", "inf") if rows > 9 else ("random", "nan", "spiky"):
        assert_same(KernelConfig.parse(f"{text},backward=true"), target, rows, kind, is_cuda=True)


# In pairs, in float32, in lanes of several rows, in shared memory with the weight, and with chunks that are not whole.
UNALIGNED = [
    (5, "rmsnorm:hidden_size=1024,vector_bytes=2"),
    (5, "rmsnorm:hidden_size=1111,vector_bytes=2,residual=true"),
    (3, "layernorm:hidden_size=3040,input=float32,weight=float32,vector_bytes=4"),
    (70, "layernorm:hidden_size=100,weight=float32,vector_bytes=8"),
    (70, "rmsnorm:hidden_size=16,vector_bytes=2,bias=true"),
    (2, "layernorm:hidden_size=26000,weight=float32,vector_bytes=4"),
    (5, "rmsnorm:hidden_size=1152,vector_bytes=4,frozen=true"),
]


@pytest.mark.parametrize("moves_all", [False, True])
@pytest.mark.parametrize(("rows", "text"), UNALIGNED)
def test_gradients_of_rows_at_any_address_are_those_of_the_cpu(rows: int, text: str, moves_all: bool) -> None:
    config = KernelConfig.parse(f"{text},backward=true")
    place = as_narrow_as_allowed(config, moves_all=moves_all)
    assert_same(config, Target("sm_90a"), rows, "random", is_cuda=True, place=place)


@pytest.mark.parametrize(("rows", "text"), [(1030, "rmsnorm:hidden_size=1040"), (9000, "layernorm:hidden_size=1040")])
def test_segments_of_several_rows_have_the_bytes_of_the_cpu(rows: int, text: str) -> None:
    """Of more than 32 rows, so that lanes load the statistics of further rows."""
    assert_same(KernelConfig.parse(f"{text},backward=true"), Target("sm_90a"), rows, "random", is_cuda=True)


@pytest.mark.parametrize(("size", "rows", "order"), [(16400, 300, FirstAhead), (4112, 140, partial(Drawn, 0))])
def test_a_cluster_exchanges_the_sums_of_one_row_after_another(size: int, rows: int, order: NewOrder) -> None:
    config = KernelConfig.parse(f"rmsnorm:hidden_size={size},backward=true")
    assert_same(config, Target("sm_90a"), rows, "random", order=order, is_cuda=True)


@pytest.mark.parametrize("text", [f"rmsnorm:hidden_size={size},backward=true" for size in (128, 2048)])
def test_warps_need_not_go_on_together(text: str) -> None:
    for order in (FirstAhead, partial(Drawn, 0)):
        assert_same(KernelConfig.parse(text), Target("sm_90a"), 70, "random", order=order, is_cuda=True)


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        (1, "hidden_size=100,weight=bfloat16"),
        (513, "hidden_size=100,weight=bfloat16"),
        (130, "hidden_size=35,bias=true,vector_bytes=8"),
        (300, "hidden_size=37,vector_bytes=4"),
    ],
)
def test_sums_of_rows_are_those_of_the_cpu(rows: int, text: str) -> None:
    config = KernelConfig.parse(f"sum_rows:input=float32,{text}")
    assert_same(config, Target("sm_90a"), rows, "random", is_cuda=True)


def test_rows_of_segments_whose_sums_were_folded_are_not_looked_at() -> None:
    config = KernelConfig.parse("sum_rows:input=float32,hidden_size=4100,sums_of=float16")
    arrays = make_arrays(config, 200, "random")
    expected = sum_rows_f32(arrays["input"][:64])
    run_on_host(config, Target("sm_90a"), arrays, 200, 0.0, is_cuda=True)
    assert_same_bytes(arrays["out"], expected)


@pytest.mark.parametrize("size", [1152, 20000])
def test_warps_of_whole_and_missing_chunks_exchange_float32_together(size: int) -> None:
    """Otherwise, lanes that store nothing would exchange their chunks elsewhere than the rest of their warp."""
    assert_same(KernelConfig("rmsnorm", size, input="float32"), Target("sm_90a"), 3, "random", is_cuda=True)
