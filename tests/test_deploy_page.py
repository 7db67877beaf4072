"""Every recipe of docs/deploy.md runs, with folders in place of /opt and of the object store."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from wheel_fixtures import dist

__all__ = ["dist"]

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
SECTIONS = {part.partition("\n")[0]: part for part in PAGE.split("\n## ")[1:]}
RECIPES = [name for name, text in SECTIONS.items() if re.search(r"^```(bash|dockerfile)$", text, re.MULTILINE)]


def commands(text: str) -> str:
    """The blocks of a section as one script; of a Dockerfile what is run and set."""
    found = []
    for kind, block in re.findall(r"^```(bash|dockerfile)\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        if kind == "dockerfile":
            lines = block.splitlines()
            assert all(re.match(r"FROM|RUN|COPY|ENV|$", line) for line in lines)
            block = "".join(
                f"{line[4:]}\n" if line.startswith("RUN ") else f"export {line[4:]}\n"
                for line in lines
                if line.startswith(("RUN ", "ENV "))
            )
        found.append(block)
    return "".join(found)


@pytest.fixture
def programs(tmp_path: Path, dist: Path) -> Path:
    """`python`, `jitnorm` and `pip` of this environment; pip only shows that what is named could be installed."""
    folder = tmp_path / "bin"
    folder.mkdir()
    install = f"-m pip --quiet --disable-pip-version-check install --dry-run --no-index --no-deps --find-links {dist}"
    for name, line in {
        "python": f'exec {sys.executable} "$@"',
        "jitnorm": f'exec {sys.executable} -m jitnorm.cli "$@"',
        "pip": f'[ "$1" = install ] || exit 1; shift; exec {sys.executable} {install} "$@"',
    }.items():
        (folder / name).write_text(f"#!/bin/sh\n{line}\n")
        (folder / name).chmod(0o755)
    return folder


def test_the_page_has_a_recipe_for_each_way() -> None:
    assert len(RECIPES) == 4
    assert RECIPES[0].startswith("Wheels")
    assert RECIPES[1] == "Container images"


@pytest.mark.parametrize("name", RECIPES)
def test_the_recipe_runs(name: str, tmp_path: Path, programs: Path, dist: Path) -> None:
    script = commands(SECTIONS[name])
    if name.startswith("Wheels"):
        # Where they are installed for good is tested with a bare environment; here they are read where they are.
        site = tmp_path / "site"
        for wheel in dist.glob("jitnorm_kernels_*.whl"):
            subprocess.run([sys.executable, "-m", "zipfile", "-e", wheel, site], check=True, timeout=60)
        paths = {"PYTHONPATH": str(site)}
    else:
        paths = {}
    (tmp_path / "opt").mkdir()
    script = script.replace("/opt/", f"{tmp_path}/opt/").replace("s3://bucket/", f"file://{tmp_path}/bucket/")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("JITNORM_", "PYTEST_"))}
    environment = {
        **kept,
        **paths,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "JITNORM_CACHE_DIR": str(tmp_path / "cache"),
        "JITNORM_READONLY_CACHE": "",
    }
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        env=environment,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
