"""Fixtures for the tests of wheels: the files of a release, and machines to install it on."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from once_a_run import once_a_run
from wheels import TARGETS, build

# Packages that only building needs; without them a machine has neither compilers nor jitnorm.
_LEFT_OUT = ("cuda", "cmake", "jitnorm", "nvidia", "torch", "zig", "_")


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheels of a release with few kernels."""
    return once_a_run(tmp_path_factory, "dist", lambda folder: build(folder, "--arch", ",".join(TARGETS), "-j", "2"))


@pytest.fixture(scope="session")
def bare_python(tmp_path_factory: pytest.TempPathFactory, dist: Path) -> Path:
    """An environment for installing the wheels, without a compiler or another jitnorm."""
    folder = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "env"], check=True, timeout=60)
    python = folder / "env" / "bin" / "python"
    wheels = [path for path in dist.glob("*.whl") if path.name.endswith("x86_64.whl")]
    command = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--quiet",
        "--no-index",
        "--no-deps",
        *wheels,
    ]
    subprocess.run(command, check=True, timeout=120)
    packages = folder / "packages"
    packages.mkdir()
    for place in sys.path:
        if place.endswith(("site-packages", "dist-packages")) and Path(place).is_dir():
            for item in sorted(Path(place).iterdir()):
                if not item.name.startswith(_LEFT_OUT) and not (packages / item.name).exists():
                    (packages / item.name).symlink_to(item)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder / "env"), "platbase": str(folder / "env")}))
    (site / "packages.pth").write_text(f"{packages}\n")
    return python


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of packages on sys.path."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    monkeypatch.setattr(sys, "path", [*sys.path, str(folder)])
    return folder
