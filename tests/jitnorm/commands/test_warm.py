"""`jitnorm warm` as seen by operators: an order, a record, an interrupt, and what a server finds afterwards."""

from __future__ import annotations

import io
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_cxx import fake_cxx
from jitnorm.kernels.target import Target
from python_process import run_python
from rich.console import Console
from typer.testing import CliRunner, Result

from jitnorm.cli import app
from jitnorm.commands.warm import show_warm
from jitnorm.store import user_cache, user_store
from jitnorm.warm.plan import Job, Outcome
from jitnorm.warm.sources import Sources

SECONDS = 120.0
OP = ("--op", "rmsnorm", "--hidden-size", "64,128", "--arch", "cpu")
SERVE = """
import json, sys
import numpy as np
import jitnorm
try:
    for size in map(int, sys.argv[1:]):
        x = np.ones((2, size), np.float16)
        jitnorm.rmsnorm(x, np.ones(size, np.float16))
    print(json.dumps({"served": True}))
except jitnorm.KernelNotWarmError as error:
    print(json.dumps({"served": False, "command": error.command}))
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache folder, for this process and those that it starts."""
    monkeypatch.setenv("JITNORM_CACHE_DIR", str(tmp_path / "cache"))
    for opened in (user_store, user_cache):
        opened.cache_clear()
    yield tmp_path / "cache"
    for opened in (user_store, user_cache):
        opened.cache_clear()


def warm(*arguments: str, with_launcher: bool = False) -> Result:
    return CliRunner().invoke(app, ["warm", *arguments, *([] if with_launcher else ["--no-launcher"])])


