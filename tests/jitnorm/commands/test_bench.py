"""`jitnorm bench` as seen by users: a run on the CPU, its files, comparisons, errors."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from bench_results import SETUP, measured, slowed
from cache_entries import Invoke
from typer.testing import CliRunner, Result

from jitnorm.bench.cases import ops_named
from jitnorm.bench.results import Results, read, write
from jitnorm.cli import app

TINY = ("--device", "cpu", "--ops", "rmsnorm nvfp4,amax", "--shapes", "2x64,3x64")
FIGURES = Results(SETUP, tuple(measured("rmsnorm", by, m, 64, time) for by, time in (("jitnorm", 2.0), ("quack", 2.5))
                               for m in (1, 2)))  # fmt: skip


def bench(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["bench", *map(str, arguments)])


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """A results file with two measurements of each of two libraries."""
    path = tmp_path / "stored.json"
    write(FIGURES, path)
    return path


@pytest.fixture
def slower(tmp_path: Path) -> Path:
    """The same file, with one of jitnorm's results a tenth slower."""
    path = tmp_path / "slower.json"
    first, *others = FIGURES.rows
    write(replace(FIGURES, rows=(slowed(first, 1.1), *others)), path)
    return path


def test_a_run_on_the_cpu_shows_and_writes_what_it_has_measured(invoke: Invoke, tmp_path: Path) -> None:
    result = invoke("bench", *TINY, "--json", tmp_path / "new" / "run.json", "--plot", tmp_path / "plots")
    assert result.exit_code == 0, result.output
    found = read(tmp_path / "new" / "run.json")
    shapes = [(row.op, row.by, row.shape) for row in found.rows]
    assert shapes == [(op, "jitnorm", (m, 64)) for op in ("rmsnorm nvfp4", "amax") for m in (2, 3)]
    assert set(found.setup.versions) == {"jitnorm", "torch"}
    lines = [line.split() for line in result.stdout.splitlines()]
    for row in found.rows:
        assert [*row.op.split(), "jitnorm", f"{row.rows}x64", f"{row.time:.2f}", f"{row.copy:.2f}"] in [
            line[: len(row.op.split()) + 4] for line in lines
        ]
    assert sorted(path.name for path in (tmp_path / "plots").iterdir()) == ["roofline.svg", "throughput.svg"]


def test_results_are_written_after_each_op_so_that_an_interrupted_run_keeps_them(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run.json"

    def interrupt(*_: object) -> object:
        assert {row.op for row in read(run).rows} == {"rmsnorm nvfp4"}
        raise KeyboardInterrupt

    amax = ops_named(["amax"])[0]
    monkeypatch.setattr("jitnorm.bench.cases.OPS", (*ops_named(["rmsnorm nvfp4"]), replace(amax, make=interrupt)))
    assert invoke("bench", *TINY, "--json", run).exit_code == 130
    assert len(read(run).rows) == 2


def test_after_the_seconds_that_are_allowed_it_says_what_is_left_out(invoke: Invoke, tmp_path: Path) -> None:
    result = invoke("bench", *TINY, "--seconds", 0, "--json", tmp_path / "run.json")
    assert result.exit_code == 0, result.output
    assert "left out: rmsnorm nvfp4 at 3x64: 0 s are over\nleft out: amax at 2x64, 3x64: 0 s" in result.stderr
    assert len(read(tmp_path / "run.json").rows) == 1


def test_bars_are_shown_and_written_as_markdown(tmp_path: Path) -> None:
    stored, page = tmp_path / "run.json", tmp_path / "new" / "bars.md"
    write(Results(SETUP, (measured("rmsnorm", "jitnorm", 4096, 4096, 20.0, 19.0),)), stored)
    result = bench("--from", stored, "--markdown", page)
    assert result.exit_code == 0, result.output
    bar = ["norms", "roofline", "jitnorm", "1", "0.950", "0.97", "0.950", "0.90", "no", "rmsnorm", "4096x4096"]
    assert bar in [line.split() for line in result.stdout.splitlines()]
    assert f"| {' | '.join(bar)} |\n" in page.read_text(encoding="utf-8")


def test_a_run_is_compared_with_a_stored_one(invoke: Invoke, tmp_path: Path) -> None:
    run = tmp_path / "run.json"
    assert invoke("bench", *TINY, "--json", run).exit_code == 0
    found = read(run)
    for factor, exit_code in ((1e6, 0), (1e-6, 1)):
        rows = tuple(slowed(row, factor) for row in found.rows)
        write(replace(found, rows=rows), tmp_path / "before.json")
        assert invoke("bench", *TINY, "--against", tmp_path / "before.json").exit_code == exit_code


def test_stored_results_are_shown_written_and_drawn_without_measuring(stored: Path, tmp_path: Path) -> None:
    result = bench("--from", stored, "--json", tmp_path / "copy.json", "--plot", tmp_path / "plots", "--png")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "copy.json").read_bytes() == stored.read_bytes()
    assert (tmp_path / "plots" / "speedup.png").exists()
    assert "device      NVIDIA H200" in result.stdout
    assert "1.250x" in result.stdout


