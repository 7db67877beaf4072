"""The workflows only call scripts that exist, build what the code knows, and keep tokens from what they install."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from jitnorm.kernels.target import TARGET_NAMES
from packaging.requirements import Requirement

if sys.version_info < (3, 11):
    import tomli as tomllib
else:
    import tomllib

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


every_workflow = pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)


@every_workflow
def test_workflows_may_only_read_and_every_job_ends(path: Path) -> None:
    workflow = load(path)
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        called = job.get("uses")
        assert called is None or (ROOT / called).is_file()
        assert called or job["timeout-minutes"] <= 60


@every_workflow
def test_every_action_is_a_commit_whose_version_is_told(path: Path) -> None:
    for line in path.read_text(encoding="utf-8").splitlines():
        if "uses:" in line and "uses: ./" not in line:
            assert re.fullmatch(r"\s*- uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line), line


def test_an_action_has_one_version_everywhere() -> None:
    used = {step["uses"] for path in WORKFLOWS for step in steps(load(path)) if "uses" in step}
    assert len(used) == len({action.partition("@")[0] for action in used})


@every_workflow
def test_no_token_is_left_in_a_checkout(path: Path) -> None:
    for step in steps(load(path)):
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False


RELEASE = load(ROOT / ".github" / "workflows" / "release.yml")["jobs"]
# What a job may do beyond reading the repository, and the actions, in order, of those that may write.
PERMISSIONS = {
    "attest": {"attestations": "write", "id-token": "write"},
    "verify": {"attestations": "read", "contents": "read"},
    "publish": {"id-token": "write"},
}
ACTIONS = {
    "attest": ["actions/download-artifact", "actions/attest-build-provenance"],
    "publish": ["actions/download-artifact", "pypa/gh-action-pypi-publish"],
}


def test_only_the_release_asks_for_more_and_for_no_more_than_it_needs() -> None:
    asked = {
        (path.stem, name): job["permissions"]
        for path in WORKFLOWS
        for name, job in load(path)["jobs"].items()
        if "permissions" in job
    }
    assert asked == {("release", name): permissions for name, permissions in PERMISSIONS.items()}


def test_jobs_that_can_write_run_nothing_but_their_actions() -> None:
    """No script and no installation beside a token that publishes or attests."""
    for name, actions in ACTIONS.items():
        assert all(set(step) <= {"uses", "with"} for step in RELEASE[name]["steps"])
        assert [step["uses"].partition("@")[0] for step in RELEASE[name]["steps"]] == actions


@every_workflow
def test_no_secret_is_used_and_the_job_s_token_only_to_read_attestations(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert "secrets." not in text
    assert text.count("github.token") == (path.stem == "release")
    if path.stem == "release":
        (step,) = (step for step in RELEASE["verify"]["steps"] if "env" in step)
        assert step["env"] == {"GH_TOKEN": "${{ github.token }}"}


def test_what_is_published_was_tested_built_checked_attested_and_verified() -> None:
    order = ["tests", "wheels", "attest", "verify", "publish"]
    assert list(RELEASE) == order
    assert [RELEASE[name].get("needs") for name in order] == [None, *order[:-1]]
    assert RELEASE["wheels"]["uses"] == "./.github/workflows/wheels.yml"
    assert RELEASE["publish"]["environment"] == "pypi"
    assert [step.get("run") for step in RELEASE["verify"]["steps"]][-1] == "scripts/verify_attestations dist"


def test_there_is_a_wheel_for_every_target_and_all_are_checked_together() -> None:
    jobs = load(ROOT / ".github" / "workflows" / "wheels.yml")["jobs"]
    assert jobs["kernels"]["strategy"]["matrix"]["arch"] == list(TARGET_NAMES)
    for name in ("jitnorm", "kernels"):
        assert jobs[name]["steps"][-1]["uses"].startswith("actions/upload-artifact@")
    assert jobs["check"]["needs"] == ["jitnorm", "kernels"]
    assert jobs["check"]["steps"][-1]["run"] == "scripts/check_wheels dist"


def test_every_python_that_is_promised_is_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    promised = [found[1] for each in project["classifiers"] if (found := re.search(r":: (3\.\d+)$", each))]
    jobs = load(ROOT / ".github" / "workflows" / "tests.yml")["jobs"]
    assert jobs["tests"]["strategy"]["matrix"]["python"] == promised


def test_sweeps_run_in_full_every_night_and_for_a_release() -> None:
    workflow = load(ROOT / ".github" / "workflows" / "tests.yml")
    assert workflow[True]["schedule"], "YAML 1.1 reads `on` as true"
    command = workflow["jobs"]["tests"]["steps"][-1]["run"]
    condition = "github.event_name == 'schedule' || github.ref_type == 'tag'"
    assert command == f"scripts/test ${{{{ ({condition}) && '--all' || '' }}}}"
    assert RELEASE["tests"]["uses"] == "./.github/workflows/tests.yml"


# What is installed to build and to check what is published.


@pytest.mark.parametrize("script", ["build_wheels", "check_wheels", "verify_attestations"])
def test_what_a_release_installs_is_in_its_lock_or_local(script: str) -> None:
    text = (ROOT / "scripts" / script).read_text(encoding="utf-8").replace("\\\n", " ")
    for line in re.findall(r"^[^#\n]*pip(?:_| )install.*", text, re.MULTILINE):
        is_locked = "--require-hashes" in line and "--only-binary :all:" in line and "-r requirements/" in line
        assert is_locked or {"--no-index", "--no-deps"} <= set(line.split()), line


def locked(name: str) -> dict[str, list[tuple[Requirement, int]]]:
    """The requirements of a lock by their names, each with its number of digests."""
    found: dict[str, list[tuple[Requirement, int]]] = {}
    text = (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8")
    for entry in re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ").splitlines():
        head, *digests = entry.split(" --hash=")
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", digest.strip()) for digest in digests)
        requirement = Requirement(head)
        found.setdefault(canonical(requirement.name), []).append((requirement, len(digests)))
    return found


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def declared(*extras: str) -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    lists = [project["project"]["dependencies"]]
    lists += [project["project"]["optional-dependencies"][extra] for extra in extras]
    return [Requirement(text) for texts in lists for text in texts]


@pytest.mark.parametrize(("name", "extras"), [("runtime", ()), ("wheels", ("cuda", "wheels"))])
def test_a_lock_has_every_requirement_at_one_version_with_its_digests(name: str, extras: tuple[str, ...]) -> None:
    found = locked(name)
    for requirement in declared(*extras):
        assert canonical(requirement.name) in found, f"run scripts/lock: {requirement} is not in {name}.txt"
        for entry, _ in found[canonical(requirement.name)]:
            (pin,) = entry.specifier
            assert pin.operator == "=="
            assert requirement.specifier.contains(pin.version), f"run scripts/lock: {entry} is not {requirement}"
    assert all(digests for entries in found.values() for _, digests in entries)


@pytest.mark.parametrize("name", ["runtime", "wheels"])
def test_a_lock_names_no_place(name: str) -> None:
    text = (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8")
    assert not re.search(r"://|--(extra-)?index-url|--find-links| @ ", text)
    assert "scripts/lock" in text.splitlines()[1]


# A python3 that makes environments whose Python writes down what it is asked for.
STAND_IN = """#!/bin/sh
case $1$2 in
  -c*) exit 0 ;;
  -mvenv) mkdir -p "$3/bin"; cp "$0" "$3/bin/python" ;;
  *) echo "$@" >>"$CALLS" ;;
