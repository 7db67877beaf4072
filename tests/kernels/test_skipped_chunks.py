"""Chunks past a row that warps skip: which kernels and schedules have some."""

from __future__ import annotations

import pytest
from jitnorm.kernels.candidates import candidates
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.row_schedule import RowSchedule
from jitnorm.kernels.schedule import why_unfit
from jitnorm.kernels.schedule_form import ScheduleForm
from jitnorm.kernels.skipped_chunks import why_not_skipped
from jitnorm.kernels.target import Target

HOPPER = Target("sm_90a")


@pytest.mark.parametrize("schedule", ["3x2wqdg", "2x3g", "4x2wkgo2"])
def test_warps_skip_chunks_that_others_have(schedule: str) -> None:
    config = KernelConfig.parse(f"layernorm:hidden_size={3500 if schedule[0] == '4' else 2432}")
    assert why_unfit(config, HOPPER, RowSchedule.parse(schedule)) == ""


@pytest.mark.parametrize("schedule", ["8x1g", "4x2wqg", "2x4g"])
def test_warps_with_as_many_chunks_as_others_skip_none(schedule: str) -> None:
    assert "chunks per lane" in why_not_skipped(KernelConfig("rmsnorm", 4096), RowSchedule.parse(schedule))


@pytest.mark.parametrize(
    ("text", "schedule", "reason"),
    [
        ("quantize:hidden_size=2560,quant=e2m1/16", "3x2g", "only norms"),
        ("rmsnorm:hidden_size=2560,pair=true,second_size=512", "3x2g", "rows of one length"),
        ("rmsnorm:hidden_size=2592,quant=e4m3/48/f32", "4x2g", "blocks of 48 values"),
        ("rmsnorm:hidden_size=2560", "3x2hg", "whole chunks of one row"),
        ("rmsnorm:hidden_size=768", "1x3gp8n16", "whole chunks of one row"),
    ],
)
def test_other_kernels_and_schedules_compute_zeros(text: str, schedule: str, reason: str) -> None:
    assert reason in why_not_skipped(KernelConfig.parse(text), RowSchedule.parse(schedule))


def test_a_form_skips_chunks_where_there_are_some() -> None:
    form = ScheduleForm.parse("2wqdg")
    found = [str(form.schedule(KernelConfig("rmsnorm", size), HOPPER)) for size in (2432, 4096, 6656)]
    assert found == ["3x2wqdg", "4x2wqd", "7x2wqdg"]


def test_candidates_skip_chunks_only_where_a_row_leaves_warps_fewer() -> None:
    found = [
        any(each.skips_chunks for each in candidates(KernelConfig("rmsnorm", size), HOPPER)) for size in (2560, 1024)
    ]
    assert found == [True, False]
