"""`jitnorm tune-comm` as its users meet it, with ranks of the CPU; and calls that then follow what it found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cache_entries import Invoke
from jitnorm.kernels.target import Target
from typer.testing import CliRunner

from jitnorm import comm, tuning
from jitnorm.cli import app
from jitnorm.comm.choices import METHODS, Entry, of_device, read_choices, write_choices
from jitnorm.comm.memory import Exchange
from jitnorm.comm.threads import on_threads
from jitnorm.commands import tune_ranks
from jitnorm.tune.processes import Outcome
from jitnorm.tune.ranks import ROWS, Wanted, drawn_rows
from jitnorm.tuning import user_file

CPU = ("tune-comm", "--device", "cpu")
SMALL = (*CPU, "--hidden-sizes", "64", "--rows", "8,1", "--formats", "none")


def test_it_measures_on_processes_and_calls_follow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JITNORM_CPU_THREADS", "1")
    table, times = tmp_path / "ranks.json", tmp_path / "times.json"
    result = CliRunner().invoke(app, [*SMALL, "--out", str(table), "--json", str(times)])
    assert result.exit_code == 0, result.output
    monkeypatch.setattr(tuning, "user_file", lambda name: tmp_path / f"{name}.json")
    (found,) = of_device("CPU", 2)
    assert (found.hidden_size, found.code_bits, found.bytes) == (64, 0, (128, 1024))
    assert all(time is not None and time > 0 for method in METHODS for time in found.times[method])
    assert json.loads(times.read_text())[0]["times"] == {method: list(found.times[method]) for method in METHODS}
    assert f"1 entries for 2 ranks on CPU. The table is {table}" in result.stdout
    assert [line.split()[-1] for line in result.stdout.splitlines() if line.startswith("0 ")] == [
        next(method for most, method in found.steps(METHODS) if size <= most) for size in found.bytes
    ]

    def work(rank: int, exchange: Exchange) -> comm.Workspace:
        x = np.ones((8, 64), np.float16)
        own = comm.Workspace.from_exchange(rank, 2, exchange, max_rows=8, hidden_size=64, dtype="float16")
        comm.all_reduce_norm_quantize(x, x[0], own)
        return own

    built: list[Any] = []
    monkeypatch.setattr("jitnorm.building.compile_kernel", lambda *args: built.append(args))
    assert [own.choices for own in on_threads(2, work)] == [(found,)] * 2
    assert built == [], "what was measured is in the cache"


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[Wanted]:
    """What ranks are asked for that measure nothing; each entry takes as long as it says."""
    asked: list[Wanted] = []

    def run(ranks: int, work: Any, wanted: Wanted, *facts: Any, seconds: float) -> list[Outcome]:
        asked.append(wanted)
        times = {method: (2.0 - (method == "two_shot"),) for method in METHODS}
        entries = [Entry("CPU", ranks, size, 0, *facts[1:], (size * 2,), times) for size in wanted.hidden_sizes]
        return [Outcome(entries)] * ranks

    monkeypatch.setattr(tune_ranks, "run_ranks", run)
    monkeypatch.setattr(tune_ranks, "warm", lambda progress, **_: iter([progress]))
    return asked


def test_a_second_run_adds_to_the_table_that_is_given(invoke: Invoke, measured: list[Wanted], tmp_path: Path) -> None:
    out = tmp_path / "ranks.json"
    for sizes in ("64", "128,64"):
        assert invoke(*CPU, "--hidden-sizes", sizes, "--out", out).exit_code == 0
    assert [(each.hidden_size, each.ranks) for each in read_choices(out)] == [(64, 2), (128, 2)]
    assert invoke(*CPU, "--hidden-sizes", "64", "--ranks", "3", "--out", out).exit_code == 0
    assert [each.ranks for each in read_choices(out)] == [2, 2, 3]
    assert not user_file("ranks").exists()
    assert measured[0].rows == ROWS["cpu"]
    assert len(measured[0].formats) == 3


def test_the_commands_of_the_cache_pass_the_table_by(invoke: Invoke, measured: list[Wanted]) -> None:
    assert invoke(*SMALL).exit_code == 0
    for arguments in (("ls",), ("verify",), ("prune",), ("clear", "--yes")):
        assert invoke("cache", *arguments).exit_code == 0
    assert len(of_device("CPU", 2)) == len(measured) == 1


def test_a_rank_that_fails_is_named_and_the_table_stays(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    write_choices([], user_file("ranks"))
    before = user_file("ranks").read_bytes()
    monkeypatch.setattr(tune_ranks, "warm", lambda progress, **_: iter([progress]))
    monkeypatch.setattr(tune_ranks, "run_ranks", lambda *_, **__: [Outcome([]), Outcome(error="died")])
    result = invoke(*SMALL)
    assert result.exit_code == 1
    assert "rank 1: died" in result.stderr
    assert user_file("ranks").read_bytes() == before


def test_nothing_is_written_without_time(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tune_ranks, "warm", lambda progress, **_: iter([progress]))
    result = invoke(*SMALL, "--seconds", "0")
    assert result.exit_code == 0, result.output
    assert "nothing was measured in time" in result.stdout
    assert not user_file("ranks").exists()


def test_a_dry_run_says_what_would_be_measured(invoke: Invoke, measured: list[Wanted]) -> None:
    result = invoke(*CPU, "--dry-run", "--hidden-sizes", "64", "--rows", "random:3", "--ranks", "4")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("4 ranks on CPU; H 64; formats none, fp8, nvfp4; rows 1, ")
    assert "; 10 kernels" in result.stdout, "by a method and format one, the sum, and a norm of each format"
    assert measured == []


def test_classes_of_rows_have_kernels_of_their_own_on_gpus() -> None:
    wanted = Wanted("cuda", 2, (4096,), ("none",), (1, 16, 4096))
    kernels = wanted.kernels(Target("sm_90a"))
    assert {(each.op, each.all_reduce) for each in kernels} == {
        ("rmsnorm", "one_shot"), ("rmsnorm", "two_shot"), ("quantize", "two_shot"), ("rmsnorm", ""),
    }  # fmt: skip
    assert len([each for each in kernels if not each.all_reduce]) > 1
    assert all(each.pdl for each in kernels)


def test_drawn_rows_follow_from_the_seed() -> None:
    assert drawn_rows("cuda", 1) == drawn_rows("cuda", 1) != drawn_rows("cuda", 2)
    assert drawn_rows("cuda", 1)[0] == 1 < drawn_rows("cuda", 1)[-1] <= 1 << 14


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--rows", "few"), "rows: is 'few'; write numbers such as 1,16,512, or random:SEED"),
        (("--rows", "0,1"), "rows: is '0,1'"),
        (("--rows", "random:x"), "rows: is 'random:x'"),
        (("--hidden-sizes", "wide"), "hidden_sizes: is 'wide'; write sizes such as 4096,8192"),
        (("--formats", "int8"), "formats: is 'int8'"),
        (("--ranks", "9"), "ranks: is 9"),
    ],
)
def test_what_is_not_allowed_is_refused(arguments: tuple[str, ...], message: str, invoke: Invoke) -> None:
    result = invoke(*CPU, *arguments)
    assert result.exit_code == 2
    assert message in result.stderr


def test_as_many_ranks_as_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tune_ranks, "launcher", lambda: type("L", (), {"device_count": staticmethod(lambda: 4)}))
    assert tune_ranks.wanted_of("cuda", None, (), (), "").ranks == 4
    assert tune_ranks.wanted_of("cuda", 2, (), (), "").ranks == 2
    with pytest.raises(ValueError, match="ranks: is 5, but this machine has 4 GPUs"):
        tune_ranks.wanted_of("cuda", 5, (), (), "")
