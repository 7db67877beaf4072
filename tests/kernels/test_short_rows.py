"""Schedules of rows of up to three groups, several of which may share a warp."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.few_rows import few_rows_schedule
from jitnorm.kernels.numerics import CHUNK_SIZE, next_power_of_two, round_up
from jitnorm.kernels.packed_rows import packed_schedule, packings
from jitnorm.kernels.row_schedule import WARP_LANES, RowSchedule
from jitnorm.kernels.schedule import row_schedule, why_unfit
from jitnorm.kernels.target import Target

from jitnorm.fitted_forms import form_key
from jitnorm.tuning import schedule_for, tuning_key

HOPPER = Target("sm_90a")
NVFP4 = KernelConfig.parse("rmsnorm:hidden_size=384,quant=e2m1/16/e4m3,many_rows=true")
BY_COLUMNS = "quantize:hidden_size={},quant=e4m3/column/f32/linear/given"


def schedule_of(text: str) -> str:
    return str(row_schedule(KernelConfig.parse(text), HOPPER))


@pytest.mark.parametrize(
    ("text", "schedule"),
    [
        ("rmsnorm:hidden_size=384,quant=e2m1/32/ue8m0", "1x3wup16n8"),
        ("rmsnorm:hidden_size=768,quant=e4m3/tensor/f32", "1x3wup8n16"),
        # Of as many idle lanes, those with two chunks; four lanes at least.
        ("rmsnorm:hidden_size=512,quant=e4m3/tensor/f32", "1x2wup8n16"),
        ("rmsnorm:hidden_size=64,quant=e2m1/16/e4m3", "1x1wup32n4"),
        # The normalized row is held as floats.
        ("rmsnorm:hidden_size=768,quant=e2m1/16/e4m3/linear/row", "1x3wp8n16"),
        ("rmsnorm:hidden_size=912,quant=e2m1/16/e4m3", "1x2wp2"),
        ("quantize:hidden_size=720,quant=e2m1/16/e4m3", "1x3p8n16"),
        ("quantize:hidden_size=512,quant=e2m1/16/e4m3", "1x2p8n16"),
        # Separate parts of more than a group lie side by side.
        ("quantize:hidden_size=768,quant=e2m1/16/e4m3", "1x2p8n24"),
        ("quantize:hidden_size=576,quant=e2m1/16/e4m3,gate_columns=576", "1x2p16n18"),
        # GELU of bfloat16 that is only rounded is bound by memory.
        ("quantize:hidden_size=720,quant=none,weight=none,activation=gelu", "1x2wp4"),
        ("quantize:hidden_size=720,input=float16,quant=none,weight=none,activation=gelu", "1x3p8n16"),
        ("quantize:hidden_size=128,quant=none,weight=none,activation=gelu", "1x2p32n4"),
        ("rmsnorm:hidden_size=512,activation=silu,activates_norm=true", "1x2wp8n16"),
        ("rmsnorm:hidden_size=512,gate=norm,quant=e4m3/tensor/f32", "1x2wp8n16"),
        # Bound by memory: only if a quarter of the lanes would be idle, of more than 512 elements a third.
        ("quantize:hidden_size=512,quant=e4m3/128/f32", "1x1wp4"),
        ("quantize:hidden_size=768,quant=e4m3/tensor/f32", "1x2wp4"),
        ("rmsnorm:hidden_size=768,gate=norm", "1x3p8n16"),
        ("quantize:hidden_size=384,quant=e2m1/16/e4m3/linear/none/up/true", "1x3p16n8"),
        ("quantize:hidden_size=672,quant=none,weight=none,gate_columns=672", "1x3p8n16"),
        ("quantize:hidden_size=448,quant=none,weight=none,gate_columns=448", "1x1wp4"),
        ("rmsnorm:hidden_size=448,residual=true,quant=e2m1/16/e4m3", "1x1wp4"),
        # Parameters of layer normalization in shared memory.
        ("layernorm:hidden_size=384,weight=float32,quant=e4m3/row/f32", "1x3qp16n8"),
        ("layernorm:hidden_size=384,weight=bfloat16,quant=e4m3/tensor/f32", "1x1uap24o1"),
        ("layernorm:hidden_size=128,weight=bfloat16,quant=e4m3/tensor/f32", "1x1wqr2p16n8"),
        ("layernorm:hidden_size=768,weight=float32", "1x3qp8n16"),
        # In registers: of a group, unless three chunks per lane leave no lane idle.
        ("layernorm:hidden_size=384,weight=float32,quant=e4m3/tensor/f32", "1x1wuqkr2p4o4"),
        ("layernorm:hidden_size=128,weight=float32,quant=e4m3/32/ue8m0", "1x1wuqkr2p16o4n8"),
        ("layernorm:hidden_size=192,weight=float32,quant=int8/tensor/f32", "1x3qp32n4"),
        ("layernorm:hidden_size=64,weight=float32,quant=e4m3/tensor/f32", "1x1wqr2p32n4"),
        ("layernorm:hidden_size=384,weight=float32", "1x3qp16n8"),
        ("rmsnorm:hidden_size=384,quant=e2m1/16/e4m3", "1x3wqkp16o4n8"),
        ("rmsnorm:hidden_size=512,quant=e2m1/16/e4m3/linear/given", "1x2wqkp8o4n16"),
        ("rmsnorm:hidden_size=384,weight=none,quant=e2m1/16/e4m3", "1x3wup16n8"),
    ],
)
def test_many_rows_share_warps_where_that_takes_less(text: str, schedule: str) -> None:
    assert schedule_of(f"{text},many_rows=true") == schedule


@pytest.mark.parametrize(
    ("text", "schedule"),
    [
        # Blocks of 64 threads with a norm, of 128 without.
        ("rmsnorm:hidden_size=128,angles=bfloat16", "1x2p16n4"),
        ("rmsnorm:hidden_size=256,quant=e4m3/tensor/f32", "1x2p8n8"),
        ("quantize:hidden_size=64,angles=bfloat16,paged=true", "1x2p64n2"),
        ("quantize:hidden_size=128,angles=bfloat16", "1x2p32o9n4"),
        # Many heads with a norm that go to a cache await their positions.
        ("rmsnorm:hidden_size=128,angles=bfloat16,paged=true", "1x2p16n4"),
        ("rmsnorm:hidden_size=128,angles=bfloat16,paged=true,many_rows=true", "1x2p32n4"),
        # Fewer blocks cost few tokens of FP8 more than they gain, and angles in float32 take more registers anyway.
        ("quantize:hidden_size=128,angles=bfloat16,quant=e4m3/tensor/f32", "1x2p32n4"),
        ("quantize:hidden_size=128,angles=bfloat16,quant=e4m3/tensor/f32,many_rows=true", "1x2p32o9n4"),
        ("quantize:hidden_size=128,quant=e4m3/tensor/f32,many_rows=true", "1x2p32n4"),
    ],
)
def test_lanes_hold_two_chunks_of_heads_to_rotate(text: str, schedule: str) -> None:
    assert schedule_of(f"{text},pair=true,rope=neox") == schedule


@pytest.mark.parametrize(
    ("text", "few", "usual", "many"),
    [
        ("rmsnorm:hidden_size=80", "1x1wp8n8", "1x1wp16n8", "1x1wp16n8"),
        ("quantize:hidden_size=144,quant=e4m3/tensor/f32", "1x1wp8n16", "1x1wp16n16", "1x1wp16n16"),
        # Whole chunks: pairs of them, accesses of less than half a chunk, parts of a head.
        ("rmsnorm:hidden_size=96", "1x2p16n4", "", "1x2p16n4"),
        ("rmsnorm:hidden_size=80,vector_bytes=8", "1x1wp16n8", "", "1x1wp16n8"),
        ("rmsnorm:hidden_size=80,rotary_size=48", "1x1wp16n8", "", "1x1wp16n8"),
        # Two chunks in a lane, of heads that are neither few nor many.
        ("quantize:hidden_size=128,angles=bfloat16,quant=e4m3/tensor/f32", "1x2p32n4", "1x2p32o9n4", "1x2p32o9n4"),
        ("quantize:hidden_size=128,angles=bfloat16,quant=e4m3/tensor/f32,paged=true", "1x2p32n4", "", "1x2p32n4"),
    ],
)
def test_heads_of_an_odd_number_of_chunks_are_split(text: str, few: str, usual: str, many: str) -> None:
    heads = f"{text},pair=true,rope=neox"
    assert [schedule_of(heads), schedule_of(f"{heads},many_rows=true")] == [few, many]
    assert few_rows_schedule(KernelConfig.parse(heads), HOPPER, "usual") == usual


def test_heads_to_rotate_keep_their_lanes() -> None:
    heads = KernelConfig.parse("rmsnorm:hidden_size=80,pair=true,rope=neox")
    found = {text: why_unfit(heads, HOPPER, RowSchedule.parse(text)) for text in ("1x1p32n8", "1x2p16n4", "1x1p3n8")}
    assert found == {
        "1x1p32n8": "",
        "1x2p16n4": "heads to rotate have as many lanes as they need, as in 1x1wp8n8",
        "1x1p3n8": "blocks are up to 32 whole warps",
    }


@given(st.integers(1, 96))
def test_packing_leaves_no_more_lanes_idle_than_a_chunk_per_lane(chunks: int) -> None:
    config = replace(NVFP4, hidden_size=chunks * CHUNK_SIZE)
    packed = packed_schedule(config)
    if packed is not None:
        assert not why_unfit(config, HOPPER, packed)
        whole = min(next_power_of_two(chunks), round_up(chunks, WARP_LANES))
        assert packed.lanes_per_row * packed.chunks_per_lane <= whole
        assert packed.threads % WARP_LANES == 0
    for each in packings(config):
        assert (each.chunks_per_lane - 1) * each.lanes_per_row < chunks <= each.chunks_per_lane * each.lanes_per_row


@pytest.mark.parametrize("gates", ["", ",gate_columns=-1"])
@pytest.mark.parametrize("block", [16, 32, 48, 64, 96, 128, 256])
def test_rows_that_share_warps_have_whole_blocks(block: int, gates: str) -> None:
    """Else the lanes of a block would find the largest magnitude of only a part of it."""
    for size in range(block, 1537, block):
        config = KernelConfig.parse(f"quantize:hidden_size={size},quant=e4m3/{block}/f32,many_rows=true{gates}")
        packed = packed_schedule(config)
        assert packed is None or why_unfit(config, HOPPER, packed) == "", size


def test_parameters_stay_in_registers_where_nvfp4_is_bound_by_instructions() -> None:
    assert row_schedule(NVFP4, HOPPER).stays_resident
    assert not row_schedule(NVFP4, Target("sm_100a")).stays_resident


def test_fewer_rows_do_not_share_warps_so() -> None:
    assert packed_schedule(replace(NVFP4, many_rows=False)) is None
    assert schedule_of("rmsnorm:hidden_size=448,quant=e2m1/16/e4m3") == "1x1wqp2"


@pytest.mark.parametrize(
    ("text", "few", "usual"),
    [
        ("layernorm:hidden_size=448,weight=float32", "1x1wqp2", "1x1wqdp4"),
        ("layernorm:hidden_size=128,weight=float32,quant=e4m3/32/ue8m0", "1x1wqp8n8", "1x1wqdp16n8"),
        ("rmsnorm:hidden_size=512,quant=e4m3/row/f32", "1x1wqp2", "1x1wuqdp4"),
        # A given scale, in blocks of as many threads; the fast path only for more rows if a row's scale is divided by.
        ("rmsnorm:hidden_size=256,quant=e4m3/tensor/f32", "1x1wqp8n16", ""),
        ("rmsnorm:hidden_size=448,quant=e2m1/16/e4m3/linear/row", "1x1wp4", "1x1wqdp4"),
        # The fast path gains nothing, or nothing if rows are few.
        ("layernorm:hidden_size=384,weight=none,modulated=true", "1x1wp4", ""),
        ("rmsnorm:hidden_size=448,activation=silu,activates_norm=true", "1x1wp4", "1x1wqdp4"),
        ("rmsnorm:hidden_size=448,residual=true,quant=e2m1/16/e4m3", "1x1wp4", "1x1wqdp4"),
    ],
)
def test_short_rows_take_the_fast_path_few_of_them_in_small_blocks(text: str, few: str, usual: str) -> None:
    assert schedule_of(text) == few
    assert few_rows_schedule(KernelConfig.parse(text), HOPPER, "usual") == usual


@pytest.mark.parametrize(
    ("text", "usual"),
    [
        ("rmsnorm:hidden_size=320,quant=e4m3/32/ue8m0", "1x1wuqdp8n20"),
        ("layernorm:hidden_size=64,weight=float32", "1x1wqdp32n4"),
        ("layernorm:hidden_size=512,weight=float32,gate_bias=true,residual=true", "1x1qdp4"),
        ("rmsnorm:hidden_size=384,streams=2", "1x3dp16n8"),
        ("rmsnorm:hidden_size=448,streams=2", "1x1dp4"),
        ("rmsnorm:hidden_size=384,streams=4", "1x1wqdp4"),
        # Small blocks of rows side by side, norms without a weight, and the shortest rows do not.
        ("rmsnorm:hidden_size=384", ""),
        ("rmsnorm:hidden_size=448,weight=none", "1x1wp4"),
        ("rmsnorm:hidden_size=48", "1x1wp32n4"),
    ],
)
def test_norms_signal_late_unless_they_are_few(text: str, usual: str) -> None:
    assert few_rows_schedule(KernelConfig.parse(text), HOPPER, "usual") == usual


def test_many_rows_of_two_streams_have_three_chunks_per_lane_where_that_leaves_none_idle() -> None:
    found = [schedule_of(f"rmsnorm:hidden_size={size},streams=2,many_rows=true") for size in (256, 272, 384, 400)]
    assert found == ["1x1wp8n16", "1x3qp8n8", "1x3qp8n8", "1x1wp4"]
    assert schedule_of("rmsnorm:hidden_size=384,streams=4,many_rows=true") == "1x1wqp4"


@pytest.mark.parametrize(
    ("form", "found"), [("1w", ["", "2x1w", "2x1w"]), ("1f64w|1w", ["1x1wp2n48", "2x1w", "1x1wp2n48"])]
)
def test_rows_that_share_warps_come_before_forms_unless_these_meet_side_by_side(form: str, found: list[str]) -> None:
    forms = {(str(form_key(tuning_key(NVFP4))), each): f"2:{form}" for each in ("usual", "many")}

    def schedule_at(size: int, row_class: str) -> str:
        config = replace(NVFP4, hidden_size=size, many_rows=row_class == "many")
        return schedule_for(config, HOPPER, row_class, {}, forms)

    assert [schedule_at(768, "many"), schedule_at(1024, "many"), schedule_at(768, "usual")] == found


def test_threads_find_the_reciprocals_of_columns_for_several_rows() -> None:
    assert [schedule_of(BY_COLUMNS.format(size)) for size in (128, 384, 912, 1200)] == [
        "1x1wp16n8", "1x1wr2p4", "2x1r4", "3x1r4",
    ]  # fmt: skip
    config = KernelConfig.parse(BY_COLUMNS.format(912))
    assert [few_rows_schedule(config, HOPPER, each) for each in ("some", "usual")] == ["2x1", ""]


def test_streams_that_are_summed_first_have_blocks_of_several_rows() -> None:
    text = "quantize:hidden_size={},weight=none,streams=4,sinkhorn=20,prenorm=true"
    found = [schedule_of(text.format(size)) for size in (640, 1200, 2048, 4096, 8192, 16384)]
    assert found == ["1x2p4o4", "3x1o6", "4x1", "4x2", "8x2o2", "16x2o1"]
    assert schedule_of(text.format(384) + ",many_rows=true") == "1x2p8n16"
    config = KernelConfig.parse(text.format(640))
    assert [few_rows_schedule(config, HOPPER, each) for each in ("few", "some")] == ["2x1", ""]
    # In float32, a lane holds one chunk.
    assert schedule_of(text.format(1024) + ",input=float32") == "2x1"
