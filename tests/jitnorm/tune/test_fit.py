"""Forms are fitted to samples: near ones and those of alike kernels count, disturbed ones do not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.target import Target

from jitnorm.fitted_forms import BY_RULE, fitted_schedule, form_at, form_key
from jitnorm.tune.fit import Fitting
from jitnorm.tune.samples import Sample, forms_in, read_samples, schedules_of
from jitnorm.tuning import tuning_key

HOPPER = Target("sm_90a")
NORM = KernelConfig("rmsnorm", 4096)


def sample(
    groups: int, regrets: Mapping[str, float], row_class: str = "usual", device: str = "", **fields: object
) -> Sample:
    """A measured RMSNorm: what forms cost it."""
    config = KernelConfig("rmsnorm", 512 * groups - 16, **fields)
    forms = [*regrets]
    of_forms = zip(schedules_of(config, forms, HOPPER), regrets.values(), strict=True)
    found = {each: regret for each, regret in of_forms if each is not None}
    return Sample(device, "rmsnorm", config, row_class, "", found)


def fitted(*samples: Sample) -> dict[tuple[str, str], str]:
    """The forms of each kernel and class."""
    return {(each.config, each.row_class): each.forms for each in Fitting(samples, HOPPER).fitted()}


def test_the_form_that_costs_near_samples_least_is_chosen_for_each_length() -> None:
    short = [sample(groups, {"1w": 0.0, "3": 0.2}) for groups in (6, 7, 9, 10)]
    long = [sample(groups, {"1w": 0.3, "3": 0.0}) for groups in (30, 34, 40)]
    found = fitted(*short, *long)[str(NORM), "usual"].partition(";")[0].split()
    assert [each.split(":")[1] for each in found if each.split(":")[1] != BY_RULE][:2] == ["1w", "3"]
    (start,) = [int(each.split(":")[0]) for each in found if each.endswith(":3")]
    assert 11 < start < 30


def test_a_kernel_without_samples_of_a_length_learns_from_others_that_are_alike() -> None:
    known = [sample(groups, {"1w": 0.0, "2w": 0.2}) for groups in (7, 8, 9)]
    elsewhere = sample(40, {"2w": 0.0}, residual=True)
    found = fitted(*known, elsewhere)
    key = next(key for key, _ in found if "residual=true" in key)
    assert form_at(8, found[key, "usual"]) == "1w"


def test_a_kept_form_stays_unless_another_gains_much() -> None:
    kept = {(str(NORM), "usual"): "2:2 12:1w"}
    little = [sample(groups, {"1w": 0.0, "2": 0.005}) for groups in (5, 6, 7, 8)]
    much = [sample(groups, {"1w": 0.3, "2": 0.0}) for groups in (30, 32, 34, 36)]
    (found,) = (each.forms for each in Fitting([*little, *much], HOPPER, kept).fitted() if each.row_class == "usual")
    assert [form_at(groups, found) for groups in (6, 14, 33)] == ["2", "1w", "2"]


def test_few_samples_do_not_replace_a_kept_form() -> None:
    kept = {(str(NORM), "usual"): "2:2"}
    near = [sample(groups, {"1w": 0.0, "2": 0.06, BY_RULE: 0.3}) for groups in (6, 7, 9, 10)]

    def form_with(samples: list[Sample]) -> str:
        found = Fitting(samples, HOPPER, kept).fitted()
        (of_usual,) = (each.forms for each in found if each.row_class == "usual")
        return form_at(8, of_usual)

    assert form_with(near[:1]) == "2"
    assert form_with([*near, *near]) == "1w"


def test_forms_that_were_fast_for_other_work_are_not_considered() -> None:
    norms = [sample(groups, {"1w": 0.0, "2w": 0.2}) for groups in (7, 8, 9)]
    encoded = replace(NORM, op="quantize", weight="none", gate_columns=4080, hidden_size=4080)
    other = Sample("", "silu", encoded, "usual", "", {"4x2": 0.0})
    found = fitted(*norms, other)
    key = next(key for key, _ in found if key.startswith("quantize"))
    assert form_at(8, found[key, "usual"]) in ("2", BY_RULE)
    assert "1w" not in found[key, "usual"]


def test_kept_forms_of_kernels_without_samples_stay() -> None:
    kept = {(str(replace(NORM, residual=True)), row_class): "2:2w" for row_class in ("few", "many")}
    found = Fitting([sample(8, {"1w": 0.0, "2": 0.1})], HOPPER, kept).fitted()
    assert kept.items() <= {(each.config, each.row_class): each.forms for each in found}.items()


def test_kept_forms_of_classes_without_samples_stay() -> None:
    kept = {(str(NORM), row_class): "2:2w" for row_class in ("few", "usual")}
    found = Fitting([sample(8, {"1w": 0.0, "2": 0.1})], HOPPER, kept).fitted()
    assert {each.row_class: each.forms for each in found}["few"] == "2:2w"


def test_classes_of_rows_do_not_learn_from_each_other() -> None:
    found = fitted(sample(8, {"1w": 0.0, "2": 0.1}, "few"), sample(8, {"1w": 0.1, "2": 0.0}, "many"))
    assert [form_at(8, found[str(NORM), row_class]) for row_class in ("few", "many")] == ["1w", "2"]


def test_rows_of_whole_groups_have_forms_of_their_own() -> None:
    partial = [sample(8, {"1w": 0.0, "2": 0.1})] * 2
    whole = replace(sample(8, {"1w": 0.1, "2": 0.0}), config=KernelConfig("rmsnorm", 4096))
    found = fitted(*partial, whole)[str(NORM), "usual"]
    assert [form_at(8, found, is_whole=is_whole) for is_whole in (False, True)] == ["1w", "2"]


def test_where_rows_do_not_lie_side_by_side_another_form_applies() -> None:
    """Those of 768 elements do, in 48 lanes each; those of 1008 do not, in 63."""
    short, long = (KernelConfig("quantize", size, weight="none", gate_columns=size) for size in (768, 1008))
    found = [
        Sample("", "silu", short, "usual", "", {"": 0.4, "1x1p4n48": 0.0, "2x1o24": 0.3, "1x2": 0.2}),
        Sample("", "silu", long, "usual", "", {"": 0.4, "2x1o24": 0.0, "1x2": 0.1}),
    ] * 9
    (forms,) = (each.forms for each in Fitting(found, HOPPER).fitted() if each.row_class == "usual")
    form = form_at(2, forms)
    assert form == "1f128|1t1536"
    key = form_key(tuning_key(short))
    known = {(str(key), "usual"): f"2:{form}"}
    fits = [fitted_schedule(tuning_key(each), each, HOPPER, "usual", known) for each in (short, long)]
    assert fits == ["1x1p4n48", "2x1o24"]
    (kept,) = (each.forms for each in Fitting(found[:2], HOPPER, known).fitted() if each.row_class == "usual")
    assert form_at(2, kept) == form


def test_a_form_in_clusters_is_followed_by_one_for_targets_that_have_none() -> None:
    long = [sample(groups, {"1wb4": 0.0, "2w": 0.1, BY_RULE: 0.3}) for groups in (28, 30, 31, 32)] * 3
    forms = "2:2w"
    for _ in range(2):  # forms that are kept may be followed by others, too
        found = Fitting(long, HOPPER, {(str(NORM), "usual"): forms}).fitted()
        (forms,) = (each.forms for each in found if each.row_class == "usual")
        assert form_at(30, forms) == "1wb4|2w"
    config = KernelConfig("rmsnorm", 15344)
    known = {(str(NORM), "usual"): forms}
    schedules = [
        fitted_schedule(tuning_key(config), config, each, "usual", known) for each in (HOPPER, Target("sm_80"))
    ]
    assert schedules == ["32x1wb4", "15x2w"]


def test_forms_in_clusters_are_told_from_others_whatever_kernels_were_measured_before() -> None:
    """The forms of a first kernel end with the rules', so those of a second one come after these."""
    encoded = replace(NORM, op="quantize", weight="none", gate_columns=4080, hidden_size=4080)
    first = Sample("", "silu", encoded, "usual", "", {"4x2": 0.0})
    regrets = {"1wb4": 0.0, "3": 0.015, "3wb4": 0.01, BY_RULE: 0.3}
    long = [sample(groups, regrets) for groups in (28, 30, 31, 32)] * 3
    assert form_at(30, fitted(first, *long)[str(NORM), "usual"]) == "1wb4|3"


