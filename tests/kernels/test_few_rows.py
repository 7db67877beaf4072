"""Few rows get schedules that finish a single row sooner: valid on every target, for every op and length."""

from __future__ import annotations

import pytest
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.few_rows import few_rows_schedule
from jitnorm.kernels.registers import groups_of
from jitnorm.kernels.row_schedule import RowSchedule
from jitnorm.kernels.schedule import row_schedule
from jitnorm.kernels.target import Target

HOPPER = Target("sm_90a")
TARGETS = (Target("sm_80"), HOPPER, Target("sm_100a"))
NORMS = (
    "rmsnorm:hidden_size={}",
    "rmsnorm:hidden_size={},residual=true,quant=e2m1/16/e4m3/128x4",
    "rmsnorm:hidden_size={},input=float32,weight=float32,quant=e4m3/row/f32",
    "rmsnorm:hidden_size={},activation=silu,quant=e2m1/16/e4m3/linear/none",
    "rmsnorm:hidden_size={},weight=none,quant=int8/row/f32",
    "layernorm:hidden_size={},quant=e4m3/32/ue8m0",
    "layernorm:hidden_size={}",
)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("size", [544, 1024, 2560, 3584, 5376, 8192, 11008, 16384])
def test_a_schedule_fits_every_target(norm: str, size: int) -> None:
    config = KernelConfig.parse(norm.format(size))
    assert "" not in [few_rows_schedule(config, target, "few") for target in TARGETS]


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("size", [2560, 8192, 26880, 65536])
def test_the_fewest_long_rows_are_shared_by_clusters_where_there_are_any(norm: str, size: int) -> None:
    config = KernelConfig.parse(norm.format(size))
    chosen = [few_rows_schedule(config, target, "fewest") for target in TARGETS]
    assert [each.endswith("b8") for each in chosen] == [False, True, True]


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("size", [1536, 5376, 8192])
def test_each_lane_has_one_chunk_as_long_as_a_block_has_warps(norm: str, size: int) -> None:
    config = KernelConfig.parse(norm.format(size))
    schedule = RowSchedule.parse(few_rows_schedule(config, HOPPER, "few"))
    assert (schedule.warps_per_row, schedule.chunks_per_lane) == (groups_of(config), 1)
    assert schedule.takes_fast_path != bool(config.activation)


@pytest.mark.parametrize("norm", NORMS)
def test_calls_that_fill_the_gpu_are_left_to_the_rules(norm: str) -> None:
    config = KernelConfig.parse(norm.format(4096))
    assert [few_rows_schedule(config, HOPPER, each) for each in ("usual", "many")] == ["", ""]


@pytest.mark.parametrize("row_class", ["few", "some", "several"])
def test_clusters_share_norms_that_take_more_than_four_chunks_per_lane_of_a_block(row_class: str) -> None:
    plain, by_token = (KernelConfig.parse(f"rmsnorm:hidden_size=40960{each}") for each in ("", ",quant=e4m3/row/f32"))
    assert few_rows_schedule(plain, HOPPER, row_class) == "40x2qdb4"
    assert (few_rows_schedule(by_token, HOPPER, row_class) == "40x2qdb4") == (row_class != "several")
    assert few_rows_schedule(plain, Target("sm_80"), row_class) == ""


def test_few_rows_of_layer_normalization_do_not_take_turns_at_a_block() -> None:
    config = KernelConfig.parse("layernorm:hidden_size=4096,quant=e4m3/32/ue8m0")
    assert row_schedule(config, HOPPER).loads_ahead
    chosen = [few_rows_schedule(config, HOPPER, each) for each in ("few", "some")]
    assert not any(RowSchedule.parse(each).loads_ahead for each in chosen)


def test_gradients_have_schedules_of_their_own() -> None:
    assert few_rows_schedule(KernelConfig("rmsnorm", 4096, backward=True), HOPPER, "few") == ""


@pytest.mark.parametrize(
    ("text", "late"),
    [
        ("rmsnorm:hidden_size=4096", True),
        ("rmsnorm:hidden_size=5632,quant=e4m3/row/f32", True),
        ("rmsnorm:hidden_size=4096,quant=e2m1/16/e4m3", True),
        ("rmsnorm:hidden_size=6144", False),
        ("rmsnorm:hidden_size=4096,residual=true", False),
        ("rmsnorm:hidden_size=4608,quant=e2m1/16/e4m3", False),
        ("rmsnorm:hidden_size=4096,quant=e2m1/16/e4m3/linear/row", False),
        ("layernorm:hidden_size=4096", False),
        ("rmsnorm:hidden_size=4096,activation=silu,activates_norm=true", False),
        ("quantize:hidden_size=4096,weight=none,quant=e4m3/row/f32,gate_columns=4096", False),
    ],
)
def test_few_short_rows_signal_dependents_late(text: str, late: bool) -> None:
    chosen = RowSchedule.parse(few_rows_schedule(KernelConfig.parse(text), HOPPER, "few"))
    assert chosen.signals_late is late
