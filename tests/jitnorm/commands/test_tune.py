"""`jitnorm tune` as seen by users, with an invented clock: kernels are neither built nor run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from cache_entries import Invoke
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.target import Target

from jitnorm import tuning
from jitnorm.bench.results import Setup
from jitnorm.call_config import config_of_call
from jitnorm.commands import tune as command
from jitnorm.tune.choose import Times
from jitnorm.tune.table import read_table
from jitnorm.tuning import user_file, user_table

SETUP = Setup("2026-11-22", "NVIDIA H200", "580.1", {"jitnorm": "0.1.0"})
SOME = ("--ops", "rmsnorm,layernorm", "--hidden-sizes", "2048", "--row-classes", "few,many")


class Clock:
    """A meter that finds one schedule of layer normalization fast."""

    is_right = True
    cases: int

    def __init__(self, case: command.Case, *_: object) -> None:
        self.case = case
        Clock.cases += 1

    def time(self, config: KernelConfig) -> Times:
        fast = config.op == "layernorm" and config.schedule == "4x1q"
        return tuple(rows * (0.5 if fast else 1.0) for rows in self.case.rows)

    def copy(self) -> Times:
        return tuple(rows * 0.4 for rows in self.case.rows)

    def is_same(self, one: KernelConfig, other: KernelConfig) -> bool:
        return self.is_right


@pytest.fixture(autouse=True)
def _no_gpu(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(command, "target_here", lambda: Target("sm_90a"))
    monkeypatch.setattr(command.machine, "setup_of", lambda *_: SETUP)
    monkeypatch.setattr(command, "warm", lambda progress, **_: iter([progress]))
    monkeypatch.setattr(command, "DeviceMeter", Clock)
    monkeypatch.setattr(tuning, "_SHIPPED", Path("/nowhere"))
    monkeypatch.setattr(Clock, "is_right", True)
    Clock.cases = 0
    user_table.cache_clear()
    yield
    user_table.cache_clear()


def schedule_of_call(op: str) -> str:
    options = {"op": op}
    target = Target("sm_90a")
    return config_of_call(options, target, hidden_size=2048, input="bfloat16", row_class="few").schedule


def test_what_is_faster_is_shown_stored_and_used(invoke: Invoke) -> None:
    assert schedule_of_call("layernorm") == "4x1wuq", "by the rule of few rows"
    result = invoke("tune", *SOME)
    assert result.exit_code == 0, result.output
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["layernorm", "few", "1x2048", "1.00", "0.50", "0.800", "4x1q", "50.0%"] in lines
    assert ["16x2048", "16.00", "8.00", "0.800"] in lines
    assert ["128x2048", "128.00", "64.00", "0.800"] in lines
    assert "4 cases measured; the rules' schedule stays in 2" in result.stdout
    assert (schedule_of_call("layernorm"), schedule_of_call("rmsnorm")) == ("4x1q", "")
    table = read_table(user_file("sm_90a"))
    assert (table.device, table.driver, table.date) == ("NVIDIA H200", "580.1", "2026-11-22")
    assert len(table.entries) == 4, "what stays is remembered, too"


def test_commands_of_the_cache_pass_the_table_by(invoke: Invoke) -> None:
    assert invoke("tune", *SOME).exit_code == 0
    for arguments in (("ls",), ("verify",), ("prune",), ("clear", "--yes")):
        result = invoke("cache", *arguments)
        assert result.exit_code == 0, result.output
    assert user_file("sm_90a").exists()


def test_a_second_run_adds_to_the_first_unless_gpu_or_driver_differ(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert invoke("tune", *SOME).exit_code == 0
    more = ("--ops", "rmsnorm", "--hidden-sizes", "8192", "--row-classes", "usual")
    assert invoke("tune", *more).exit_code == 0
    assert len(read_table(user_file("sm_90a")).entries) == 5
    monkeypatch.setattr(command.machine, "setup_of", lambda *_: Setup("2026-11-23", "NVIDIA H100", "580.1", {}))
    assert invoke("tune", *more).exit_code == 0
    table = read_table(user_file("sm_90a"))
    assert (table.device, len(table.entries)) == ("NVIDIA H100", 1)


def test_the_table_to_ship_has_winners_only_and_leaves_the_cache_alone(invoke: Invoke, tmp_path: Path) -> None:
    out, times = tmp_path / "sm_90a.json", tmp_path / "times.json"
    assert invoke("tune", *SOME, "--out", out, "--json", times).exit_code == 0
    assert [(each.row_class, each.schedule) for each in read_table(out).entries] == [
        ("few", "4x1q"),
        ("many", "4x1q"),
    ]
    assert not user_file("sm_90a").exists()
    found = json.loads(times.read_text())
    assert [(each["op"], each["row_class"]) for each in found] == [
        ("rmsnorm", "few"), ("rmsnorm", "many"), ("layernorm", "few"), ("layernorm", "many"),
    ]  # fmt: skip
    assert found[2]["times"]["4x1q"] == [0.5, 8.0, 32.0, 64.0]


def test_what_was_found_before_the_time_is_up_is_kept(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(100))
    monkeypatch.setattr(command, "monotonic", lambda: float(next(clock)))
    assert invoke("tune", *SOME, "--seconds", "2").exit_code == 0
    assert Clock.cases == 1
    assert len(read_table(user_file("sm_90a")).entries) == 1


def test_a_schedule_that_gives_other_bytes_is_an_error(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Clock, "is_right", False)
    result = invoke("tune", *SOME)
    assert result.exit_code == 1
    assert "schedule=4x1q gives different bytes from layernorm:" in result.stderr
    assert {each.config.partition(":")[0] for each in read_table(user_file("sm_90a")).entries} == {"rmsnorm"}


def test_a_dry_run_lists_and_measures_nothing(invoke: Invoke) -> None:
    result = invoke("tune", "--dry-run", *SOME)
    assert result.exit_code == 0
    assert "4 cases, " in result.stdout
    assert Clock.cases == 0


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_an_op_that_cannot_have_a_size_is_left_out_and_the_others_are_measured(
    invoke: Invoke, dry: tuple[str, ...]
) -> None:
    result = invoke("tune", "--ops", "rmsnorm fp8 128,rmsnorm", "--hidden-sizes", "1440", "--row-classes", "few", *dry)
    assert result.exit_code == 0, result.output
    assert "left out: rmsnorm fp8 128 at 1440: input: its last dimension (hidden size) is 1440" in result.stderr
    assert Clock.cases == (0 if dry else 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--ops", "softmax"), "ops: is 'softmax'; allowed are rmsnorm, add_rmsnorm"),
        (("--hidden-sizes", "wide"), "hidden_sizes: is 'wide'; write sizes such as 4096,8192"),
        (("--hidden-sizes", "65536", "--row-classes", "usual"), "hidden_sizes: offer no choice of schedules"),
        (("--row-classes", "most"), "row_classes: is 'most'; allowed are fewest, few, some, several, usual, many"),
        (("--backend", "cute"), "backend: is 'cute'; only nvrtc and nvcc have schedules"),
    ],
)
def test_what_is_not_allowed_is_refused(arguments: tuple[str, ...], message: str, invoke: Invoke) -> None:
    result = invoke("tune", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