def test_each_device_counts_as_much_as_the_others() -> None:
    many = [sample(8, {BY_RULE: 0.3, "1w": 0.0, "2": 0.1}, device="H100")] * 2
    one = sample(8, {BY_RULE: 0.3, "1w": 0.15, "2": 0.0}, device="H200")
    assert form_at(8, fitted(*many, one)[str(NORM), "usual"]) == "2"
    assert form_at(8, fitted(*many, replace(one, device="H100"))[str(NORM), "usual"]) == "1w"


def test_regret_is_judged_without_the_sample_itself() -> None:
    found = [sample(8, {"1w": 0.0, "2": 0.1}), sample(9, {"1w": 0.3, "2": 0.0})]
    assert Fitting(found, HOPPER).unseen() == [0.1, 0.3]
    alone = sample(8, {"1w": 0.2, BY_RULE: 0.1})
    assert Fitting([alone], HOPPER).unseen()[0] in (0.1, 0.2)


def test_samples_are_read_without_disturbed_times(tmp_path: Path) -> None:
    times = {"": [2.0, 4.0], "10x1": [1.0, 2.0], "5x2": [1.0, 900.0]}
    facts = {"op": "rmsnorm", "config": str(KernelConfig("rmsnorm", 5120)), "row_class": "few", "schedule": "10x1"}
    path = tmp_path / "regret.jsonl"
    path.write_text(json.dumps({"device": "H200"}) + "\n" + json.dumps({**facts, "times": times}) + "\n")
    (found,) = read_samples([path])
    assert found.device == "H200"
    assert found.regrets == pytest.approx({"": 1.0, "10x1": 0.0})
    assert (found.op, found.config.hidden_size, found.chosen) == ("rmsnorm", 5120, "10x1")
    assert forms_in([found]) == ["1", BY_RULE]


