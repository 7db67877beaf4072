"""Regret at drawn lengths, measured by a stand-in for a GPU, and the forms that are fitted to it."""

from __future__ import annotations

import json
import sys
from collections.abc import Generator, Sequence
from itertools import product
from pathlib import Path

import fit_schedules
import pytest
import schedule_regret
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.row_classes import ROW_CLASSES, class_of, classes_of
from jitnorm.kernels.row_schedule import RowSchedule
from jitnorm.kernels.target import Target

from jitnorm.bench.results import Setup
from jitnorm.fitted_forms import form_at, read_forms
from jitnorm.tune import fit, regret
from jitnorm.tune.cases import Case
from jitnorm.tune.cost_model import CostModel
from jitnorm.tune.fit import FittedForms, write_forms
from jitnorm.tune.samples import key_of, read_samples
from jitnorm.tuning import forms_file
from jitnorm.warm.plan import Job, Outcome


class FewerChunks:
    """A meter by which each chunk more per lane takes longer, and everything else nothing."""

    def __init__(self, case: Case, target: Target, backend: str, replays: int) -> None:
        self._rows = case.rows

    def time(self, config: KernelConfig) -> tuple[float, ...]:
        chunks = RowSchedule.parse(config.schedule).chunks_per_lane if config.schedule else 4
        return tuple(10.0 + chunks for _ in self._rows)


def build(jobs: Sequence[Job], count: int, backend: str) -> Generator[Outcome, None, None]:
    for job in jobs:
        yield Outcome(job, "built")


@pytest.fixture(autouse=True)
def _nothing_is_predicted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Growing trees would take most of the time; `tests/jitnorm/tune/test_fit.py` does."""
    monkeypatch.setattr(fit, "CostModel", lambda samples, target: CostModel([], target))


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for a GPU, and one length of each of two ops."""
    monkeypatch.setattr(schedule_regret, "target_here", lambda: Target("sm_90a"))
    monkeypatch.setattr(schedule_regret.machine, "setup_of", lambda *_: Setup("2026-11-25", "stand-in", "1.0", {}))
    monkeypatch.setattr(schedule_regret, "load_or_build_launcher", lambda cache: None)
    monkeypatch.setattr(schedule_regret, "DeviceMeter", FewerChunks)
    monkeypatch.setattr(schedule_regret, "run", build)
    monkeypatch.setattr(schedule_regret, "draw", lambda ops, seed, step: iter([("rmsnorm", 5008), ("silu", 9008)]))


