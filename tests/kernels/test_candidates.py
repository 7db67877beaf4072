"""Schedules that a configuration names, and those that are worth measuring."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from jitnorm.kernels import schedule as schedules
from jitnorm.kernels.arguments import evaluate
from jitnorm.kernels.candidates import MOST_CANDIDATES, candidates
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.division import Division
from jitnorm.kernels.generator import generate
from jitnorm.kernels.generic import generic_config
from jitnorm.kernels.launch_recipe import launch_recipe
from jitnorm.kernels.schedule import WARP_LANES, division_of, row_schedule, why_unfit
from jitnorm.kernels.target import Target

AMPERE, HOPPER = Target("sm_80"), Target("sm_90a")
OPS = [
    "rmsnorm:", "rmsnorm:residual=true,", "rmsnorm:quant=e2m1/16/e4m3,", "rmsnorm:quant=e2m1/16/e4m3/linear/row,",
    "layernorm:", "quantize:quant=e2m1/16/e4m3,gate_columns=-1,", "rmsnorm:streams=4,weight=float32,",
]  # fmt: skip
CONFIGS = [
    KernelConfig.parse(f"{op}hidden_size={size}") for op in OPS for size in (512, 1536, 4096, 7168, 32768, 131072)
]


@pytest.mark.parametrize(
    "text",
    [
        "4x2",
        "8x1w",
        "8x1e",
        "4x2we",
        "8x1wu",
        "8x1wuql",
        "8x1weqb2",
        "8x1wao4",
        "8x1asr2",
        "4x4r2",
        "16x4b2",
        "8x2o4",
        "16x2wb2",
        "4x2wer2b2o3",
    ],
)
def test_the_text_of_a_division_reads_back(text: str) -> None:
    assert str(Division.parse(text)) == text
    config = KernelConfig("rmsnorm", 4096, schedule=text)
    assert str(config).endswith(f",schedule={text}")
    assert KernelConfig.parse(str(config)) == config


@pytest.mark.parametrize(
    "text", ["4", "x2", "0x2", "4x2r1", "4x2b3", "4x2o0", "4x2ew", "4x2au", "4x2sa", "4x2lq", "fast", " 4x2", "4x2 "]
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"schedule: is .*; write warps x chunks a lane, such as 4x2"):
        KernelConfig("rmsnorm", 4096, schedule=text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("rmsnorm:hidden_size=512,schedule=1x1", "a row of up to 512 elements"),
        ("rmsnorm:hidden_size=4096,schedule=4x1", "the 8 groups of a row"),
        ("rmsnorm:hidden_size=4096,schedule=4x3", "the 8 groups of a row"),
        ("rmsnorm:hidden_size=4096,schedule=9x1", "the 8 groups of a row"),
        ("rmsnorm:hidden_size=8192,residual=true,schedule=2x8", "a lane holds 4 chunks"),
        ("rmsnorm:hidden_size=8192,residual=true,schedule=4x4r2", "a lane holds 4 chunks"),
        ("rmsnorm:hidden_size=16384,schedule=32x1", "up to 16 warps"),
        ("rmsnorm:hidden_size=2560,schedule=5x1b2", "as many as the others"),
        ("rmsnorm:hidden_size=4096,schedule=8x1wa", "as many as run at once: say how many with o"),
        ("rmsnorm:hidden_size=32768,schedule=16x4ao4", "has shared memory for 3 rows"),
        ("rmsnorm:hidden_size=4096,schedule=8x1ab2o4", "a block that loads a row ahead has one row"),
        ("rmsnorm:hidden_size=4100,vector_bytes=8,schedule=9x1ao4", "whole chunks in accesses of 16 bytes"),
        ("rmsnorm:hidden_size=4104,schedule=9x1ao4", "whole chunks in accesses of 16 bytes"),
        ("rmsnorm:hidden_size=4096,batched=true,schedule=8x1ao4", "only norms of one tensor"),
        ("quantize:hidden_size=4096,quant=e2m1/16/e4m3,schedule=8x1ao4", "only norms of one tensor"),
        ("rmsnorm:hidden_size=4096,residual=true,schedule=8x1u", "only norms of 16-bit values without a residual"),
        ("rmsnorm:hidden_size=4096,input=float32,schedule=8x1u", "only norms of 16-bit values without a residual"),
        ("quantize:hidden_size=4096,quant=e2m1/16/e4m3,schedule=8x1u", "only norms of 16-bit values"),
        ("quantize:hidden_size=4096,quant=e2m1/16/e4m3,schedule=8x1q", "only norms have a statistic"),
        ("quantize:hidden_size=4096,quant=e2m1/16/e4m3,schedule=8x1l", "only norms whose blocks have a row each"),
        ("rmsnorm:hidden_size=4096,schedule=8x1lao4", "only norms whose blocks have a row each"),
        ("rmsnorm:hidden_size=4096,schedule=8x1s", "only rows that are loaded ahead stay in shared memory"),
        ("rmsnorm:hidden_size=4096,schedule=8x1uaso4", "neither floats nor sums are kept"),
        ("rmsnorm:hidden_size=4096,residual=true,quant=e2m1/16,schedule=8x1easo4", "neither floats nor sums are kept"),
        ("rmsnorm:hidden_size=4096,residual=true,schedule=8x1e", "no sum with a residual is stored late"),
        ("rmsnorm:hidden_size=4096,quant=e2m1/16/e4m3,schedule=8x1e", "no sum with a residual is stored late"),
    ],
)
def test_a_schedule_that_does_not_fit_the_row_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=f"schedule: is .* elements a row, but .*{reason}"):
        generate(KernelConfig.parse(text), HOPPER)


def test_a_schedule_is_for_gpus_and_clusters_for_those_that_have_them() -> None:
    with pytest.raises(ValueError, match="the CPU divides no rows"):
        generate(KernelConfig("rmsnorm", 4096, schedule="4x2"), Target("cpu"))
    with pytest.raises(ValueError, match="sm_80 has no clusters"):
        generate(KernelConfig("rmsnorm", 4096, schedule="8x1b2"), AMPERE)
    with pytest.raises(ValueError, match="op: is 'dequantize', which has no schedule"):
        KernelConfig.parse("dequantize:hidden_size=4096,quant=e2m1/16,schedule=4x2")
    with pytest.raises(ValueError, match="any"):
        KernelConfig.parse("rmsnorm:hidden_size=any,schedule=4x2")


def test_a_kernel_for_any_hidden_size_has_no_schedule_by_name() -> None:
    config = KernelConfig("rmsnorm", 4096)
    assert generic_config(replace(config, schedule="4x2")) == generic_config(config)


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_naming_the_rules_schedule_gives_the_rules_code(config: KernelConfig) -> None:
    division = division_of(row_schedule(config, HOPPER))
    if division is None or why_unfit(config, HOPPER, division):
        assert config.hidden_size in (512, 131072)
        return
    named = generate(replace(config, schedule=str(division)), HOPPER).text
    assert named.splitlines()[1:] == generate(config, HOPPER).text.splitlines()[1:]


@pytest.mark.parametrize("calls", ["few", "many"])
@pytest.mark.parametrize("target", [AMPERE, HOPPER], ids=str)
@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_candidates_are_few_fit_and_differ_from_the_rule_and_each_other(
    config: KernelConfig, target: Target, calls: str
) -> None:
    found = candidates(config, target, calls)
    assert len(found) <= MOST_CANDIDATES
    assert candidates(replace(config, schedule="4x2"), target, calls) == found
    texts = [generate(replace(config, schedule=str(each)), target).text.partition("\n")[2] for each in found]
    assert len({*texts, generate(config, target).text.partition("\n")[2]}) == len(texts) + 1


def test_there_are_candidates_for_usual_rows_and_none_where_nothing_can_be_chosen() -> None:
    found = {str(each) for each in candidates(KernelConfig("rmsnorm", 4096), HOPPER)}
    assert {"8x1", "4x2", "8x1w", "2x4", "8x1r2"} <= found
    assert "4x2w" not in found, "that is the rule's"
    # Two rows at once share parameters, of which quantization alone has none.
    alone = candidates(KernelConfig.parse("quantize:hidden_size=4096,quant=e2m1/16"), HOPPER)
    assert alone
    assert not [each for each in alone if each.rows_at_once > 1 or each.prefetches_weight]
    for text in ("rmsnorm:hidden_size=512", "rmsnorm:hidden_size=any", "interleave:hidden_size=4096"):
        assert candidates(KernelConfig.parse(text), HOPPER) == []
    assert candidates(KernelConfig("rmsnorm", 4096), Target("cpu")) == []


def test_few_rows_have_candidates_that_shorten_the_way_of_one() -> None:
    def quick(text: str, calls: str) -> set[str]:
        return {str(each) for each in candidates(KernelConfig.parse(text), HOPPER, calls) if each.is_quick}

    assert {"8x1wq", "8x1wql", "8x1wuq", "4x2wuql"} <= quick("rmsnorm:hidden_size=4096", "few")
    assert {"8x1weq", "4x2weql"} <= quick("rmsnorm:hidden_size=4096,residual=true,quant=e2m1/16", "few")
    assert not quick("rmsnorm:hidden_size=4096", "some")
    assert not quick("quantize:hidden_size=4096,quant=e2m1/16", "few")


def test_room_for_more_blocks_is_asked_of_the_compiler() -> None:
    text = generate(KernelConfig("rmsnorm", 4096, schedule="8x1o6"), HOPPER).text
    assert "__launch_bounds__(kThreads, 6) jitnorm_kernel(" in text
    assert "__launch_bounds__(kThreads) jitnorm_kernel(" in generate(KernelConfig("rmsnorm", 4096), HOPPER).text


def test_the_compiler_is_asked_for_a_block_more_whether_the_weight_is_loaded_early_or_late() -> None:
    with_blocks = KernelConfig.parse("rmsnorm:hidden_size=16384,residual=true,quant=e2m1/32/ue8m0")
    assert {"16x2wo2", "16x2o2", "11x3o3"} <= {str(each) for each in candidates(with_blocks, HOPPER)}
    alone = KernelConfig.parse("quantize:hidden_size=16384,quant=e2m1/32/ue8m0")
    assert {"16x2o2", "11x3o3"} <= {str(each) for each in candidates(alone, HOPPER)}


@pytest.mark.parametrize("size", range(1024, 8193, 512))
def test_no_candidate_asks_for_more_threads_than_every_target_has_room_for(size: int) -> None:
    for each in candidates(KernelConfig("rmsnorm", size), AMPERE):
        assert each.resident_blocks * WARP_LANES * each.warps // each.blocks <= 1536, str(each)


def test_blocks_that_load_a_row_ahead_are_as_many_as_run_at_once() -> None:
    recipe = launch_recipe(KernelConfig.parse("rmsnorm:hidden_size=4096,residual=true,schedule=8x1wao4"), HOPPER)
    assert [evaluate(recipe["grid"], rows) for rows in (1, 528, 529)] == [1, 528, 528]
    assert recipe["shared_bytes"] == 2 * 4096 * 2


def test_rows_stay_in_shared_memory_where_they_are_long_and_held_as_they_are_loaded() -> None:
    def staying(options: str) -> list[str]:
        found = candidates(KernelConfig.parse(f"rmsnorm:{options}"), HOPPER)
        return [str(each) for each in found if each.stays_shared]

    assert staying("hidden_size=32768")[0] == "16x4waso2"
    assert not staying("hidden_size=8192")
    assert not staying("hidden_size=32768,residual=true")


def test_a_sum_with_the_residual_is_stored_early_where_the_schedule_says_it_or_no_blocks_are_encoded() -> None:
    def is_early(options: str) -> bool:
        text = generate(KernelConfig.parse(f"rmsnorm:hidden_size=4096,residual=true{options}"), HOPPER).text
        return "constexpr bool kStoresSumEarly = true;" in text

    assert is_early("")
    assert is_early(",quant=e4m3/row/f32,schedule=8x1")
    assert is_early(",quant=e2m1/16/e4m3,schedule=8x1e")
    assert not is_early(",quant=e2m1/16/e4m3,schedule=8x1")
    with_blocks = candidates(KernelConfig.parse("rmsnorm:hidden_size=4096,residual=true,quant=e2m1/16/e4m3"), HOPPER)
    assert [str(each) for each in with_blocks[:2]] == ["4x2we", "8x1we"]


def test_the_bytes_that_are_prefetched_are_bounded_as_in_the_kernel() -> None:
    rows = (Path(schedules.__file__).parent / "cuda" / "rows.cuh").read_text(encoding="utf-8")
    (bound,) = re.findall(r"sizeof\(WeightChunk\)\) <= (\d+);", rows)
    assert int(bound) == schedules.MAX_PREFETCHED_BYTES