def test_rows_of_up_to_a_group_are_no_samples_because_they_have_no_forms(tmp_path: Path) -> None:
    path, sizes = tmp_path / "regret.jsonl", (384, 512, 528)
    facts = [{"op": "rmsnorm", "config": str(KernelConfig("rmsnorm", size)), "row_class": "usual"} for size in sizes]
    lines = [{"device": "H200"}, *({**each, "schedule": "", "times": {"": [1.0]}} for each in facts)]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert [each.config.hidden_size for each in read_samples([path])] == [528]


def test_forms_are_considered_that_were_nearly_the_fastest_in_four_samples_or_of_few_in_one_of_a_hundred() -> None:
    usual, other = sample(8, {"1w": 0.0, "2": 0.03}), sample(8, {"1w": 0.03, "2": 0.0})
    assert forms_in([usual]) == ["1w", BY_RULE]
    assert forms_in([*[usual] * 99, other]) == ["1w", "2", BY_RULE]
    assert forms_in([*[usual] * 299, *[other] * 2]) == ["1w", BY_RULE]
    assert forms_in([*[usual] * 5000, *[other] * 3]) == ["1w", BY_RULE]
    assert forms_in([*[usual] * 5000, *[other] * 4]) == ["1w", "2", BY_RULE]
    assert forms_in([usual], ["2:2w 9:1f128|3; 2:rules"]) == ["1f128", "1w", "2w", "3", BY_RULE]


def test_the_model_predicts_costs_where_there_are_no_samples() -> None:
    """Calls of few rows, like the measured ones of usual rows, gain by an early weight, but for one kernel."""
    early = [sample(groups, {BY_RULE: 0.3, "1q": 0.2, "1wq": 0.0}) for groups in range(3, 17)] * 3
    found = fitted(*early, sample(8, {"1q": 0.0}, residual=True))
    assert [form_at(10, found[str(NORM), row_class]) for row_class in ("usual", "few")] == ["1wq", "1wq"]


@pytest.mark.parametrize(("row_class", "device"), [("usual", "H200, few streams, cold inputs"), ("many", "H200")])
def test_streams_and_inputs_make_another_device_but_to_many_rows(row_class: str, device: str, tmp_path: Path) -> None:
    facts = {"op": "rmsnorm", "config": str(KernelConfig("rmsnorm", 5120)), "row_class": row_class, "schedule": ""}
    path = tmp_path / "regret.jsonl"
    path.write_text(
        json.dumps({"device": "H200", "streams": "few", "inputs": "cold"})
        + "\n"
        + json.dumps({**facts, "times": {"": [1.0]}})
    )
    (found,) = read_samples([path])
    assert found.device == device


def test_the_schedule_of_a_form_that_is_the_rules_own_has_no_text_and_of_one_that_does_not_fit_there_is_none() -> None:
    config = KernelConfig("rmsnorm", 4608)
    assert schedules_of(config, [BY_RULE, "1", "2w", "1/8b2"], HOPPER) == ["", "9x1", "", None]


def test_forms_that_would_split_chunks_in_vain_have_no_schedule() -> None:
    plain = KernelConfig("rmsnorm", 4608)
    forms = ["1h", "1wq", "1wqh"]
    assert schedules_of(plain, forms, HOPPER) == ["9x1h", "9x1wq", "9x1wqh"]
    blocks = KernelConfig.parse("rmsnorm:hidden_size=4608,quant=e2m1/16/e4m3")
    assert schedules_of(blocks, forms, HOPPER) == [None, "9x1wq", None]


def test_forms_that_would_copy_parameters_in_vain_have_no_schedule() -> None:
    forms = ["1q", "1qc"]
    assert schedules_of(KernelConfig("layernorm", 2560), forms, HOPPER) == ["5x1q", "5x1qc"]
    assert schedules_of(KernelConfig("layernorm", 2568), forms, HOPPER) == ["6x1q", None]