def summary(*arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(warm(*arguments, "--json").stdout)
    return found


def serve(*sizes: int, cwd: Path) -> dict[str, Any]:
    """The kernels that a process finds if it must not compile."""
    found: dict[str, Any] = json.loads(run_python(SERVE, *map(str, sizes), cwd=cwd, JITNORM_JIT="deny"))
    return found


def test_kernels_are_built_once_and_then_found_without_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    first = warm(*OP)
    assert first.exit_code == 0, first.output
    assert first.stdout.count(" built ") == 2
    assert "2 of 2 kernels: 0 cached, 2 built, 0 failed" in first.stdout

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a worker was started")

    monkeypatch.setattr("jitnorm.warm.workers._Worker", refuse)
    second = warm(*OP)
    assert second.exit_code == 0, second.output
    assert "2 of 2 kernels: 2 cached, 0 built, 0 failed" in second.stdout


def test_json_tells_all_of_every_kernel(cache: Path) -> None:
    found = summary(*OP, "-j", "1")
    assert (found["hit"], found["built"], found["failed"], found["left"]) == (0, 2, 0, 0)
    assert (found["cache"], found["targets"], found["workers"]) == (str(cache), ["cpu"], 1)
    stored = {entry.key: entry for entry in user_store().entries()}
    for kernel in found["kernels"]:
        entry = stored[kernel["key"]]
        assert (kernel["config"], kernel["target"]) == (entry.manifest["config"], "cpu")
        assert kernel["bytes"] == entry.payload_size
        assert kernel["status"] == "built"
        assert kernel["seconds"] > 0
    assert summary(*OP)["hit"] == 2


def test_a_dry_run_lists_and_builds_nothing() -> None:
    warm("--op", "rmsnorm", "--hidden-size", "64", "--arch", "cpu")
    result = warm(*OP, "--dry-run")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[0].startswith("hit     cpu rmsnorm:hidden_size=64,")
    assert result.stdout.splitlines()[1].startswith("missing cpu rmsnorm:hidden_size=128,")
    assert "2 kernels, 1 of them missing" in result.stdout
    assert len(list(user_store().entries())) == 1


def test_several_targets_are_built_for_each_with_its_compiler() -> None:
    found = summary("--op", "rmsnorm", "--hidden-size", "64", "--arch", "cpu,sm_90a", "--arch", "sm_100a")
    assert {(kernel["target"], kernel["status"]) for kernel in found["kernels"]} == {
        ("cpu", "built"), ("sm_100a", "built"), ("sm_90a", "built"),
    }  # fmt: skip


def test_what_fails_is_shown_at_the_end_and_the_rest_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = 'if grep -q hidden_size=64, "$source"; then echo no such register; exit 1; fi'
    monkeypatch.setenv("CXX", str(fake_cxx(tmp_path / "bin", broken)))
    result = warm(*OP)
    assert result.exit_code == 1
    assert "2 of 2 kernels: 0 cached, 1 built, 1 failed" in result.stdout
    assert "failed: rmsnorm:hidden_size=64," in result.stdout
    assert "no such register" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "error: no source is given; use --preset"),
        (["--op", "softmax", "--arch", "cpu"], "error: op: is 'softmax'"),
        (["--op", "rmsnorm", "--hidden-size", "64", "--arch", "sm_70"], "error: target: 'sm_70' is not known"),
        (["--op", "rmsnorm", "--arch", "cpu"], "error: rmsnorm: hidden_size: is not given"),
        (["--preset", "llama9", "--arch", "cpu"], "error: preset: is 'llama9'"),
        (["--config", "rmsnorm:hidden=64", "--arch", "cpu"], "error: config: cannot read"),
        (["--from", "/nowhere", "--arch", "cpu"], "error: from: cannot read /nowhere"),
        (["--model", "/nowhere", "--arch", "cpu"], "error: model: cannot read /nowhere"),
        (["--spec", "/nowhere", "--arch", "cpu"], "error: spec: cannot read /nowhere"),
        ([*OP, "--backend", "msvc"], "error: backend: 'msvc' is not known"),
        ([*OP, "--arch", "sm_90a", "--backend", "cxx"], "error: backend: 'cxx' does not build for sm_90a"),
        (
            ["--op", "rmsnorm", "--hidden-size", "64", "--timeout", "0"],
            "error: timeout: is 0; allowed are numbers of seconds",
        ),
        (["--op", "rmsnorm", "--hidden-size", "64", "--timeout", "nan"], "error: timeout: is nan; allowed are"),
    ],
)
def test_a_wrong_argument_is_one_line_on_stderr_and_exit_code_2(arguments: list[str], message: str) -> None:
    result = warm(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(message)
    assert result.stderr.count("\n") == 1


def test_without_a_compiler_for_one_target_the_others_are_built_and_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    result = warm("--op", "rmsnorm", "--hidden-size", "64,72,80,88,96,104,112", "--arch", "cpu,sm_90a")
    assert result.exit_code == 1
    assert "28 of 28 kernels: 0 cached, 21 built, 7 failed" in result.stdout
    assert result.stdout.count("a C++ compiler was not found") == 1
    assert "and 2 more" in result.stdout


def test_what_is_evicted_before_the_end_is_not_warm(monkeypatch: pytest.MonkeyPatch) -> None:
    def build_and_lose(jobs: list[Job], *_: object) -> Iterator[Outcome]:
        yield from (Outcome(job, "built", 0.1, 100, "0" * 64) for job in jobs)

    monkeypatch.setattr("jitnorm.commands.warm.run", build_and_lose)
    result = warm(*OP)
    assert result.exit_code == 1
    assert "evicted again: the cache is too small for all kernels" in result.stdout


def test_a_terminal_shows_a_bar_with_the_time_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Console(file=io.StringIO(), force_terminal=True, width=100)
    monkeypatch.setattr("jitnorm.commands.warm.make_console", lambda: terminal)
    progress = show_warm(Sources(ops=["rmsnorm"], choices={"hidden_size": 64}).jobs([Target("cpu")]), as_json=False,
                         with_launcher=False)  # fmt: skip
    assert progress.is_warm
    assert isinstance(terminal.file, io.StringIO)
    shown = terminal.file.getvalue()
    assert "1/1" in shown
    assert "left" in shown
    assert "0 cached, 1 built" in shown


def test_what_a_model_needs_and_no_kernel_does_is_named(tmp_path: Path) -> None:
    config = {"model_type": "gpt_neox", "hidden_size": 64, "hidden_act": "gelu", "intermediate_size": 128}
    (tmp_path / "config.json").write_text(json.dumps(config))
    model = ("--model", str(tmp_path), "--format", "fp8_group", "--arch", "cpu")
    plan = warm(*model, "--dry-run")
    assert plan.exit_code == 0, plan.output
    assert "its activation, gelu, which is not a known gate" in plan.stderr
    assert "fp8_group of rows of 64, which are not whole blocks of 128" in plan.stderr
    told = json.loads(warm(*model, "--dry-run", "--json").stdout)["left_out"]
    assert [line.partition(": ")[0] for line in told] == [tmp_path.name] * 2
    done = warm(*model)
    assert done.exit_code == 0, done.output
    assert "left out: " in done.stderr


def test_a_cache_that_cannot_be_written_cannot_be_warmed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_cache().store, "writable", False)
    result = warm(*OP)
    assert result.exit_code == 1
    assert "is not writable, so nothing can be warmed" in result.stderr


