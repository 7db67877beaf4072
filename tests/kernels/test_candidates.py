"""Schedules that are worth measuring."""

from __future__ import annotations

from dataclasses import replace

import pytest
from jitnorm.kernels.candidates import MOST_CANDIDATES, candidates
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.generator import generate
from jitnorm.kernels.numerics import CHUNK_SIZE
from jitnorm.kernels.target import Target
from scheduled_configs import CONFIGS

AMPERE, HOPPER = Target("sm_80"), Target("sm_90a")


@pytest.mark.parametrize("row_class", ["few", "many"])
@pytest.mark.parametrize("target", [AMPERE, HOPPER], ids=str)
@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_candidates_are_few_fit_and_differ_from_the_rule_and_each_other(
    config: KernelConfig, target: Target, row_class: str
) -> None:
    found = candidates(config, target, row_class)
    assert len(found) <= MOST_CANDIDATES
    assert candidates(replace(config, schedule="4x2"), target, row_class) == found
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
    short = KernelConfig.parse("rmsnorm:hidden_size=384,quant=e2m1/16,many_rows=true")
    small = {str(each) for each in candidates(short, HOPPER, "many")}
    assert {"1x1wqp4", "1x2wup8n16", "1x3wup32n8"} <= small
    for text in ("rmsnorm:hidden_size=512", "interleave:hidden_size=4096"):
        assert candidates(KernelConfig.parse(text), HOPPER) == []
    assert candidates(KernelConfig("rmsnorm", 4096), Target("cpu")) == []


def test_few_rows_have_candidates_that_shorten_the_way_of_one() -> None:
    def fast(text: str, row_class: str) -> set[str]:
        found = candidates(KernelConfig.parse(text), HOPPER, row_class)
        return {str(each) for each in found if each.takes_fast_path and not each.splits_chunks}

    assert {"8x1wq", "8x1wql", "8x1wuq", "4x2wuql"} <= fast("rmsnorm:hidden_size=4096", "few")
    assert {"8x1wqld", "4x2wuqld"} <= fast("rmsnorm:hidden_size=4096,pdl=true", "few")
    assert {"8x1weq", "4x2weql"} <= fast("rmsnorm:hidden_size=4096,residual=true,quant=e2m1/16", "few")
    assert "6x3wql" in fast("rmsnorm:hidden_size=8704", "few")
    assert {"16x1ql", "16x1wql"} <= fast("rmsnorm:hidden_size=8192,residual=true", "few")
    assert not any("d" in each for each in fast("rmsnorm:hidden_size=4096,residual=true,pdl=true", "few"))
    assert not fast("rmsnorm:hidden_size=4096", "usual")
    assert not fast("quantize:hidden_size=4096,quant=e2m1/16", "few")


def test_rows_in_few_waves_have_candidates_whose_dependents_wait_for_their_stores() -> None:
    def fast(text: str) -> set[str]:
        found, more = (candidates(KernelConfig.parse(text), HOPPER, each) for each in ("some", "several"))
        assert found == more
        return {str(each) for each in found if each.takes_fast_path and not each.splits_chunks}

    plain = {"8x1wuq", "8x1wuql", "4x2wuq", "4x2wuql"}
    assert fast("rmsnorm:hidden_size=4096") == plain
    assert fast("rmsnorm:hidden_size=4096,pdl=true") == plain | {"8x1wuqd", "4x2wuqd", "3x3wqd"}
    wide = {"17x1q", "17x1wq", "17x1ql", "17x1wql", "17x1qd"}
    summed = {*wide, "9x2wq", "9x2wql", "9x2ql", "9x2wqd", "9x2qd", "6x3qd"}
    assert fast("rmsnorm:hidden_size=8448,residual=true,pdl=true") == summed
    assert "32x2wqlb8" in fast("rmsnorm:hidden_size=29312,gate=norm")


def test_norms_have_candidates_with_halves_of_chunks_in_all_classes() -> None:
    def halved(text: str, row_class: str) -> set[str]:
        found = candidates(KernelConfig.parse(text), HOPPER, row_class)
        return {str(each) for each in found if each.splits_chunks}

    few = {"8x1wuh", "8x1wuqh", "8x1wuqlh", "8x1wuqldh", "8x1wuqdh"}
    assert few <= halved("rmsnorm:hidden_size=4096,pdl=true", "few")
    assert halved("rmsnorm:hidden_size=4096", "many") == {"8x1uh", "8x1wuh", "4x2uh", "4x2wuh", "3x3qh", "2x4qh"}
    assert {"24x1wqhb8", "16x2wqhb8"} <= halved("rmsnorm:hidden_size=12288", "fewest")
    assert not halved("rmsnorm:hidden_size=4096,quant=e2m1/16", "few")


