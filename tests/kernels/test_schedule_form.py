"""Schedules for rows of any length."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jitnorm.kernels.candidates import candidates
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.numerics import ceil_div
from jitnorm.kernels.registers import groups_of
from jitnorm.kernels.row_classes import ROW_CLASSES
from jitnorm.kernels.row_schedule import RowSchedule
from jitnorm.kernels.schedule import why_unfit
from jitnorm.kernels.schedule_form import ScheduleForm
from jitnorm.kernels.target import Target

HOPPER = Target("sm_90a")
# A norm, one with a residual and blocks, one with parameters to share, and separate parts of rows.
TEXTS = (
    "rmsnorm:hidden_size={}", "rmsnorm:hidden_size={},residual=true,quant=e2m1/16/e4m3",
    "layernorm:hidden_size={},weight=float32", "quantize:hidden_size={},gate_columns={},quant=e4m3/32/ue8m0",
)  # fmt: skip
# Two rows at once.
GATED = "rmsnorm:hidden_size={},gate=norm"
# Without and with a bias.
BIASED = ("rmsnorm:hidden_size={}", "rmsnorm:hidden_size={},bias=true")
LENGTHS = (1536, 2560, 5120, 7168, 12288, 18432, 24576, 32768)


def of_length(text: str, size: int) -> KernelConfig:
    return KernelConfig.parse(text.format(size, size))


def form_at(text: str, size: int, form: str) -> str:
    """The schedule of a form, as text."""
    return str(ScheduleForm.parse(form).schedule(of_length(text, size), HOPPER))


@pytest.mark.parametrize("size", LENGTHS)
@pytest.mark.parametrize("text", TEXTS)
def test_the_form_of_a_candidate_gives_that_schedule_again_and_its_text_the_form(text: str, size: int) -> None:
    config, lost = of_length(text, size), []
    found = [each for row_class in ROW_CLASSES for each in candidates(config, HOPPER, row_class)]
    for each in found:
        form = ScheduleForm.of(each, config)
        assert ScheduleForm.parse(str(form)) == form
        if form.schedule(config, HOPPER) != each:
            lost.append(str(each))
    # A form has no more blocks than rows need, and asks for threads as if each block had one row.
    assert len(lost) <= len(found) // 12, lost


@pytest.mark.parametrize(
    ("text", "form", "schedules"),
    [
        (TEXTS[0], "2w", ["2x2w", "10x2w"]),
        (TEXTS[0], "1wt1024", ["3x1wo11", "10x2wo3"]),
        (TEXTS[0], "3wp2", ["1x3wp2", "7x3w"]),
        (TEXTS[0], "2b4", ["4x1b4", "12x2b4"]),
        (TEXTS[0], "1/8b2", ["None", "16x2b2"]),
        (TEXTS[3], "1/4", ["3x1", "20x1b5"]),
        (TEXTS[3], "2/8t1024", ["2x2o16", "16x2b2o4"]),
        (TEXTS[3], "2/8t1536", ["2x2", "16x2b2"]),  # which would leave too few registers
        (TEXTS[3], "1f128", ["1x1p2n96", "None"]),
        (TEXTS[0], "1/32wqh", ["3x1wqh", "20x1wqh"]),
        (TEXTS[1], "2qh", ["2x2q", "10x2q"]),
        (TEXTS[0], "5uql", ["1x3uql", "4x5uql"]),
        (TEXTS[0], "6qp8n16", ["1x6qp8n16", "None"]),
        (TEXTS[0], "5qp8n16", ["None", "None"]),  # which is six chunks in each of 16 lanes
        (GATED, "2qt1280", ["2x2q", "10x2q"]),  # which would leave 16 registers besides two rows
        (GATED, "2qt1024", ["2x2qo16", "10x2qo3"]),
    ],
)
def test_a_form_has_a_schedule_for_each_length(text: str, form: str, schedules: list[str]) -> None:
    assert [form_at(text, size, form) for size in (1536, 10240)] == schedules


def test_rows_with_separate_parts_may_lie_side_by_side_only_where_others_would_be_idle() -> None:
    found = {form: [form_at(TEXTS[3], size, form) for size in (544, 640, 896, 1152)] for form in ("1f128", "1i128")}
    assert found["1f128"] == ["None", "1x1p4n40", "1x1p4n56", "1x1p4n72"]
    assert found["1i128"] == ["1x1p4n40", "1x1p4n40", "None", "1x1p4n72"]
    assert str(ScheduleForm.parse("2i128t1024")) == "2i128t1024"


def test_blocks_that_load_rows_ahead_are_as_many_as_fit() -> None:
    assert [form_at(TEXTS[0], size, "2wa") for size in (4096, 16384)] == ["4x2wao8", "16x2wao2"]
    assert [form_at(TEXTS[2], size, "1ua") for size in (1536, 4096)] == ["3x1uap10o1", "8x1uap4o1"]


def test_a_weight_without_room_is_loaded_late_and_what_does_not_fit_has_no_schedule() -> None:
    assert form_at(TEXTS[1], 5120, "4w") == "3x4"
    assert form_at(TEXTS[0], 5120, "2we") == "None"
    assert ScheduleForm.parse("2b4").schedule(of_length(TEXTS[0], 16384), Target("sm_80")) is None


def test_persistent_blocks_unpack_rows_of_float16_again() -> None:
    text = "layernorm:hidden_size={},quant=e4m3/32/ue8m0"
    assert form_at(text, 4096, "2wuqkt512") == "4x2wuqko4"
    assert form_at(f"{text},input=float16", 4096, "2wuqkt512") == "4x2wqko4"
    assert form_at(f"{text},input=float16", 4096, "2wuq") == "4x2wuq"


def test_a_bias_gets_the_registers_of_one_of_several_blocks() -> None:
    found = [[form_at(text, 4096, form) for form in ("2wt1024", "2wt256", "2wa")] for text in BIASED]
    assert found == [["4x2wo8", "4x2wo2", "4x2wao8"], ["4x2wo7", "4x2wo2", "4x2wao8"]]


@pytest.mark.parametrize("text", ["", "w", "2x", "1/", "1f", "2ot3", "2t"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="schedule"):
        ScheduleForm.parse(text)


@given(
    size=st.integers(33, 2048).map(lambda chunks: 16 * chunks),
    chunks=st.integers(1, 4),
    warps=st.sampled_from([0, 2, 4, 8]),
    blocks=st.sampled_from([1, 2, 4, 8]),
    threads=st.sampled_from([0, 1024, 1536]),
    text=st.sampled_from([TEXTS[0], TEXTS[3]]),
)
def test_the_schedule_of_a_form_divides_the_row(
    size: int, chunks: int, warps: int, blocks: int, threads: int, text: str
) -> None:
    size = size if text == TEXTS[0] else 32 * ceil_div(size, 32)
    config = of_length(text, size)
    form = ScheduleForm(RowSchedule(1, chunks, blocks_per_row=blocks), warps, threads)
    found = form.schedule(config, HOPPER)
    if found is not None:
        assert not why_unfit(config, HOPPER, found)
        assert found.warps_per_row * found.chunks_per_lane >= groups_of(config)
        assert found.resident_blocks * found.threads <= 1536 or found.resident_blocks == 1
