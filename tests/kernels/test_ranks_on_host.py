"""Kernels for rows that ranks share have the bytes of the reference, in whatever order their warps advance."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from jitnorm.kernels.all_reduce_rules import MAX_RANKS
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.numerics import ceil_div
from jitnorm.kernels.quant_spec import QuantSpec
from jitnorm.kernels.target import Target

from jitnorm import FP8_TOKEN
from jitnorm.comm.layout import Layout
from jitnorm.reference import rank_sum_f32, rmsnorm_f32, round_to
from jitnorm.toolchains import ToolchainMissingError
from jitnorm.toolchains.nvrtc import Nvrtc

try:
    Nvrtc()
except ToolchainMissingError as error:
    pytest.skip(str(error), allow_module_level=True)

from cute_on_host import Arrays
from encoded import encoded
from expected import assert_same_bytes
from inputs import make_input, make_weight
from ranks_on_host import RanksOnHost
from warp_orders import Drawn, HalfLater

SIZE, MOST_ROWS = 2048, 8
# Each method alone, with rows that a cluster shares, and with more ranks, some of which may have no row.
CASES = [
    (method, rounds_sum, spec, schedule, ranks)
    for method, rounds_sum in (
        ("one_shot", True), ("one_shot", False), ("two_shot", True), ("two_shot", False), ("sharded", True),
        ("one_shot_scatter", True), ("reduce_scatter", False), ("all_gather", False),
    )
    for spec, schedule, ranks in ((None, "", 2), (FP8_TOKEN, "4x1b2", 2), (QuantSpec("e2m1", 16, "e4m3"), "2x2", 3))
]  # fmt: skip


def config_of(method: str, rounds_sum: bool, spec: QuantSpec | None, schedule: str, ranks: int) -> KernelConfig:
    return KernelConfig(
        "rmsnorm", SIZE, "float16", "float16", residual=True, quant=spec, all_reduce=method, ranks=ranks,
        rounds_sum=rounds_sum, schedule=schedule,
    )  # fmt: skip


def ranks_of(config: KernelConfig, deadline: float) -> RanksOnHost:
    layout = Layout(config.ranks, MOST_ROWS, MOST_ROWS, SIZE, "float16", output_bytes=1 << 18)
    return RanksOnHost(config, Target("sm_90a"), layout, deadline=deadline)


def own_rows(config: KernelConfig, rank: int, rows: int) -> slice:
    """A rank's of all rows that are summed, or of those that all gather."""
    each = rows // config.ranks if config.all_reduce == "all_gather" else ceil_div(rows, config.ranks)
    return slice(min(rows, rank * each), min(rows, rank * each + each))


def drawn_call(config: KernelConfig, rows: int, seed: int) -> tuple[list[Arrays], Arrays]:
    """The inputs of each rank, with zeros of both signs, and the outputs of all rows, by the reference."""
    gathers = config.all_reduce == "all_gather"
    shares = [make_input("random", rows, SIZE, "float16", 10 * seed + rank) for rank in range(config.ranks)]
    for share in shares:
        share[:, ::3] = -0.0
    total = np.concatenate(shares).astype(np.float32) if gathers else rank_sum_f32(shares, round_sum=config.rounds_sum)
    residual, weight = make_input("random", len(total), SIZE, "float16", 10 * seed + 9), make_weight(SIZE, "float16")
    y = rmsnorm_f32(total, weight.astype(np.float32), residual=residual)
    expected = {"residual_out": round_to(total + residual.astype(np.float32), residual.dtype)}
    if config.quant is None:
        expected["out"] = round_to(y, residual.dtype)
    else:
        encoding = encoded(y, config.quant, None)
        expected |= {"y_fp4" if config.quant.element == "e2m1" else "out": encoding["data"]}
        expected |= {"block_scale" if config.quant.has_blocks else "row_scale": encoding["scale"]}
    has_part = config.scatters or gathers
    parts = [own_rows(config, rank, len(total)) if has_part else slice(None) for rank in range(config.ranks)]
    return [
        {"input": share, "residual": residual[part], "weight": weight}
        for share, part in zip(shares, parts, strict=True)
    ], expected


@pytest.mark.parametrize(("method", "rounds_sum", "spec", "schedule", "ranks"), CASES)
def test_calls_one_after_another_have_the_bytes_of_the_reference(
    method: str, rounds_sum: bool, spec: QuantSpec | None, schedule: str, ranks: int
) -> None:
    config = config_of(method, rounds_sum, spec, schedule, ranks)
    on_host = ranks_of(config, deadline=60.0)
    for seed, rows in enumerate((3, 1, 4, 4)):
        given, expected = drawn_call(config, rows, seed)
        for rank, outputs in enumerate(on_host.call(given, partial(Drawn, seed))):
            assert not on_host.status[rank].any()
            assert outputs.keys() == expected.keys()
            for name, found in outputs.items():
                is_kept = name == "residual_out" and method in ("sharded", "all_gather")
                part = own_rows(config, rank, len(expected[name])) if is_kept or config.scatters else slice(None)
                own = part if method == "sharded" and is_kept else slice(None)  # of a tensor for all rows
                assert_same_bytes(found[own], expected[name][part], f"{name} of rank {rank}")


@pytest.mark.parametrize(("method", "rounds_sum", "spec", "schedule", "ranks"), CASES)
def test_a_rank_that_does_not_come_is_named_and_no_kernel_waits_forever(
    method: str, rounds_sum: bool, spec: QuantSpec | None, schedule: str, ranks: int
) -> None:
    config = config_of(method, rounds_sum, spec, schedule, ranks)
    on_host = ranks_of(config, deadline=0.02)
    given, _ = drawn_call(config, 3, 0)
    on_host.call([*given[:-1], None], partial(Drawn, 0))
    for status in on_host.status[:-1]:
        late, disagreeing = status[:MAX_RANKS], status[MAX_RANKS:]
        assert late[ranks - 1] == 1
        assert not disagreeing.any()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("method", "rounds_sum"), [("two_shot", True), ("two_shot", False), ("reduce_scatter", False)])
def test_the_blocks_of_a_cluster_agree_on_whether_a_rank_came_in_time(method: str, rounds_sum: bool, seed: int) -> None:
    """Some look again before the deadline, others after it: one that ended would not receive what others send it."""
    config = config_of(method, rounds_sum, FP8_TOKEN, "4x1b4", 2)
    for steps in (1500, 2000, 2500):
        given, _ = drawn_call(config, 4, seed)
        ranks_of(config, deadline=0.001).call(given, partial(HalfLater, seed, steps))
