"""Schedules named in a configuration: their texts, and whether they fit a row."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.generator import generate
from jitnorm.kernels.launch_recipe import launch_recipe
from jitnorm.kernels.row_schedule import RowSchedule
from jitnorm.kernels.schedule import row_schedule, why_unfit
from jitnorm.kernels.target import Target
from recipe_extents import evaluate
from scheduled_configs import CONFIGS

AMPERE, HOPPER = Target("sm_80"), Target("sm_90a")


def schedules() -> st.SearchStrategy[RowSchedule]:
    """All schedules that have a name."""
    counts, flags = st.integers(1, 99), st.tuples(*[st.booleans()] * 14)
    numbers = st.tuples(
        st.sampled_from([1, 2, 3, 4]), st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 4, 8]), st.integers(0, 99)
    )
    return st.builds(lambda warps, chunks, f, n: RowSchedule(warps, chunks, *f, *n), counts, counts, flags, numbers)


@given(schedules())
def test_the_text_of_a_schedule_reads_back(schedule: RowSchedule) -> None:
    text = str(schedule)
    assert RowSchedule.parse(text) == schedule
    config = KernelConfig("rmsnorm", 4096, schedule=text)
    assert KernelConfig.parse(str(config)) == config


def test_the_texts_that_tables_hold_mean_what_they_meant() -> None:
    assert {text: RowSchedule.parse(text) for text in ("4x2", "8x1wql", "16x2wao2", "4x4r2", "1x3p2", "14x1we")} == {
        "4x2": RowSchedule(4, 2),
        "8x1wql": RowSchedule(8, 1, prefetches_weight=True, takes_fast_path=True, favours_latency=True),
        "16x2wao2": RowSchedule(16, 2, prefetches_weight=True, loads_ahead=True, resident_blocks=2),
        "4x4r2": RowSchedule(4, 4, rows_at_once=2),
        "1x3p2": RowSchedule(1, 3, rows_per_block=2),
        "14x1we": RowSchedule(14, 1, prefetches_weight=True, stores_sum_early=True),
    }
    wide, shared = RowSchedule.parse("16x4b2"), RowSchedule.parse("8x1uaso4")
    assert (wide.threads_per_row, wide.threads, wide.blocks_per_row) == (512, 256, 2)
    assert shared.keeps_unpacked
    assert shared.stays_shared


def test_up_to_seven_chunks_are_encoded_at_once_and_eight_in_two_rounds() -> None:
    held = [RowSchedule(1, chunks) for chunks in range(1, 9)]
    assert [each.chunks_at_once for each in held] == [1, 2, 3, 4, 5, 6, 7, 4]
    assert RowSchedule(16, 20, holds_row=False).chunks_at_once == 1


def test_rows_that_are_too_long_for_a_block_are_not_held() -> None:
    schedules = [row_schedule(KernelConfig("rmsnorm", size), AMPERE) for size in (64, 512, 4096, 131072)]
    assert [schedule.holds_row for schedule in schedules] == [True, True, True, False]


@pytest.mark.parametrize(
    "text", ["4", "x2", "0x2", "4x2r1", "4x2b1", "4x2o0", "4x2ew", "4x2au", "4x2sa", "4x2lq", "fast", " 4x2", "4x2 "]
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"schedule: is .*; write warps x chunks per lane, such as 4x2"):
        KernelConfig("rmsnorm", 4096, schedule=text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("rmsnorm:hidden_size=128,pair=true,rope=neox,rotary_size=128,schedule=1x1", "heads to rotate"),
        ("rmsnorm:hidden_size=384,schedule=1x2wp16n8", "the 24 chunks of a row are not 2 or one less for each of 8"),
        ("rmsnorm:hidden_size=384,schedule=1x3wp2n8", "blocks are up to 32 whole warps"),
        ("rmsnorm:hidden_size=384,schedule=1x3r3p16n8", "a lane holds 7 chunks"),
        ("rmsnorm:hidden_size=256,quant=e4m3/128/f32,schedule=1x4wp8n4", "a block of 128 elements has more lanes"),
        ("rmsnorm:hidden_size=4096,schedule=4x1", "the 8 groups of a row"),
        ("rmsnorm:hidden_size=4096,schedule=4x3", "the 8 groups of a row"),
        ("rmsnorm:hidden_size=4096,schedule=9x1", "the 8 groups of a row"),
        ("rmsnorm:hidden_size=8192,residual=true,schedule=2x8", "a lane holds 4 chunks"),
        ("rmsnorm:hidden_size=8192,residual=true,schedule=4x4r2", "a lane holds 4 chunks"),
        ("rmsnorm:hidden_size=16896,schedule=33x1", "up to 32 warps"),
        ("rmsnorm:hidden_size=2560,schedule=5x1b2", "as many as the others"),
        ("rmsnorm:hidden_size=4096,schedule=8x1wa", "as many as run at once: say how many with o"),
        ("rmsnorm:hidden_size=32768,schedule=16x4ao4", "has shared memory for 3 rows"),
        ("rmsnorm:hidden_size=4096,schedule=8x1ab2o4", "a block that loads a row ahead has one row"),
        ("rmsnorm:hidden_size=4100,vector_bytes=8,schedule=9x1ao4", "whole chunks in accesses of 16 bytes"),
        ("rmsnorm:hidden_size=4104,schedule=9x1ao4", "whole chunks in accesses of 16 bytes"),
        ("rmsnorm:hidden_size=4096,batched=true,schedule=8x1ao4", "only norms of one tensor"),
        ("quantize:hidden_size=4096,quant=e2m1/16/e4m3,schedule=8x1ao4", "only norms of one tensor"),
        ("rmsnorm:hidden_size=4608,quant=e4m3/48/f32,schedule=9x1ao4", "blocks of 48 values take the shared memory"),
        ("rmsnorm:hidden_size=4096,residual=true,schedule=8x1u", "only norms of 16-bit values without a residual"),
        ("rmsnorm:hidden_size=4096,input=float32,schedule=8x1u", "only norms of 16-bit values without a residual"),
        ("quantize:hidden_size=4096,quant=e2m1/16/e4m3,schedule=8x1u", "only norms of 16-bit values"),
        ("quantize:hidden_size=4096,quant=e2m1/16/e4m3,schedule=8x1q", "only norms have a statistic"),
        ("quantize:hidden_size=4096,quant=e2m1/16/e4m3,schedule=8x1l", "only rows with a statistic or a scale"),
        ("rmsnorm:hidden_size=4096,schedule=8x1lao4", "only rows with a statistic or a scale"),
        ("quantize:hidden_size=4096,quant=e2m1/16/e4m3,schedule=8x1d", "only norms signal dependents late"),
        ("rmsnorm:hidden_size=4096,residual=true,schedule=8x1qld", "with a residual, a schedule that favours latency"),
        ("rmsnorm:hidden_size=4096,schedule=8x1dao4", "unless blocks are persistent"),
        ("rmsnorm:hidden_size=4096,schedule=8x1wqlko4", "only rows with a statistic or a scale"),
        ("rmsnorm:hidden_size=4096,schedule=8x1wdko4", "unless blocks are persistent"),
        (
            "rmsnorm:hidden_size=4096,schedule=8x1aso4",
            "only rows of which gradients are computed stay in shared memory",
        ),
        ("rmsnorm:hidden_size=4096,residual=true,schedule=8x1e", "no sum with a residual is stored late"),
        ("rmsnorm:hidden_size=4096,quant=e2m1/16/e4m3,schedule=8x1e", "no sum with a residual is stored late"),
        # Rows that share a warp have the same options as others.
        ("quantize:hidden_size=544,quant=e4m3/tensor/f32,schedule=1x3hp8n16", "split chunks"),
        ("quantize:hidden_size=544,quant=e4m3/tensor/f32,schedule=1x3cp8n16", "only norms with one weight"),
        ("quantize:hidden_size=544,quant=e4m3/tensor/f32,schedule=1x3sp8n16", "only rows of which gradients"),
        ("quantize:hidden_size=544,quant=e4m3/tensor/f32,schedule=1x3qp8n16", "only norms have a statistic"),
        ("rmsnorm:hidden_size=544,residual=true,schedule=1x3up8n16", "only norms of 16-bit values without a residual"),
        ("quantize:hidden_size=256,experts=4,quant=e2m1/16/e4m3,schedule=1x1r2p8n16", "each row of experts"),
        # However many rows share a block.
        ("rmsnorm:hidden_size=1536,schedule=1x3p40", "a block has up to 32 warps"),
        ("layernorm:hidden_size=5856,weight=float32,schedule=6x2uap8o1", "a block has up to 32 warps"),
    ],
)
def test_a_schedule_that_does_not_fit_the_row_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=f"schedule: is .* elements per row, but .*{reason}"):
        generate(KernelConfig.parse(text), HOPPER)


def test_a_schedule_is_for_gpus_and_clusters_for_those_that_have_them() -> None:
    with pytest.raises(ValueError, match="CPU kernels do not divide rows"):
        generate(KernelConfig("rmsnorm", 4096, schedule="4x2"), Target("cpu"))
    with pytest.raises(ValueError, match="sm_80 has no clusters"):
        generate(KernelConfig("rmsnorm", 4096, schedule="8x1b2"), AMPERE)
    with pytest.raises(ValueError, match="op: is 'dequantize', which has no schedule"):
        KernelConfig.parse("dequantize:hidden_size=4096,quant=e2m1/16,schedule=4x2")


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_naming_the_rules_schedule_gives_the_rules_code(config: KernelConfig) -> None:
    schedule = row_schedule(config, HOPPER)
    if not schedule.holds_row or why_unfit(config, HOPPER, schedule):
        assert config.hidden_size in (512, 131072)
        return
    named = generate(replace(config, schedule=str(schedule)), HOPPER).text
    assert named.splitlines()[1:] == generate(config, HOPPER).text.splitlines()[1:]


def test_room_for_more_blocks_is_asked_of_the_compiler() -> None:
    text = generate(KernelConfig("rmsnorm", 4096, schedule="8x1o6"), HOPPER).text
    assert "__launch_bounds__(kThreads, 6) jitnorm_kernel(" in text
    assert "__launch_bounds__(kThreads) jitnorm_kernel(" in generate(KernelConfig("rmsnorm", 4096), HOPPER).text


def test_blocks_that_load_a_row_ahead_are_as_many_as_run_at_once() -> None:
    recipe = launch_recipe(KernelConfig.parse("rmsnorm:hidden_size=4096,residual=true,schedule=8x1wao4"), HOPPER)
    assert [evaluate(recipe["grid"], rows) for rows in (1, 528, 529)] == [1, 528, 528]
    assert recipe["shared_bytes"] == 2 * 4096 * 2


def test_blocks_that_keep_parameters_are_as_many_as_run_at_once() -> None:
    recipe = launch_recipe(KernelConfig.parse("layernorm:hidden_size=2432,schedule=5x1wqkr2o4"), HOPPER)
    assert [evaluate(recipe["grid"], rows) for rows in (1, 1056, 1057)] == [1, 528, 528]
    assert recipe["shared_bytes"] == 0


def test_chunks_of_blocks_that_cross_warps_share_their_amax_in_memory_of_the_launch() -> None:
    for text, rows in (
        ("layernorm:hidden_size=96,quant=int8/48/f32", 8),
        ("quantize:hidden_size=72000,quant=e4m3/96/f32", 1),
    ):
        config = KernelConfig.parse(text)
        assert launch_recipe(config, HOPPER)["shared_bytes"] == rows * config.hidden_size // 16 * 4


def test_a_sum_with_the_residual_is_stored_early_where_the_schedule_says_it_or_no_blocks_are_encoded() -> None:
    def is_early(options: str) -> bool:
        text = generate(KernelConfig.parse(f"rmsnorm:hidden_size=4096,residual=true{options}"), HOPPER).text
        return "kStoresSumEarly = true," in text

    assert is_early("")
    assert is_early(",quant=e4m3/row/f32,schedule=8x1")
    assert is_early(",quant=e2m1/16/e4m3,schedule=8x1e")
    assert not is_early(",quant=e2m1/16/e4m3,schedule=8x1")