def test_results_say_which_values_inputs_had(tmp_path: Path) -> None:
    normal, zeros = tmp_path / "normal.json", tmp_path / "zeros.json"
    assert "values " not in bench(*TINY, "--json", normal).stdout
    result = bench(*TINY, "--values", "zeros", "--json", zeros, "--against", normal, "--tolerance", 1)
    assert "\nvalues   zeros\n" in result.stdout
    assert "note: the values of inputs differ, and fast paths depend on them" in result.stderr
    assert [read(path).setup.values for path in (normal, zeros)] == ["normal", "zeros"]


def test_against_itself_nothing_is_slower(stored: Path) -> None:
    result = bench("--from", stored, "--against", stored)
    assert result.exit_code == 0
    assert "2 measurements compared with NVIDIA H200, 2026-11-20: 0 slower by more than 5.0%" in result.stdout


def test_what_is_slower_is_listed_and_fails(stored: Path, slower: Path) -> None:
    result = bench("--from", slower, "--against", stored)
    assert result.exit_code == 1
    assert "1 slower by more than 5.0%" in result.stdout
    assert result.stdout.splitlines()[-1].split() == ["rmsnorm", "1x64", "0.500", "0.455", "-9.1%"]
    assert bench("--from", slower, "--against", stored, "--tolerance", 0.1).exit_code == 0
    assert bench("--from", stored, "--against", slower).exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--ops", "softmax"], "error: ops: 'softmax' matches no op; the names are rmsnorm, "),
        (
            ["--shapes", "64"],
            "error: shapes: is '64'; allowed are small, quick, anchors, few, grid, random:SEED, or M x H such as",
        ),
        (["--device", "tpu"], "error: device: is 'tpu'; allowed are cuda, cpu"),
        (["--values", "small", *TINY], "error: values: is 'small'; allowed are 'normal', 'zeros', 'large', 'outliers'"),
        (["--by", "cutlass", *TINY], "error: by: is 'cutlass'; allowed are jitnorm, flashinfer, quack"),
        (["--by", "quack", *TINY], "error: by: quack runs on GPUs only, not on cpu; leave it out"),
        (["--device", "cpu", "--ops", "mxfp8", "--shapes", "2x33"], "error: shapes: no selected op takes"),
        (["--against", "/nowhere"], "error: cannot read /nowhere: "),
        (["--from", "/nowhere"], "error: cannot read /nowhere: "),
        (["--from", "/nowhere", "--ops", "amax"], "error: from: shows all stored results; omit --ops"),
        (["--from", "/nowhere", "--values", "zeros"], "error: from: shows all stored results; omit --ops"),
    ],
)
def test_a_wrong_argument_is_one_line_on_stderr_and_exit_code_2(arguments: list[str], message: str) -> None:
    result = bench(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(message)
    assert result.stderr.count("\n") == 1


def test_a_gpu_that_is_not_there_and_a_peer_that_is_not_installed_say_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    result = bench("--device", "cuda")
    assert result.exit_code == 2
    assert "device: is 'cuda', but torch" in result.stderr
    assert "sees no GPU; use cpu, or install a torch for CUDA" in result.stderr
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr("jitnorm.bench.peers.installed", list)
    result = bench("--by", "quack")
    assert result.exit_code == 2
    assert "by: quack is not installed; pip install quack-kernels, or leave it out" in result.stderr


@pytest.mark.parametrize(
    ("module", "arguments", "remedy"),
    [("matplotlib", ["--plot", "plots"], "jitnorm[bench]"), ("torch", [], "jitnorm[torch]")],
)
def test_a_package_that_is_missing_is_named_before_anything_is_measured(
    module: str, arguments: list[str], remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    result = bench(*TINY, *arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"{module}, which" in result.stderr
    assert result.stderr.endswith(f': pip install "{remedy}"\n')


def test_stored_results_need_no_torch(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert bench("--from", stored).exit_code == 0


def test_the_file_is_json_whose_rows_name_their_fields(stored: Path) -> None:
    found = json.loads(stored.read_text(encoding="utf-8"))
    assert set(found) == {"date", "device", "driver", "versions", "rows"}
    assert set(found["rows"][0]) == {"op", "by", "rows", "hidden_size", "op_bytes", "time", "copy", "host"}