def measure(out: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> Path:
    monkeypatch.setattr(sys, "argv", ["schedule_regret.py", "--seconds", "600", "--out", str(out), *options])
    schedule_regret.main()
    return out


@pytest.fixture
def measured(gpu: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """The file of a run that measures both."""
    return measure(tmp_path / "regret.jsonl", monkeypatch)


def test_every_schedule_of_every_case_is_written(measured: Path, capsys: pytest.CaptureFixture[str]) -> None:
    head, *lines = map(json.loads, measured.read_text().splitlines())
    assert head["device"] == "stand-in"
    assert [(line["op"], line["row_class"]) for line in lines] == [
        (op, row_class) for op, size in (("rmsnorm", 5008), ("silu", 9008)) for row_class in classes_of(size)
    ]
    for line in lines:
        assert {"", line["schedule"]} <= line["times"].keys()
        assert all(len(times) == len(line["rows"]) for times in line["times"].values())
    assert "of 12 cases" in capsys.readouterr().out


def test_some_classes_can_be_measured_alone(gpu: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = measure(tmp_path / "some.jsonl", monkeypatch, "--row-classes", "many,usual")
    _, *lines = map(json.loads, found.read_text().splitlines())
    of_each = [(op, row_class) for op in ("rmsnorm", "silu") for row_class in ("usual", "many")]
    assert [(line["op"], line["row_class"]) for line in lines] == of_each


def test_a_class_that_is_not_known_is_an_error(gpu: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"row_classes: is 'lots'; allowed are fewest, few"):
        measure(tmp_path / "some.jsonl", monkeypatch, "--row-classes", "usual,lots")


def test_rows_are_drawn_out_of_each_class(gpu: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, *lines = map(json.loads, measure(tmp_path / "drawn.jsonl", monkeypatch, "--draw-rows").read_text().splitlines())
    drawn = [(line["op"], *line["rows"]) for line in lines]
    assert [class_of(rows, {"rmsnorm": 5008, "silu": 9008}[op]) for op, rows in drawn] == [
        line["row_class"] for line in lines
    ]
    assert len({rows for _, rows in drawn}) > 8


def test_neighbours_are_compared_at_more_numbers_of_rows(
    gpu: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, *lines = map(json.loads, measure(tmp_path / "some.jsonl", monkeypatch, "--neighbours").read_text().splitlines())
    (some,) = (line for line in lines if (line["op"], line["row_class"]) == ("rmsnorm", "some"))
    assert some["rows"] == [152, 208, 256, 320, 384]
    assert {"", some["schedule"]} < some["times"].keys()
    assert all(len(line["times"]) <= 4 for line in lines)


def test_the_fastest_forms_are_fitted_and_the_regret_of_unseen_lengths_is_shown(
    measured: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "forms.json"
    monkeypatch.setattr(sys, "argv", ["fit_schedules.py", str(measured), "--out", str(out)])
    fit_schedules.main()
    shown = capsys.readouterr().out
    assert all(f"{name}: " in shown for name in ("rules", "before", "fitted"))
    forms = read_forms(out)
    assert len(forms) == 2 * len(ROW_CLASSES)
    assert {form_at(10, text)[0] for text in forms.values()} == {"1"}
    assert '"samples": 12' in out.read_text()


def test_forms_of_other_kernels_are_kept_and_their_samples_counted(
    measured: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, kept = tmp_path / "forms.json", {("layernorm:hidden_size=4096", "few"): "2:1w 17:2w"}
    monkeypatch.setattr(fit_schedules, "forms_of", lambda *_: kept)
    monkeypatch.setattr(sys, "argv", ["fit_schedules.py", str(measured), "--keep", "--out", str(out)])
    fit_schedules.main()
    assert kept.items() <= read_forms(out).items()
    shipped, found = (json.loads(path.read_text()) for path in (forms_file("sm_90a"), out))
    assert found["samples"] == shipped["samples"] + 12
    assert found["devices"] == sorted({*shipped["devices"], "stand-in"})


def test_candidates_do_not_take_the_place_of_shipped_forms(
    measured: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = forms_file("sm_90a").read_bytes()
    monkeypatch.setattr(sys, "argv", ["fit_schedules.py", str(measured), "--keep"])
    with pytest.raises(SystemExit):
        fit_schedules.main()
    assert "--keep: its forms are candidates" in capsys.readouterr().err
    assert forms_file("sm_90a").read_bytes() == before


def test_cases_that_other_forms_change_are_measured_with_both_schedules_and_the_better_form_stays(
    measured: Path, gpu: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    candidates, compared, out = (tmp_path / name for name in ("candidates.json", "compared.jsonl", "forms.json"))
    keys = dict.fromkeys(str(key_of(sample.config)) for sample in read_samples([measured]))
    kernels = list(product(keys, ROW_CLASSES))
    shipped = dict.fromkeys(kernels, "2:2")
    write_forms({}, [FittedForms(*kernel, "2:1") for kernel in kernels], candidates)
    for module in (fit_schedules, regret):
        monkeypatch.setattr(module, "forms_of", lambda *_: shipped)
    measure(compared, monkeypatch, "--against", str(candidates))
    _, *lines = map(json.loads, compared.read_text().splitlines())
    # The other op's rows of 18 groups have the same schedule by both forms.
    assert [line["op"] for line in lines] == ["rmsnorm"] * len(classes_of(5008))
    assert all(line["schedule"] in line["times"] and 2 <= len(line["times"]) <= 3 for line in lines)
    options = [str(compared), "--again", str(measured), "--candidates", str(candidates), "--out", str(out)]
    monkeypatch.setattr(sys, "argv", ["fit_schedules.py", *options])
    fit_schedules.main()
    assert {form_at(10, forms) for (key, _), forms in read_forms(out).items() if key.startswith("rmsnorm")} == {"1"}
    assert json.loads(out.read_text())["samples"] == json.loads(forms_file("sm_90a").read_text())["samples"] + 6
    shipped.update(read_forms(out))
    measure(compared, monkeypatch, "--against", str(candidates))
    assert len(compared.read_text().splitlines()) == 1


def test_the_better_form_of_a_neighbouring_class_replaces_a_shipped_one(
    gpu: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = str(KernelConfig("rmsnorm", 4096))
    shipped = {(key, row_class): "2:1" if row_class == "some" else "2:2" for row_class in ROW_CLASSES}
    for module in (fit_schedules, regret):
        monkeypatch.setattr(module, "forms_of", lambda *_: shipped)
    monkeypatch.setattr(schedule_regret, "draw", lambda ops, seed, step: iter([("rmsnorm", 5008)]))
    compared, out = measure(tmp_path / "some.jsonl", monkeypatch, "--neighbours"), tmp_path / "forms.json"
    monkeypatch.setattr(sys, "argv", ["fit_schedules.py", str(compared), "--neighbours", "--out", str(out)])
    fit_schedules.main()
    found = read_forms(out)
    assert {row_class: form_at(10, found[key, row_class]) for row_class in ROW_CLASSES} == {
        row_class: "1" if row_class in ("few", "some", "several") else "2" for row_class in ROW_CLASSES
    }
