"""The workflows only call scripts that exist, and build what the code knows."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from jitnorm.kernels.target import TARGET_NAMES

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def load(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found


def steps(workflow: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job.get("steps", [])]


def test_there_are_the_four_that_a_release_needs() -> None:
    assert {path.stem for path in WORKFLOWS} == {"lint", "release", "tests", "wheels"}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_every_command_is_a_script_that_exists(path: Path) -> None:
    for step in steps(load(path)):
        if "run" in step:
            (line,) = step["run"].strip().splitlines()
            script = ROOT / shlex.split(re.sub(r"\$\{\{.*?\}\}", "value", line))[0]
            assert script.parent == ROOT / "scripts"
            assert os.access(script, os.X_OK), f"{path.name} runs {script}, which is no program"


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_permissions_are_named_and_actions_have_versions(path: Path) -> None:
    workflow = load(path)
    assert workflow["permissions"] == {"contents": "read"}
    for step in steps(workflow):
        assert "run" in step or "@" in step["uses"]
    for job in workflow["jobs"].values():
        called = job.get("uses")
        assert called is None or (ROOT / called).is_file()
        assert called or job["timeout-minutes"] <= 60


def test_there_is_a_wheel_for_every_target_and_its_provenance() -> None:
    jobs = load(ROOT / ".github" / "workflows" / "wheels.yml")["jobs"]
    assert jobs["kernels"]["strategy"]["matrix"]["arch"] == list(TARGET_NAMES)
    for job in jobs.values():
        used = [step.get("uses", "").partition("@")[0] for step in job["steps"]]
        assert "actions/attest-build-provenance" in used
        assert "actions/upload-artifact" in used
        assert job["permissions"]["attestations"] == "write"
