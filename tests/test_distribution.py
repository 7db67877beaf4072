"""What a release brings: its metadata, its README as a package index shows it, and sources that its tests run from."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from jitnorm.warm.spec import read_toml

ROOT = Path(__file__).parents[1]
PROJECT = read_toml(ROOT / "pyproject.toml")["project"]
README = (ROOT / PROJECT["readme"]).read_text(encoding="utf-8")


def files_below(folder: Path) -> set[str]:
    found = (path for path in folder.rglob("*") if path.is_file() and path.parent.name != "__pycache__")
    return {str(path.relative_to(folder)) for path in found}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project's files alone: those that git tracks, or all of a source distribution."""
    folder = tmp_path_factory.mktemp("checkout")
    if (ROOT / ".git").exists():
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        names = [name for name in listed.split("\0") if name and (ROOT / name).exists()]
    else:
        names = sorted(files_below(ROOT))
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def unpacked(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked source distribution."""
    folder = tmp_path_factory.mktemp("sdist")
    build = [sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", folder]
    done = subprocess.run(build, cwd=checkout, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))  # type: ignore[arg-type]
    return folder / archive.name.removesuffix(".tar.gz")


def test_the_source_distribution_has_every_file_of_the_project(checkout: Path, unpacked: Path) -> None:
    written_by_the_build = {"PKG-INFO", "setup.cfg"}
    expected = {path for path in files_below(checkout) if ".egg-info/" not in path}
    found = {path for path in files_below(unpacked) if ".egg-info/" not in path}
    assert found - written_by_the_build == expected


@pytest.mark.parametrize("part", range(8))
def test_tests_that_read_the_repository_are_collected_from_the_source_distribution(part: int, unpacked: Path) -> None:
    found = sorted(path for path in (unpacked / "tests").rglob("test_*.py") if "__file__" in path.read_text("utf-8"))
    readers = found[part::8]
    assert readers
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    collect = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "-m",
        "",
        "-q",
        "--assert=plain",
        "-p",
        "no:cacheprovider",
        *readers,
    ]
    done = subprocess.run(collect, cwd=unpacked, env=kept, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    for path in readers:
        assert f"{path.relative_to(unpacked)}::" in done.stdout


def test_a_package_index_has_what_it_shows_of_a_project() -> None:
    assert PROJECT["authors"]
    assert len(PROJECT["keywords"]) >= 5
    urls = PROJECT["urls"]
    assert set(urls) >= {"Homepage", "Documentation", "Repository", "Issues", "Changelog"}
    assert all(url.startswith(urls["Repository"]) for url in urls.values())


def test_links_of_the_readme_lead_somewhere_wherever_it_is_shown() -> None:
    links = re.findall(r"\]\(([^)#]+)", README)
    files = f"{PROJECT['urls']['Repository']}/blob/main/"
    assert [link for link in links if not link.startswith("https://")] == []
    ours = [link.removeprefix(files) for link in links if link.startswith(files)]
    assert len(ours) > 15
    assert [path for path in ours if not (ROOT / path).exists()] == []
