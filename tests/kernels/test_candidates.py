"""Schedules that are worth measuring."""

from __future__ import annotations

from dataclasses import replace

import pytest
from jitnorm.kernels.candidates import MOST_CANDIDATES, candidates
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.generator import generate
from jitnorm.kernels.numerics import CHUNK_SIZE
from jitnorm.kernels.row_schedule import RowSchedule
from jitnorm.kernels.schedule import row_schedule
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
    assert {"8x1q", "4x2q", "3x3wq", "2x4q", "8x1wuq", "4x2wqh", "4x2o4", "8x1wao4"} <= found
    assert "4x2w" not in found, "that is the rule's"
    # Two rows at once share parameters, of which quantization alone has none.
    alone = candidates(KernelConfig.parse("quantize:hidden_size=4096,quant=e2m1/16"), HOPPER)
    assert alone
    assert not [each for each in alone if each.rows_at_once > 1 or each.prefetches_weight]
    short = KernelConfig.parse("rmsnorm:hidden_size=384,quant=e2m1/16,many_rows=true")
    small = {str(each) for each in candidates(short, HOPPER, "many")}
    assert {"1x1wqp4", "1x2wup8n16", "1x3wup32n8"} <= small
    for text in ("rmsnorm:hidden_size=128,pair=true,rope=neox,angles=bfloat16", "interleave:hidden_size=4096"):
        assert candidates(KernelConfig.parse(text), HOPPER) == []
    assert candidates(KernelConfig("rmsnorm", 4096), Target("cpu")) == []


@pytest.mark.parametrize("op", ["rmsnorm:", "layernorm:", "rmsnorm:gate=norm,", "quantize:quant=e4m3/tensor/f32,"])
@pytest.mark.parametrize("size", [1, 16, 17, 32, 48, 96, 128])
def test_schedules_of_the_shortest_rows_have_names(op: str, size: int) -> None:
    """A block has up to 256 rows of a lane each."""
    for row_class in ("few", "usual", "many"):
        config = KernelConfig.parse(f"{op}hidden_size={size},many_rows={str(row_class == 'many').lower()}")
        found = [row_schedule(config, HOPPER), *candidates(config, HOPPER, row_class)]
        assert [RowSchedule.parse(str(each)) for each in found] == found


def test_short_rows_that_are_not_many_lie_side_by_side_or_signal_late() -> None:
    norm = KernelConfig.parse("rmsnorm:hidden_size=448,quant=e2m1/16/e4m3,pdl=true")
    assert {"1x1wuqdp4", "1x1wqdp8", "1x2wqdp8n16"} <= {str(each) for each in candidates(norm, HOPPER, "few")}
    assert not [each for each in candidates(norm, HOPPER, "many") if each.signals_late]
    parted = KernelConfig.parse("quantize:hidden_size=320,weight=none,gate_columns=320,quant=e2m1/16/e4m3")
    assert {"1x1p8n20", "1x2p16n12"} <= {str(each) for each in candidates(parted, HOPPER, "few")}


def test_many_rows_have_candidates_with_many_chunks_per_lane() -> None:
    norm = KernelConfig.parse("rmsnorm:hidden_size=2304,quant=e2m1/16/e4m3,many_rows=true")
    assert {"1x5uql", "1x5q"} <= {str(each) for each in candidates(norm, HOPPER, "many")}
    short = replace(norm, hidden_size=640)
    assert {"1x5uqp16n8", "1x5qp16n8"} <= {str(each) for each in candidates(short, HOPPER, "many")}
    assert max(each.chunks_per_lane for each in candidates(norm, HOPPER, "usual")) < 5


def test_few_gated_rows_have_candidates_that_signal_before_their_activations() -> None:
    gated = KernelConfig.parse("quantize:hidden_size=8704,weight=none,gate_columns=8704,quant=e4m3/row/f32")
    assert {"9x2o2", "9x2lo2", "6x3lo3"} <= {str(each) for each in candidates(gated, HOPPER, "few")}
    some = candidates(gated, HOPPER, "some")
    assert not [each for each in some if each.favours_latency and each.blocks_per_row == 1]
    parted = replace(gated, quant=replace(gated.quant, block_size=128))
    assert not [each for each in candidates(parted, HOPPER, "few") if each.favours_latency]


def test_the_compiler_is_asked_for_a_block_more_where_chunks_leave_registers() -> None:
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