def test_long_rows_have_candidates_of_more_than_16_warps() -> None:
    def wide(size: int, row_class: str) -> set[str]:
        found = candidates(KernelConfig("rmsnorm", size, residual=True), HOPPER, row_class)
        return {str(each) for each in found if each.warps_per_row > 16 and each.blocks_per_row == 1}

    assert wide(9216, "few") == {f"18x1{each}{half}" for each in ("q", "wq", "ql", "wql") for half in ("", "h")}
    assert "27x2q" in wide(27136, "usual")
    assert not wide(8192, "few")
    assert "27x2qh" in wide(27136, "many")


def test_few_gated_rows_have_candidates_that_signal_before_their_activations() -> None:
    gated = KernelConfig.parse("quantize:hidden_size=8704,weight=none,gate_columns=8704,quant=e4m3/row/f32")
    assert {"9x2o2", "9x2lo2", "6x3lo3"} <= {str(each) for each in candidates(gated, HOPPER, "few")}
    assert not [each for each in candidates(gated, HOPPER, "some") if each.favours_latency]
    parted = replace(gated, quant=replace(gated.quant, block_size=128))
    assert not [each for each in candidates(parted, HOPPER, "few") if each.favours_latency]


def test_few_rows_do_not_take_turns_at_the_threads_of_a_block() -> None:
    found = [candidates(KernelConfig("rmsnorm", 4096), HOPPER, each) for each in ("few", "some")]
    assert [any(each.rows_at_once > 1 for each in of_class) for of_class in found] == [False, True]


def test_the_compiler_is_asked_for_a_block_more_whether_the_weight_is_loaded_early_or_late() -> None:
    with_blocks = KernelConfig.parse("rmsnorm:hidden_size=16384,residual=true,quant=e2m1/32/ue8m0")
    assert {"16x2wo2", "16x2o2"} <= {str(each) for each in candidates(with_blocks, HOPPER)}
    alone = KernelConfig.parse("quantize:hidden_size=16384,quant=e2m1/32/ue8m0")
    assert {"16x2o2", "11x3o3"} <= {str(each) for each in candidates(alone, HOPPER)}


@pytest.mark.parametrize("size", [1536, 4096, 12288])
@pytest.mark.parametrize("op", ["rmsnorm:residual=true", "quantize:gate_columns=-1,quant=e4m3/row/f32"])
def test_threads_of_candidates_have_16_registers_besides_their_row_of_floats(op: str, size: int) -> None:
    config = KernelConfig.parse(op.replace(":", f":hidden_size={size},"))
    limited = [each for each in candidates(config, HOPPER, "several") if each.resident_blocks and not each.loads_ahead]
    assert limited
    for each in limited:
        registers = 65536 // (each.resident_blocks * each.threads)
        assert registers >= each.chunks_per_lane * CHUNK_SIZE + 16, str(each)


@pytest.mark.parametrize("size", range(1024, 8193, 512))
def test_no_candidate_asks_for_more_threads_than_every_target_has_room_for(size: int) -> None:
    for each in candidates(KernelConfig("rmsnorm", size), AMPERE):
        assert each.resident_blocks * each.threads <= 1536, str(each)


def test_rows_stay_in_shared_memory_where_they_are_long_and_held_as_they_are_loaded() -> None:
    def staying(options: str) -> list[str]:
        found = candidates(KernelConfig.parse(f"rmsnorm:{options}"), HOPPER)
        return [str(each) for each in found if each.stays_shared]

    assert staying("hidden_size=32768")[0] == "16x4waso2"
    assert not staying("hidden_size=8192")
    assert not staying("hidden_size=32768,residual=true")


def test_a_sum_with_the_residual_that_could_be_stored_late_is_stored_early_in_some() -> None:
    with_blocks = candidates(KernelConfig.parse("rmsnorm:hidden_size=4096,residual=true,quant=e2m1/16/e4m3"), HOPPER)
    assert [str(each) for each in with_blocks[:2]] == ["4x2we", "8x1we"]
