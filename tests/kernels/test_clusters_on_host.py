"""The blocks of a cluster exchange what they share of a row, whichever of their warps are ahead, and in any order."""

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

from cute_on_host import assert_same
from warp_orders import Drawn, FirstAhead, NewOrder, Together

HOPPER = Target("sm_90a")

# One to three exchanges, of one sum a lane and of four, of halves of chunks, of warps without a group, of magnitudes,
# also if the second of two rows is missing; and none.
CONFIGS = [
    "rmsnorm:hidden_size=4096,pdl=true,schedule=8x1wuqlb8",
    "rmsnorm:hidden_size=8192,residual=true,schedule=4x4qb2",
    "rmsnorm:hidden_size=4112,residual=true,schedule=10x1qhb2",
    "rmsnorm:hidden_size=4608,schedule=16x1b8",
    "rmsnorm:hidden_size=4096,residual=true,sandwich=true,schedule=8x1whb4",
    "layernorm:hidden_size=4112,weight=float32,pdl=true,schedule=12x1qdb4",
    "layernorm:hidden_size=8192,weight=float32,quant=e4m3/row/f32,schedule=8x2qhb4",
    "rmsnorm:hidden_size=4608,quant=e4m3/96/f32,schedule=12x1b4",
    "quantize:hidden_size=4608,quant=int8/48/f32,schedule=4x3b2",
    "layernorm:hidden_size=4608,weight=float32,quant=int8/48/f32,schedule=10x1r2b2",
    "layernorm:hidden_size=4112,quant=e4m3/row/f32,schedule=12x1qr2b4",
    "quantize:hidden_size=4096,quant=e4m3/row/f32,gate_columns=4096,schedule=4x2lb4",
    "quantize:hidden_size=2048,streams=4,sinkhorn=20,schedule=4x1b2",
]


@pytest.mark.parametrize("text", CONFIGS)
def test_a_cluster_writes_the_bytes_of_the_cpu(text: str) -> None:
    for order, kind in ((FirstAhead, "nan"), (partial(Drawn, 0), "random")):
        assert_same(KernelConfig.parse(text), HOPPER, 3, kind, is_cuda=True, order=order)


def test_a_cluster_processes_one_row_after_another() -> None:
    config = KernelConfig.parse("quantize:hidden_size=2048,streams=4,sinkhorn=20,prenorm=true,schedule=4x1b2")
    for order in (FirstAhead, partial(Drawn, 0)):
        assert_same(config, HOPPER, 7, "random", is_cuda=True, order=order, most_blocks=4)


# Resident pairs of blocks, whose sums alternate or not, with parameters in registers or in shared memory, halves of
# chunks, magnitudes of rows, and two rows at once, of which the last may be missing.
RESIDENT = [
    "rmsnorm:hidden_size=4112,pdl=true,schedule=10x1wqkb2o2",
    "rmsnorm:hidden_size=4096,residual=true,schedule=8x1wqhkb2o2",
    "rmsnorm:hidden_size=4608,quant=e4m3/row/f32,pdl=true,schedule=10x1wqkr2b2o2",
    "rmsnorm:hidden_size=2048,quant=e2m1/16/e4m3/linear/row,schedule=4x1wqkb2o2",
    "layernorm:hidden_size=4128,quant=e4m3/32/ue8m0/128x4,pdl=true,schedule=10x1uqckb2o2",
    "layernorm:hidden_size=4096,schedule=4x2uqckr2b2o2",
    "layernorm:hidden_size=4112,quant=e4m3/row/f32,schedule=10x1qckb2o2",
    "layernorm:hidden_size=4096,keep_statistics=true,schedule=8x1wuqkb2o2",
]


@pytest.mark.parametrize(("blocks", "order"), [(2, partial(Drawn, 1)), (4, FirstAhead), (14, Together)])
@pytest.mark.parametrize("text", RESIDENT)
def test_a_resident_cluster_processes_one_row_after_another(text: str, blocks: int, order: NewOrder) -> None:
    assert_same(KernelConfig.parse(text), HOPPER, 7, "random", is_cuda=True, order=order, most_blocks=blocks)
