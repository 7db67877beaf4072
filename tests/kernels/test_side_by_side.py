"""Rows side by side leave few lanes idle, and have whole blocks of values on every target."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.few_rows import few_rows_schedule
from jitnorm.kernels.numerics import CHUNK_SIZE, ceil_div, next_power_of_two, round_up
from jitnorm.kernels.row_schedule import WARP_LANES, RowSchedule
from jitnorm.kernels.schedule import row_schedule, why_unfit
from jitnorm.kernels.side_by_side import FOLDING_LANES, MOST_SIDE_BY_SIDE, side_by_side
from jitnorm.kernels.target import Target

HOPPER = Target("sm_90a")
TARGETS = (Target("sm_80"), HOPPER, Target("sm_100a"))
SWIGLU = "quantize:hidden_size={0},weight=none,quant=e4m3/128/f32,gate_columns={0}"
ALONE = "quantize:hidden_size={0},weight=none,quant=e2m1/16/e4m3/128x4"
NORMS = (
    "rmsnorm:hidden_size={}",
    "rmsnorm:hidden_size={},quant=e4m3/32/ue8m0",
    "rmsnorm:hidden_size={},residual=true,quant=e4m3/128/f32",
    "layernorm:hidden_size={},quant=e4m3/row/f32",
    "quantize:hidden_size={},weight=none,quant=int8/row/f32",
)


@pytest.mark.parametrize("size", [640, 1152, 1408, 1536, 1664, 1920, 2816])
@pytest.mark.parametrize(("text", "chunks"), [(SWIGLU, 1), (ALONE, 1), (ALONE, 2)])
def test_separate_parts_leave_no_lane_idle(text: str, size: int, chunks: int) -> None:
    config = KernelConfig.parse(text.format(size))
    schedule = side_by_side(config, chunks, 128)
    assert schedule is not None
    assert schedule.lanes_per_row * chunks * 16 == size
    assert 128 <= schedule.threads <= MOST_SIDE_BY_SIDE
    assert schedule.threads % 32 == 0
    assert [why_unfit(config, target, schedule) for target in TARGETS] == [""] * len(TARGETS)


@pytest.mark.parametrize("size", [1168, 16 * 73, 8192, 5760])
def test_rows_that_fill_no_block_are_not_side_by_side(size: int) -> None:
    assert side_by_side(KernelConfig("quantize", size, weight="none", gate_columns=size), 1, 128) is None


@pytest.mark.parametrize("text", NORMS)
@given(count=st.integers(1, 200), chunks=st.integers(1, 3))
def test_rows_that_meet_lie_so_where_a_quarter_of_the_lanes_would_be_idle(text: str, count: int, chunks: int) -> None:
    """They have a lane for each chunk, and fewer than a warp or the next power of two would."""
    size = CHUNK_SIZE * (round_up(count, 8) if "/128/" in text else round_up(count, 2))
    config, count = KernelConfig.parse(text.format(size)), size // CHUNK_SIZE
    schedule = side_by_side(config, chunks, 64)
    others = min(next_power_of_two(count), round_up(count, WARP_LANES))
    if 4 * count > 3 * others:
        assert schedule is None
    elif schedule is not None and not why_unfit(config, HOPPER, schedule):
        assert count <= schedule.lanes_per_row * chunks < others
        assert schedule.threads % WARP_LANES == schedule.lanes_per_row % FOLDING_LANES == 0
        assert [why_unfit(config, target, schedule) for target in TARGETS] == [""] * len(TARGETS)
        assert chunks == ceil_div(count, schedule.lanes_per_row)


@pytest.mark.parametrize(
    ("text", "few", "usual", "many"),
    [
        ("rmsnorm:hidden_size=320", "1x1wqp8n20", "1x1wqdp8n20", "1x1wqp8n20"),
        ("rmsnorm:hidden_size=192,quant=e4m3/32/ue8m0", "1x1wuqp8n12", "1x1wuqdp8n16", "1x3wup32n4"),
        ("rmsnorm:hidden_size=320,residual=true", "1x1wqp8n20", "1x1wqdp8n20", "1x1wqp8n20"),
        # Blocks of 96 threads signal late where there are activations; many rows compute those of gates early.
        ("rmsnorm:hidden_size=384,gate=norm", "1x1wqp4n24", "1x1wqdp4n24", "1x1wqzp4n24"),
        ("rmsnorm:hidden_size=384,gate=norm,quant=e4m3/tensor/f32", "1x1wqp4n24", "1x1wqdp4n24", "1x1wqzp4n24"),
        ("rmsnorm:hidden_size=384,activation=silu,activates_norm=true", "1x1wuqp4n24", "1x1wuqdp4n24", "1x3wp16n8"),
        ("rmsnorm:hidden_size=384,quant=e2m1/16/e4m3", "1x1wuqp4n24", "", "1x3wqkp16o4n8"),
        ("rmsnorm:hidden_size=384,residual=true,sandwich=true", "1x1wp4", "1x1wqdp4", "1x1wqp4n24"),
        # The parameters of a sum with a branch are loaded late, because they take registers.
        ("layernorm:hidden_size=384,weight=float32,residual=true,branch_gate=true", "1x1wp4", "1x1qdp4", "1x1qp4n24"),
        # The scale of a row is found after its statistic.
        ("rmsnorm:hidden_size=320,quant=e2m1/16/e4m3/linear/row", "1x1wp4", "1x1wqdp8n20", "1x3wp16n8"),
        ("rmsnorm:hidden_size=320,quant=e4m3/row/f32", "1x1wuqp8n20", "1x1wuqdp4", "1x3wup16n8"),
        ("quantize:hidden_size=320,weight=none,quant=e4m3/row/f32", "1x1p8n20", "", "1x1p8n20"),
        ("layernorm:hidden_size=320,weight=float32", "1x1wqp2", "1x1wqdp8n20", "1x3qp16n8"),
        ("layernorm:hidden_size=320,weight=none,bias=false", "1x1wqp2", "1x1wqdp8n20", "1x1wqp8n20"),
        # Nothing is found of rows with separate parts.
        (SWIGLU.format(384), "1x1wp4", "1x1p8n24", "1x1p8n24"),
        (ALONE.format(320), "1x1wp4", "1x1p8n20", "1x1p8n20"),
        # Heads to rotate have as many lanes as they need, and longer rows fill the lanes that others have, too.
        ("quantize:hidden_size=192,angles=bfloat16,rope=neox,pair=true", "1x2p16o9n8", "", "1x2p16o9n8"),
        ("rmsnorm:hidden_size=448", "1x1wulp2", "1x1wqdp4", "1x1wp4"),
        ("rmsnorm:hidden_size=80", "1x1wulp8n8", "1x1wqdp16n8", "1x1wp16n8"),
        ("rmsnorm:hidden_size=320,weights=2", "1x1wp4", "1x1wqdp4", "1x1wp4"),
    ],
)
def test_short_rows_lie_side_by_side_where_they_gain(text: str, few: str, usual: str, many: str) -> None:
    config = KernelConfig.parse(text)
    assert str(row_schedule(config, HOPPER)) == few
    assert few_rows_schedule(config, HOPPER, "usual") == usual
    assert str(row_schedule(KernelConfig.parse(f"{text},many_rows=true"), HOPPER)) == many


@pytest.mark.parametrize(
    ("text", "schedule", "reason"),
    [
        ("rmsnorm:hidden_size=1152,pair=true", "1x1p4n72", "lanes that find something of a row together"),
        ("rmsnorm:hidden_size=1152,streams=2", "1x1p4n72", "lanes that find something"),
        ("rmsnorm:hidden_size=640", "1x1p16n42", "a multiple of 4"),
        ("rmsnorm:hidden_size=2000", "1x2p8n124", "room for no more than whole warps"),
        ("layernorm:hidden_size=1152,weight=float32", "1x1wqkp4o2n72", "do not stay, and copy no parameters"),
        ("layernorm:hidden_size=1152,weight=float32", "1x1cp4n72", "do not stay, and copy no parameters"),
        (SWIGLU.format(1152), "1x2p8n36", "36 lanes are not those of whole blocks of 128 elements"),
        (SWIGLU.format(1152), "1x1p3n72", "whole warps"),
    ],
)
def test_rows_that_cannot_meet_or_split_a_block_are_not_side_by_side(text: str, schedule: str, reason: str) -> None:
    assert reason in why_unfit(KernelConfig.parse(text), HOPPER, RowSchedule.parse(schedule))
