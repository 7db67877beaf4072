"""Forms of schedules for rows of any length: which calls they serve, and that those which are shipped fit."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.quant_spec import NVFP4
from jitnorm.kernels.registers import groups_of
from jitnorm.kernels.row_classes import ROW_CLASSES
from jitnorm.kernels.row_schedule import RowSchedule
from jitnorm.kernels.schedule import why_unfit
from jitnorm.kernels.schedule_form import ScheduleForm
from jitnorm.kernels.side_by_side import meets_side_by_side
from jitnorm.kernels.target import TARGET_NAMES, Target

from jitnorm import tuning
from jitnorm.call_config import config_of_call
from jitnorm.fitted_forms import BY_RULE, MOST_GROUPS, fitted_schedule, form_at, form_key, has_whole_groups, read_forms
from jitnorm.tune.cases import OPS, plan
from jitnorm.tune.fit import FittedForms, write_forms
from jitnorm.tuning import forms_of, schedule_for, stand_ins, tuning_key

HOPPER, AMPERE = Target("sm_90a"), Target("sm_80")
SHIPPED = Path(tuning.__file__).parent / "data" / "tuning"


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of what is shipped, which is empty."""
    monkeypatch.delenv("JITNORM_TUNING", raising=False)
    monkeypatch.setattr(tuning, "user_file", lambda target: tmp_path / "user" / f"{target}.json")
    monkeypatch.setattr(tuning, "_SHIPPED", tmp_path)
    tuning.user_table.cache_clear()
    return tmp_path


def write(folder: Path, forms: str, row_class: str = "usual", target: str = "sm_90a") -> None:
    """Ship forms for RMSNorm."""
    key = form_key(tuning_key(KernelConfig("rmsnorm", 5376)))
    write_forms({"target": target}, [FittedForms(str(key), row_class, forms)], folder / f"{target}.forms.json")


def called(hidden_size: int, row_class: str = "usual", target: Target = HOPPER, **options: object) -> str:
    options = {"op": "rmsnorm", **options}
    return config_of_call(options, target, hidden_size=hidden_size, input="float16", row_class=row_class).schedule


def test_a_call_gets_the_form_of_its_class_and_length(shipped: Path) -> None:
    write(shipped, "2:1w 5:2 20:1/8b2 40:rules")
    assert [called(size) for size in (1040, 5376, 9000, 18000, 32768)] == ["3x1w", "6x2", "9x2", "16x3b2", ""]
    assert called(5376, "many") == ""


def test_rows_of_whole_groups_may_have_forms_of_their_own(shipped: Path) -> None:
    write(shipped, "2:1w; 2:2")
    assert [called(size) for size in (5120, 5136)] == ["5x2", "11x1w"]


def test_rows_that_are_longer_or_shorter_than_those_of_any_sample_have_no_form(shipped: Path) -> None:
    write(shipped, "2:1w")
    assert called(512) == "1x1wqdp4"  # by a rule
    assert called(512 * MOST_GROUPS + 16) == ""
    assert called(512 * MOST_GROUPS - 16) == "16x4"


def test_few_rows_have_their_form_before_a_rule_of_their_own(shipped: Path) -> None:
    assert called(5376, "few") == "11x1wuqld"
    write(shipped, "2:2w 30:rules", "few")
    assert [called(5376, "few"), called(16128, "few")] == ["6x2w", ""]


def test_a_form_that_does_not_fit_is_left_to_the_rules(shipped: Path) -> None:
    write(shipped, "2:2b4")
    assert called(16128) == "16x2b4"
    assert called(16128, target=AMPERE) == ""


def test_few_rows_whose_form_does_not_fit_have_a_rule_of_their_own(shipped: Path) -> None:
    write(shipped, "2:1wuqlb8", "fewest")
    assert called(16128, "fewest") == "32x1wuqlb8"
    assert called(16128, "fewest", AMPERE) == "16x2wuq"


def test_kernels_that_were_not_measured_have_the_forms_of_the_most_alike_one(shipped: Path) -> None:
    write(shipped, "2:1w 20:2")
    assert called(5376, weight="none") == called(5376, quant=NVFP4) == "11x1w"
    assert called(5376, residual=True) == called(5376, op="layernorm", weight="float32") == ""


