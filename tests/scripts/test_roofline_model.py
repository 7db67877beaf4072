"""What docs/performance.md says of machine code is so, and what the model says of an H200 is near what was measured."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import roofline_model as model
from call_facts import facts
from jitnorm.kernels.row_classes import class_of
from jitnorm.kernels.target import Target
from roofline import GPUS, predict

from jitnorm.bench.cases import op_named
from jitnorm.bench.tensors import Tensors
from jitnorm.call_config import config_of_call
from jitnorm.toolchains.nvrtc import Nvrtc
from jitnorm.toolchains.search import on_path, on_sys_path

__all__ = ["facts"]

Write = Callable[..., Path]
PAGE = model.PAGE.read_text(encoding="utf-8")

pytestmark = pytest.mark.skipif(
    (on_sys_path("nvidia/cu13/bin/nvdisasm") or on_path("nvdisasm")) is None,
    reason="nvdisasm is missing: pip install nvidia-cuda-nvdisasm",
)


@pytest.mark.parametrize(("op", "hidden_size"), [("rmsnorm", 8192), ("add nvfp4", 4096), ("silu nvfp4", 8192)])
def test_the_page_has_what_the_script_counts_and_predicts(op: str, hidden_size: int) -> None:
    """A sample: all rows take minutes, and `scripts/roofline_model.py --markdown` writes them together."""
    if Nvrtc().identity() not in PAGE:
        pytest.skip("another compiler than the page's makes other machine code")
    assert model.count_row(op, hidden_size) in PAGE
    assert model.prediction_row(op, hidden_size) in PAGE


@pytest.mark.parametrize("op", model.OPS)
def test_the_kernel_of_each_cell_is_that_of_a_call(op: str, facts: list[Any]) -> None:
    shapes = {*((model.ROWS, size) for size in model.HIDDEN_SIZES), *model.CALIBRATED}
    for hidden_size in {hidden_size for _, hidden_size in shapes}:
        op_named(op).make(Tensors("cpu"), 2, hidden_size)()
    by_size = {of_call["hidden_size"]: (options, of_call) for options, of_call in facts}
    assert len(facts) == len(by_size), "a call of several launches is not what the model is for"
    for (rows, hidden_size), target in product(shapes, map(Target, ("sm_90a", "sm_100a"))):
        options, of_call = by_size[hidden_size]
        called = config_of_call(options, target, **{**of_call, "row_class": class_of(rows, hidden_size)})
        assert model.config_of(op, rows, hidden_size, target) == called


def test_the_page_has_a_row_for_every_op_and_size() -> None:
    for op in model.OPS:
        for size in model.HIDDEN_SIZES:
            assert PAGE.count(f"| {op} | {size} |") == 2


def test_the_bytes_of_each_op_are_those_of_its_measurement() -> None:
    measured = json.loads(model.MEASURED.read_text(encoding="utf-8"))["rows"]
    rows = [row for row in measured if row["op"] in model.OPS]
    assert {row["op"] for row in rows} == set(model.OPS)
    for row in rows:
        assert row["op_bytes"] == op_named(row["op"]).bytes_at(row["rows"], row["hidden_size"])


@pytest.fixture
def measured(tmp_path: Path) -> Write:
    """Writes a measurement of one row."""

    def write(gpu: str, **changes: object) -> Path:
        row = {"op": "rmsnorm nvfp4", "by": "jitnorm", "rows": 16384, "hidden_size": 8192, "time": 104.5, "copy": 82.6}
        file = tmp_path / "measured.json"
        file.write_text(json.dumps({"device": gpu, "rows": [row | changes]}), encoding="utf-8")
        return file

    return write


def test_nvfp4_on_an_h200_took_what_its_instructions_did() -> None:
    """By those of the kernel that was measured. The model has no constant that was fitted to its time."""
    found = predict({"issue": 20.9}, 16384 * 8192, 82.6, GPUS["H200"])
    assert found.limit == "issue"
    assert found.roofline == pytest.approx(82.6 / 104.5, abs=0.05)


def test_what_was_measured_is_printed_beside_what_is_predicted(
    measured: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    model.print_beside(measured("NVIDIA H200"))
    line = capsys.readouterr().out.splitlines()[1].split()
    assert line[:2] == ["rmsnorm", "nvfp4"]
    assert float(line[-3]) == pytest.approx(82.6 / 104.5, abs=0.001)


@pytest.mark.parametrize("changes", [{"by": "flashinfer"}, {"op": "unheard of"}, {"rows": 16}])
def test_what_the_model_does_not_cover_is_left_out(measured: Write, changes: dict[str, object]) -> None:
    assert list(model.beside(measured("NVIDIA H200", **changes))) == []


def test_a_gpu_without_figures_is_named(measured: Write) -> None:
    with pytest.raises(SystemExit, match="NVIDIA A100"):
        list(model.beside(measured("NVIDIA A100")))


@pytest.mark.parametrize(("gpu", "target"), [("NVIDIA GB200", "GB200"), ("NVIDIA B200", "B200")])
def test_a_gpu_is_known_by_its_whole_name(
    measured: Write, gpu: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    monkeypatch.setattr(model, "prediction", lambda op, m, h, gpu, copy: seen.append(gpu.name))
    list(model.beside(measured(gpu)))
    assert seen == [target]


def test_a_long_row_counts_its_loop() -> None:
    """Eight chunks a lane are encoded by two turns of four: per element as much as four chunks, or a little less."""
    target = Target("sm_90a")
    long, short = (
        model.per_element(replace(model.config_of("rmsnorm nvfp4", rows, size, target), schedule=schedule), target)
        for rows, size, schedule in ((4096, 32768, "8x8"), (16384, 8192, "4x4"))
    )
    assert long["issue"] == pytest.approx(short["issue"], rel=0.1)
