"""Blocks with a table of activations: which kernels and calls have them, and how they divide rows of any length."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jitnorm.kernels.candidates import candidates
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.launch_recipe import launch_recipe
from jitnorm.kernels.numerics import CHUNK_SIZE
from jitnorm.kernels.row_schedule import RowSchedule
from jitnorm.kernels.schedule import why_unfit
from jitnorm.kernels.schedule_form import ScheduleForm
from jitnorm.kernels.tabulated_rows import table_bytes, tabulated, tabulated_bits, tabulated_schedule
from jitnorm.kernels.target import Target
from recipe_extents import evaluate

from jitnorm.tuning import forms_of, schedule_for

HOPPER, AMPERE = Target("sm_90a"), Target("sm_80")
GELU = "quantize:hidden_size={0},weight=none,quant=e2m1/16/e4m3,gate_columns={0},activation=gelu"
ALONE = "quantize:hidden_size={0},weight=none,quant=e4m3/32/ue8m0,activation=silu"
IN_GROUPS = "quantize:hidden_size={0},weight=none,quant=e4m3/128/f32,activation=gelu"
BETTER = "quantize:hidden_size={0},weight=none,quant=e2m1/16/e4m3/linear/none/up/true,gate_columns={0},activation={1}"
TABLE = RowSchedule.parse("4x2mp6o1")


def config_of(text: str, size: int = 4096) -> KernelConfig:
    return KernelConfig.parse(text.format(size))


def test_a_table_has_both_signs_of_each_magnitude() -> None:
    least, end = (np.uint16(bits).view(ml_dtypes.bfloat16) for bits in tabulated_bits())
    assert (float(least), float(end)) == (2.0**-24, 128.0)
    values = np.arange(1 << 16, dtype=np.uint16).view(ml_dtypes.bfloat16).astype(np.float32)
    with np.errstate(invalid="ignore"):
        assert 4 * np.count_nonzero((abs(values) >= 2.0**-24) & (abs(values) < 128)) == table_bytes()


@pytest.mark.parametrize(
    "text",
    [
        GELU,
        ALONE,
        IN_GROUPS,
        "quantize:hidden_size={0},weight=none,quant=none,gate_columns={0}",
        "quantize:hidden_size={0},weight=none,quant=e4m3/tensor/f32,gate_columns=16,activation=swigluoai",
        "quantize:hidden_size={0},weight=none,quant=int8/128/f32,activation=swish:1.702,rounding=output",
    ],
)
def test_activations_of_separate_parts_may_be_looked_up(text: str) -> None:
    config = config_of(text)
    assert [why_unfit(config, target, TABLE) for target in (HOPPER, AMPERE)] == ["", ""]
    assert any(each.tabulates for each in candidates(config, HOPPER))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("rmsnorm:hidden_size={0}", "only activations of one tensor"),
        ("quantize:hidden_size={0},weight=none,quant=e4m3/32/ue8m0", "only activations of one tensor"),
        ("rmsnorm:hidden_size={0},activation=silu,activates_norm=true", "only activations of one tensor"),
        (GELU + ",batched=true", "only activations of one tensor"),
        (GELU.replace("e4m3,", "e4m3/linear/row,"), "nothing is found of a row or of the tensor"),
        (GELU.replace("e2m1/16/e4m3", "e4m3/tensor/f32/linear/tensor"), "nothing is found of a row or of the tensor"),
        (GELU + ",input=float16", "only those of bfloat16 fit in a table, not of float16"),
        (GELU.replace("=gelu", "=relu2"), "takes few instructions"),
        ("quantize:hidden_size={0},weight=none,activation=gelu", "takes few instructions"),
        (GELU.replace("gate_columns={0}", "gate_columns=8"), "runs of 16, not of 8"),
    ],
)
def test_others_are_computed(text: str, reason: str) -> None:
    config = config_of(text)
    assert reason in why_unfit(config, HOPPER, TABLE)
    assert not any(each.tabulates for each in candidates(config, HOPPER))
    assert tabulated_schedule(config, HOPPER, "many") == ""


@pytest.mark.parametrize(
    ("schedule", "reason"),
    [
        ("4x2kmp6o1", "no options but how they divide rows"),
        ("4x2mr2o1", "no options but how they divide rows"),
        ("4x2mp6", "say how many with o"),
        ("8x1mo8", "shared memory for 6 tables"),
        ("4x2mp9o1", "up to 32 warps"),
    ],
)
def test_blocks_with_a_table_divide_rows_and_stay(schedule: str, reason: str) -> None:
    assert reason in why_unfit(config_of(GELU), HOPPER, RowSchedule.parse(schedule))


@given(groups=st.integers(1, 512), chunks=st.integers(1, 2), text=st.sampled_from([GELU, ALONE, IN_GROUPS]))
def test_rows_of_any_length_fill_a_block(groups: int, chunks: int, text: str) -> None:
    """The blocks of a multiprocessor have about 24 warps, of which few lanes are idle."""
    config = config_of(text, groups * {GELU: 16, ALONE: 32, IN_GROUPS: 128}[text])
    schedule = tabulated(config, chunks)
    assert why_unfit(config, HOPPER, schedule) == ""
    assert RowSchedule.parse(str(schedule)) == schedule
    assert 17 * 32 <= schedule.threads * schedule.resident_blocks <= 1024
    room = schedule.threads_per_row * schedule.chunks_per_lane * CHUNK_SIZE
    assert config.hidden_size <= room <= max(1.2 * config.hidden_size, config.hidden_size + 8 * 2 * chunks * CHUNK_SIZE)


@pytest.mark.parametrize(
    ("text", "size", "several", "usual", "many"),
    [
        (GELU, 640, "", "", "1x1mp20o1n40"),
        (GELU, 2048, "", "4x1mp6o1", "4x1mp6o1"),
        (GELU, 8192, "16x1mp2o1", "16x1mp2o1", "16x1mp2o1"),
        (ALONE, 1024, "", "", "2x1mp12o1"),
        (ALONE, 4096, "", "8x1mp3o1", "4x2mp6o1"),
        (ALONE, 16384, "32x1mb2o2", "16x2mp2o1", "16x2mp2o1"),
        # More elements pay where memory takes nearly as long.
        (GELU.replace("gelu", "gelu_tanh"), 1024, "", "", "2x1mp12o1"),
        (GELU.replace("gelu", "swish:1.702"), 2048, "", "", "4x1mp6o1"),
        (GELU.replace("gelu", "swish:1.702"), 8192, "", "16x1mp2o1", "16x1mp2o1"),
        (ALONE.replace("e4m3/32/ue8m0", "e2m1/16/e4m3/linear/none/up/true"), 2048, "", "", "2x2mp12o1"),
        # SwiGLU takes no longer than memory, except to the better of two scales.
        (GELU.replace("gelu", "silu"), 8192, "", "", ""),
        (BETTER.format("{0}", "silu"), 8192, "", "16x1mp2o1", "16x1mp2o1"),
        (GELU.replace("gelu", "swigluoai").replace("e2m1/16/e4m3", "e4m3/32/ue8m0"), 8192, "", "", ""),
    ],
)
def test_calls_have_a_table_where_it_pays(text: str, size: int, several: str, usual: str, many: str) -> None:
    config = config_of(text, size)
    expected = {"fewest": "", "few": "", "some": "", "several": several, "usual": usual, "many": many}
    assert {each: tabulated_schedule(config, HOPPER, each) for each in expected} == expected
    assert {tabulated_schedule(config, target, "many") for target in map(Target, ("sm_80", "sm_100a"))} == {""}


def test_the_user_s_table_comes_before_the_rule_and_the_rule_before_forms() -> None:
    config, forms = config_of(GELU), forms_of("sm_90a")
    assert schedule_for(config, HOPPER, "usual", {}, forms) == "8x1mp3o1"
    assert schedule_for(config, HOPPER, "usual", {}) == "8x1mp3o1"
    own = {(str(config_of(GELU)), "usual"): "4x2"}
    assert schedule_for(config, HOPPER, "usual", own, forms) == "4x2"


def test_a_form_has_as_many_rows_as_fill_a_block() -> None:
    config = config_of(GELU)
    form = ScheduleForm.of(tabulated(config, 1), config)
    assert str(form) == "1m"
    assert ScheduleForm.parse("1m") == form
    assert [str(form.schedule(config_of(GELU, size), HOPPER)) for size in (640, 4096)] == ["1x1mp20o1n40", "8x1mp3o1"]
    assert form.schedule(config_of(GELU + ",input=float16"), HOPPER) is None


def test_as_many_blocks_start_as_run_at_once() -> None:
    config = config_of(GELU + ",schedule=48x1mb2o1", 24576)
    grid = launch_recipe(config, HOPPER)["grid"]
    assert [evaluate(grid, rows=rows) for rows in (1, 66, 5000)] == [2, 132, 132]
