"""Persistent blocks that keep the parameters of a norm: which kernels and schedules allow it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from jitnorm.kernels.candidates import candidates
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.copied_parameters import copied_bytes
from jitnorm.kernels.launch_recipe import launch_recipe
from jitnorm.kernels.registers import have_room_for_row
from jitnorm.kernels.resident_rows import why_not_resident
from jitnorm.kernels.row_classes import ROW_CLASSES
from jitnorm.kernels.row_schedule import RowSchedule
from jitnorm.kernels.schedule import why_unfit
from jitnorm.kernels.schedule_form import ScheduleForm
from jitnorm.kernels.target import Target

HOPPER = Target("sm_90a")
RESIDENT = RowSchedule.parse("4x1wko4")


@pytest.mark.parametrize(
    "text",
    [
        "layernorm:hidden_size=2048",
        "layernorm:hidden_size=2000,weight=bfloat16,quant=e4m3/tensor/f32",
        "rmsnorm:hidden_size=2048,quant=e2m1/16/e4m3",
        "rmsnorm:hidden_size=1500,vector_bytes=8,weight=none",
        "rmsnorm:hidden_size=2048,residual=true",
        "rmsnorm:hidden_size=2048,streams=2,weight=float32",
    ],
)
def test_norms_of_one_tensor_may_keep_their_parameters(text: str) -> None:
    config = KernelConfig.parse(text)
    schedule = RowSchedule.parse("3x1wko4") if config.hidden_size == 1500 else RESIDENT
    assert why_unfit(config, HOPPER, schedule) == ""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("quantize:hidden_size=2048,quant=e4m3/128/f32", "only norms of a single tensor"),
        ("rmsnorm:hidden_size=2048,pair=true,second_size=512", "only norms of a single tensor"),
        ("rmsnorm:hidden_size=2048,batched=true", "only norms of a single tensor"),
        ("rmsnorm:hidden_size=2048,residual=true,sandwich=true", "only norms of a single tensor"),
        ("layernorm:hidden_size=1920,quant=e4m3/96/f32", "blocks of 96 values"),
    ],
)
def test_others_load_them_for_each_row(text: str, reason: str) -> None:
    config = KernelConfig.parse(text)
    assert reason in why_not_resident(config, RESIDENT)
    assert not any(each.stays_resident for of in ROW_CLASSES for each in candidates(config, HOPPER, of))


@pytest.mark.parametrize(
    ("schedule", "reason"),
    [
        ("4x1wako4", "hold rows in registers"),
        ("4x1wkb4o4", "up to 2 blocks"),
        ("4x1ko4", "say so with w or c"),
        ("4x1wk", "say how many with o"),
        ("4x1ck", "say how many with o"),
    ],
)
def test_parameters_are_kept_by_as_many_blocks_as_run_at_once(schedule: str, reason: str) -> None:
    assert reason in why_not_resident(KernelConfig("layernorm", 2048), RowSchedule.parse(schedule))


def test_pairs_of_blocks_may_share_rows_where_there_are_clusters() -> None:
    for text in ("layernorm:hidden_size=16384,schedule=32x1uqckb2o1", "rmsnorm:hidden_size=16384,schedule=32x1wqkb2o1"):
        config = KernelConfig.parse(text)
        schedule = RowSchedule.parse(config.schedule)
        assert why_unfit(config, HOPPER, schedule) == ""
        assert "has no clusters" in why_unfit(config, Target("sm_80"), schedule)
        recipe = launch_recipe(config, HOPPER)
        assert recipe["cluster"] == 2
        assert recipe["grid"] == ["*", ["min", "M", HOPPER.multiprocessors // 2], 2]


def test_copies_of_all_resident_blocks_fit_in_shared_memory() -> None:
    config = KernelConfig("layernorm", 12288)
    schedule = RowSchedule.parse("12x2uqcko2")
    assert copied_bytes(config, schedule) == 96 << 10
    assert why_unfit(config, HOPPER, schedule) == ""
    assert "say so with o2" in why_unfit(config, HOPPER, RowSchedule.parse("12x2uqcko3"))
    assert "say so with o1" in why_unfit(config, Target("sm_80"), schedule)


def test_parameters_that_are_kept_have_room_beside_a_row() -> None:
    config = KernelConfig.parse("rmsnorm:hidden_size=1536,weight=float32,quant=e2m1/16/e4m3")
    assert "more than a lane has room for" in why_unfit(config, HOPPER, RowSchedule.parse("1x3wko4"))
    assert why_unfit(config, HOPPER, RowSchedule.parse("2x2wko4")) == ""
    assert why_unfit(replace(config, weight="bfloat16"), HOPPER, RowSchedule.parse("1x3wko4")) == ""


@pytest.mark.parametrize(
    ("schedule", "has_room"), [("8x1wko4", True), ("8x1wkr2o2", True), ("8x1wkr2o4", False), ("8x1ckr2o4", True)]
)
def test_registers_hold_two_sets_of_rows_and_the_parameters(schedule: str, has_room: bool) -> None:
    """Of 64 or 128 for each thread: 16 or 32 for rows of 16-bit values, 32 for both parameters, and 16 to work with.

    In shared memory, parameters take none.
    """
    assert have_room_for_row(KernelConfig("layernorm", 4096), RowSchedule.parse(schedule)) == has_room


def test_a_form_keeps_parameters_where_that_is_possible() -> None:
    form = ScheduleForm.parse("1wqkt1024")
    assert str(form.schedule(KernelConfig("layernorm", 4096), HOPPER)) == "8x1wqko4"
    assert str(form.schedule(KernelConfig("layernorm", 4096, batched=True), HOPPER)) == "8x1wq"


def test_a_form_has_as_many_blocks_as_there_is_room_for_copies() -> None:
    form = ScheduleForm.parse("2uqckt1024")
    chosen = {size: str(form.schedule(KernelConfig("layernorm", size), HOPPER)) for size in (4096, 9216, 24576)}
    assert chosen == {4096: "4x2uqcko6", 9216: "9x2uqcko3", 24576: "16x3uqcko1"}


def test_a_form_fits_only_if_its_parameters_are_copied_and_kept() -> None:
    form = ScheduleForm.parse("2uqckt512")
    longest, longer = KernelConfig("layernorm", 26624), KernelConfig("layernorm", 27136)
    assert str(form.schedule(longest, HOPPER)) == "13x4uqcko1"
    assert form.schedule(longer, HOPPER) is None
    assert form.schedule(replace(longest, weight="bfloat16"), HOPPER) is None
