"""The scripts that measure a GPU: which files they choose by its name; what runs is only looked at."""

from __future__ import annotations

import os
import subprocess
from datetime import date
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder with a python3 that says what it is to run, and no nvidia-smi yet."""
    folder = tmp_path / "bin"
    folder.mkdir()
    _write(folder / "python3", 'echo "$@"')
    return folder


def _write(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
    path.chmod(0o755)


def run(name: str, *arguments: str, programs: Path, gpu: str) -> subprocess.CompletedProcess[str]:
    _write(programs / "nvidia-smi", f"echo '{gpu}'" if gpu else "exit 9")
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    command = [str(ROOT / "scripts" / name), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_results_are_named_by_the_gpu_and_the_date(programs: Path, tmp_path: Path) -> None:
    done = run("benchmark", str(tmp_path), "--png", programs=programs, gpu="NVIDIA RTX PRO 6000")
    run_name = tmp_path / f"rtx-pro-6000-{date.today().isoformat()}"
    wanted = f"--shapes anchors --json {run_name}.json --markdown {run_name}.md --plot {run_name} --png\n"
    assert done.stdout.endswith(wanted)


def test_a_run_is_compared_with_the_latest_committed_results_of_its_gpu(programs: Path) -> None:
    latest = sorted((ROOT / "docs" / "benchmarks").glob("h200-????-??-??.json"))[-1]
    done = run("check_benchmark", programs=programs, gpu="NVIDIA H200")
    assert f"--against docs/benchmarks/{latest.name} --tolerance 0.05\n" in done.stdout
    done = run("check_benchmark", "other.json", "--ops", "fp8", programs=programs, gpu="NVIDIA H200")
    assert done.stdout.endswith("--against other.json --tolerance 0.05 --ops fp8\n")


@pytest.mark.parametrize(
    ("script", "gpu", "message"),
    [
        ("benchmark", "", "error: nvidia-smi finds no GPU\n"),
        ("check_benchmark", "", "error: nvidia-smi finds no GPU\n"),
        ("check_benchmark", "NVIDIA X1", "error: docs/benchmarks has no results for x1; name a file, or run scripts/"),
    ],
)
def test_without_a_gpu_or_its_results_nothing_is_measured(
    script: str, gpu: str, message: str, programs: Path, tmp_path: Path
) -> None:
    arguments = [str(tmp_path)] if script == "benchmark" else []
    done = run(script, *arguments, programs=programs, gpu=gpu)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(message)