def test_an_interrupt_ends_it_at_once_and_the_next_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The last two never end.
    hang = 'if grep -qE "hidden_size=(320|384)," "$source"; then exec sleep 1000; fi'
    monkeypatch.setenv("CXX", str(fake_cxx(tmp_path / "bin", hang)))
    arguments = ["warm", "--op", "rmsnorm", "--hidden-size", "64,128,192,320,384", "--arch", "cpu", "--no-launcher"]
    # Tests that run in the background ignore the signal, which is inherited.
    listening = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    program = f"{listening}; from jitnorm.cli import app; app()"
    process = subprocess.Popen(
        [sys.executable, "-c", program, *arguments, "-j", "2"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout
        lines = [process.stdout.readline() for _ in range(3)]
        assert all(" built " in line for line in lines)
        process.send_signal(signal.SIGINT)
        rest = process.communicate(timeout=10)[0]
    finally:
        process.kill()
    assert process.returncode == 130
    assert "Interrupted: 2 kernels are left. Run the command again to resume." in rest
    monkeypatch.setenv("CXX", str(fake_cxx(tmp_path / "bin", ":")))
    again = CliRunner().invoke(app, arguments)
    assert "5 of 5 kernels: 3 cached, 2 built, 0 failed" in again.stdout


def test_a_server_that_must_not_compile_is_served_once_its_misses_are_warmed(cache: Path, tmp_path: Path) -> None:
    float16 = ("--op", "rmsnorm", "--input", "float16", "--arch", "cpu")
    first = warm(*float16, "--hidden-size", "40", with_launcher=True)
    assert first.exit_code == 0, first.output
    assert "launcher built" in first.stdout
    assert serve(40, cwd=tmp_path) == {"served": True}

    # The error names the very command that helps.
    refused = serve(40, 48, cwd=tmp_path)
    assert not refused["served"]
    command = shlex.split(refused["command"])
    assert command[:2] == ["jitnorm", "warm"]
    assert warm(*command[2:]).exit_code == 0
    assert serve(40, 48, cwd=tmp_path) == {"served": True}

    # So does the record, for many.
    for size in (56, 72):
        assert not serve(size, cwd=tmp_path)["served"]
    assert warm("--from", str(cache / "v1" / "misses.jsonl")).exit_code == 0
    assert serve(40, 48, 56, 72, cwd=tmp_path) == {"served": True}


def test_the_order_to_warm_counts_although_compiling_is_forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JITNORM_JIT", "deny")
    assert warm(*OP).exit_code == 0
    assert os.environ["JITNORM_JIT"] == "deny"