esac
"""


def check_wheels(folder: Path, *wheels: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """Runs scripts/check_wheels over empty files of these names; what its environment's Python was asked for."""
    (folder / "dist").mkdir()
    for wheel in wheels:
        (folder / "dist" / wheel).touch()
    (folder / "python3").write_text(STAND_IN)
    (folder / "python3").chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "CALLS": str(folder / "calls")}
    command = [str(ROOT / "scripts" / "check_wheels"), str(folder / "dist")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    calls = folder / "calls"
    return done, calls.read_text().splitlines() if calls.exists() else []


MACHINE = os.uname().machine
OWN = f"jitnorm-0.1.0-py3-none-manylinux_2_28_{MACHINE}.whl"
KERNELS = f"jitnorm_kernels_cpu-0.1.0-py3-none-manylinux_2_28_{MACHINE}.whl"
OTHERS = ("jitnorm-0.1.0-py3-none-any.whl", "jitnorm-0.1.0.tar.gz", "jitnorm-0.1.0-py3-none-manylinux_2_28_other.whl")


def test_exactly_the_files_that_were_built_are_checked(tmp_path: Path) -> None:
    done, calls = check_wheels(tmp_path, OWN, KERNELS, *OTHERS)
    assert done.returncode == 0, done.stderr
    locked_call, own_call, consistency, asked = calls
    assert "--require-hashes" in locked_call
    assert own_call.split()[-2:] == [str(tmp_path / "dist" / OWN), str(tmp_path / "dist" / KERNELS)]
    assert {"--no-index", "--no-deps"} <= set(own_call.split())
    assert consistency == "-m pip check"
    assert asked == "scripts/ask_wheel.py cpu"


@pytest.mark.parametrize(
    "wheels",
    [(), (OWN, OWN.replace("0.1.0", "9.9.9"), KERNELS), (OWN,)],
    ids=["nothing", "two versions", "no kernels"],
)
def test_what_cannot_be_told_apart_or_is_missing_is_refused(wheels: tuple[str, ...], tmp_path: Path) -> None:
    done, calls = check_wheels(tmp_path, *wheels)
    assert done.returncode != 0
    assert "error: " in done.stderr
    assert not calls


GH = """#!/bin/sh
echo "$@" >>"$CALLS"
case $3 in *bad*) exit 1 ;; esac
"""


@pytest.mark.parametrize(
    ("files", "succeeds"), [(("a.whl", "b.tar.gz"), True), (("bad.whl", "good.whl"), False), ((), False)]
)
def test_every_file_needs_an_attestation_of_this_workflow_at_this_commit(
    files: tuple[str, ...], succeeds: bool, tmp_path: Path
) -> None:
    (tmp_path / "dist").mkdir()
    for name in files:
        (tmp_path / "dist" / name).touch()
    (tmp_path / "gh").write_text(GH)
    (tmp_path / "gh").chmod(0o755)
    workflow = "owner/name/.github/workflows/release.yml"
    known = {"GITHUB_REPOSITORY": "owner/name", "GITHUB_SHA": "c0ffee", "GITHUB_REF": "refs/tags/v1"}
    known |= {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "CALLS": str(tmp_path / "calls")}
    command = [str(ROOT / "scripts" / "verify_attestations"), str(tmp_path / "dist")]
    done = subprocess.run(command, env={**os.environ, **known}, capture_output=True, text=True, timeout=60)
    assert (done.returncode == 0) == succeeds, done.stderr
    for name, call in zip(files, (tmp_path / "calls").read_text().splitlines() if files else (), strict=False):
        assert call == (
            f"attestation verify {tmp_path}/dist/{name} --repo owner/name --deny-self-hosted-runners "
            f"--signer-workflow {workflow} --source-digest c0ffee --source-ref refs/tags/v1"
        )