def test_targets_without_forms_use_those_of_the_measured_one(shipped: Path) -> None:
    write(shipped, "2:1w")
    assert called(5376, target=AMPERE) == "11x1w"
    write(shipped, "2:2w", target="sm_80")
    assert called(5376, target=AMPERE) == "6x2w"


def test_an_entry_of_a_table_for_the_length_itself_comes_first(shipped: Path) -> None:
    write(shipped, "2:1w")
    config = KernelConfig("rmsnorm", 5376)
    table = {(str(tuning_key(config)), "usual"): "6x2"}
    forms = forms_of("sm_90a")
    assert schedule_for(config, HOPPER, "usual", table, forms) == "6x2"
    assert schedule_for(config, HOPPER, "usual", {}, forms) == "11x1w"


def test_without_tables_there_are_no_forms_and_the_shipped_ones_are_jitnorms(
    shipped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(shipped, "2:1w")
    for mode, schedule in (("off", ""), ("shipped", "11x1w"), ("on", "11x1w")):
        monkeypatch.setenv("JITNORM_TUNING", mode)
        assert called(5376) == schedule


def test_kernels_of_forms_and_of_rules_stand_in_for_each_other(shipped: Path) -> None:
    write(shipped, "2:1w")
    config = KernelConfig("rmsnorm", 5376, schedule="6x2")
    assert {"", "11x1w"} <= {each.schedule for each in stand_ins(config, HOPPER)}


def test_gates_of_a_whole_half_stay_so() -> None:
    keys = [KernelConfig("quantize", size, weight="none", gate_columns=size) for size in (5376, 11008)]
    assert {form_key(key) for key in keys} == {KernelConfig("quantize", 4096, weight="none", gate_columns=4096)}
    interleaved = KernelConfig("quantize", 5376, weight="none", gate_columns=8)
    assert form_key(interleaved) == KernelConfig("quantize", 4096, weight="none", gate_columns=8)


def test_a_damaged_file_is_ignored_with_a_warning(shipped: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(shipped, "2:1w")
    path = shipped / "sm_90a.forms.json"
    path.write_text(path.read_text().replace("2:1w", "2:2w"))
    with caplog.at_level(logging.WARNING, "jitnorm.tuning"):
        assert called(5376) == ""
    assert "ignoring the forms in" in caplog.text


@pytest.mark.parametrize("path", sorted(SHIPPED.glob("*.forms.json")), ids=lambda path: path.stem)
def test_the_forms_that_are_shipped_fit(path: Path) -> None:
    target, forms = Target(path.name.removesuffix(".forms.json")), read_forms(path)
    assert target.name in TARGET_NAMES
    assert len(forms) == len(OPS) * len(ROW_CLASSES)
    assert {row_class for _, row_class in forms} == {*ROW_CLASSES}
    for ranges in (ranges for text in forms.values() for ranges in text.split("; ")):
        starts = [int(each.split(":")[0]) for each in ranges.split()]
        assert starts[0] == 2
        assert starts == sorted(set(starts))
        assert starts[-1] <= MOST_GROUPS


@pytest.mark.parametrize("size", [900, 1040, 2304, 5376, 14336, 22016, 32768])
def test_every_tuned_op_has_shipped_forms_whose_schedules_fit_each_target(size: int) -> None:
    forms = forms_of("sm_90a")
    for case in plan(OPS, [128 * (size // 128)], [], HOPPER).cases:
        text = forms[str(form_key(case.key)), case.row_class]
        first, *others = form_at(groups_of(case.config), text, is_whole=has_whole_groups(size)).split("|")
        # Rows may lie side by side only where lanes would be idle otherwise, and share warps only where these have few
        # chunks in each lane, so another form follows.
        is_partial = ("i" in first or "n" in first or ("f" in first and meets_side_by_side(case.config))) and others
        assert first == BY_RULE or is_partial or ScheduleForm.parse(first).schedule(case.config, HOPPER), (case, first)
        for target in (HOPPER, AMPERE):
            schedule = fitted_schedule(case.key, case.config, target, case.row_class, forms)
            assert schedule is not None or (target == AMPERE and not others), (case, target)
            assert not schedule or not why_unfit(case.config, target, RowSchedule.parse(schedule)), (case, target)
