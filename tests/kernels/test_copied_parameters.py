"""Parameters that are copied to shared memory: which kernels and schedules allow it, and how much they take."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from cute_on_host import cuda_ptx_of
from jitnorm.kernels.candidates import candidates
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.copied_parameters import copied_bytes, most_copies, why_not_copied
from jitnorm.kernels.launch_recipe import launch_recipe
from jitnorm.kernels.row_classes import ROW_CLASSES
from jitnorm.kernels.row_schedule import RowSchedule
from jitnorm.kernels.schedule_form import ScheduleForm
from jitnorm.kernels.target import Target

HOPPER = Target("sm_90a")
COPYING = RowSchedule.parse("4x1qc")


@pytest.mark.parametrize(
    "text",
    [
        "layernorm:hidden_size=2048,pdl=true",
        "layernorm:hidden_size=2000,quant=e4m3/tensor/f32",
        "rmsnorm:hidden_size=2048,streams=2,weight=float32",
    ],
)
def test_norms_with_float32_parameters_may_copy_them(text: str) -> None:
    config = KernelConfig.parse(text)
    assert why_not_copied(config, HOPPER, COPYING) == ""
    for row_class in ROW_CLASSES:
        assert any(each.copies_parameters for each in candidates(config, HOPPER, row_class))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("rmsnorm:hidden_size=2048", "only norms with one weight, in float32"),
        ("layernorm:hidden_size=2048,weight=bfloat16", "only norms with one weight, in float32"),
        ("layernorm:hidden_size=2048,weight=none", "only norms with one weight, in float32"),
        ("quantize:hidden_size=2048,quant=e4m3/128/f32", "only norms with one weight, in float32"),
        ("rmsnorm:hidden_size=2048,pair=true,second_size=512,weight=float32", "only norms with one weight, in float32"),
        ("layernorm:hidden_size=496", "rows of less than a warp"),
        ("layernorm:hidden_size=2040", "whole chunks in accesses of 16 bytes"),
        ("layernorm:hidden_size=2048,vector_bytes=8", "whole chunks in accesses of 16 bytes"),
        ("layernorm:hidden_size=1920,quant=e4m3/96/f32", "blocks of 96 values"),
    ],
)
def test_others_load_them(text: str, reason: str) -> None:
    config = KernelConfig.parse(text)
    assert reason in why_not_copied(config, HOPPER, COPYING)
    assert not any(each.copies_parameters for of in ROW_CLASSES for each in candidates(config, HOPPER, of))


@pytest.mark.parametrize("schedule", ["4x1wqc", "4x1ao2", "4x1hc", "1x4cp16n16"])
def test_only_parameters_that_would_be_loaded_late_by_whole_warps_are_copied(schedule: str) -> None:
    asked = replace(RowSchedule.parse(schedule), copies_parameters=True)
    assert "cop" in why_not_copied(KernelConfig("layernorm", 2048), HOPPER, asked)


def test_each_thread_has_a_place_for_each_chunk_of_each_parameter() -> None:
    layernorm = KernelConfig.parse("layernorm:hidden_size=2000")
    assert copied_bytes(layernorm, COPYING) == 2 * 128 * 64
    assert copied_bytes(layernorm, RowSchedule.parse("2x2c")) == 2 * 64 * 2 * 64
    mixed = KernelConfig.parse("rmsnorm:hidden_size=2048,streams=2,weight=float32,schedule=4x1qc")
    assert launch_recipe(mixed, HOPPER)["shared_bytes"] == 128 * 64


def test_parameters_too_long_for_shared_memory_are_loaded() -> None:
    longest, longer = (KernelConfig("layernorm", size) for size in (26624, 27136))
    form = ScheduleForm.parse("2qc")
    assert str(form.schedule(longest, HOPPER)) == "13x4qc"
    assert str(form.schedule(longer, HOPPER)) == "14x4q"
    assert "shared memory" in why_not_copied(longer, HOPPER, RowSchedule.parse("14x4qc"))


@pytest.mark.parametrize("quant", ["none", "e4m3/row/f32"])
@pytest.mark.parametrize("schedule", ["28x1uqcko2", "28x1qckr4o2", "56x1uqckb2o2", "28x2uqckr2b2o2", "56x1qckr4b2o2"])
def test_resident_blocks_have_room_for_all_that_they_declare(schedule: str, quant: str) -> None:
    """The longest rows of which two copies may fit; the driver takes 1 KiB of each block."""
    size = 28672 if "b2" in schedule else 14336
    fitting = RowSchedule.parse(schedule)
    config = KernelConfig.parse(
        f"layernorm:hidden_size={size},quant={quant},schedule={replace(fitting, resident_blocks=1)}"
    )
    found = re.findall(r"\.shared \.align \d+ \.b(\d+) [^\s;\[]+(?:\[(\d+)\])?;", cuda_ptx_of(config, HOPPER))
    declared = sum(int(bits) // 8 * int(count or 1) for bits, count in found)
    blocks = most_copies(config, HOPPER, fitting)
    assert declared > 0
    assert blocks * (1024 + declared + copied_bytes(config, fitting)) <= HOPPER.all_shared_bytes
