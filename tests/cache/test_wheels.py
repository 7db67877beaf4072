"""Kernels from installed wheels are found by the wheels' metadata, quickly and without imports."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from jitnorm.cache import Artifact, Store, failed_tiers, open_cache
from jitnorm.cache.wheels import wheel_folders

ENTRY_POINTS = "[console_scripts]\nx = y:main\n\n[jitnorm.kernels]\n{name} = {package}\n"

Install = Callable[..., Path]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "site-packages").mkdir()
    return tmp_path / "site-packages"


@pytest.fixture
def install(site: Path) -> Install:
    """Lay a wheel of kernels into a fake site-packages; its package raises if it is ever imported."""

    def install(name: str = "sm90a", text: str = ENTRY_POINTS, version: str = "1.0") -> Path:
        package = f"jitnorm_kernels_{name}"
        info = site / f"{package}-{version}.dist-info"
        info.mkdir()
        (info / "entry_points.txt").write_text(text.format(name=name, package=package))
        (site / package / "cache").mkdir(parents=True, exist_ok=True)
        (site / package / "__init__.py").write_text("raise AssertionError('imported')")
        return site / package / "cache"

    return install


def test_installed_kernels_are_found(site: Path, install: Install) -> None:
    folders = [install("sm90a"), install("sm100a")]
    (site / "numpy-2.0.dist-info").mkdir()
    assert sorted(wheel.path for wheel in wheel_folders([str(site)])) == sorted(folders)
    assert {wheel.name for wheel in wheel_folders([str(site)])} == {"jitnorm-kernels-sm90a", "jitnorm-kernels-sm100a"}


def test_they_are_a_tier_before_all_others(
    site: Path, install: Install, tmp_path: Path, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Store(install()).publish(key, Artifact(b"wheel", {}))
    Store(tmp_path / "a").publish(key, Artifact(b"read-only", {}))
    monkeypatch.setattr(sys, "path", [*sys.path, str(site)])
    monkeypatch.setenv("JITNORM_CACHE_DIR", str(tmp_path / "user"))
    monkeypatch.setenv("JITNORM_READONLY_CACHE", str(tmp_path / "a"))
    cache = open_cache()
    assert cache.tiers[0].name == "wheel jitnorm-kernels-sm90a"
    assert cache.load(key) == Artifact(b"wheel", {})


def test_one_that_others_can_write_to_is_passed_over_and_named(
    site: Path, install: Install, tmp_path: Path, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = install()
    Store(folder).publish(key, Artifact(b"evil", {}))
    folder.chmod(0o777)
    monkeypatch.setattr(sys, "path", [*sys.path, str(site)])
    monkeypatch.setenv("JITNORM_CACHE_DIR", str(tmp_path / "user"))
    assert open_cache().load(key) is None
    assert "others can write" in failed_tiers()["wheel jitnorm-kernels-sm90a"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[jitnorm.kernels]\n",
        "[jitnorm.kernels]\nname = ../../evil\n",
        "[jitnorm.kernels]\n# {name} = {package}\n",
        "[other]\n{name} = {package}\n",
        "[jitnorm.kernels",
    ],
)
def test_a_distribution_that_offers_no_kernels_is_passed_over(site: Path, install: Install, text: str) -> None:
    install(text=text)
    assert wheel_folders([str(site)]) == []


def test_places_without_packages_are_passed_over(site: Path, install: Install, tmp_path: Path) -> None:
    folder = install()
    (tmp_path / "packages.zip").write_bytes(b"")
    places = ["", "relative", str(tmp_path / "missing"), str(tmp_path / "packages.zip"), str(site), str(site)]
    assert [wheel.path for wheel in wheel_folders(places)] == [folder]


def test_the_first_on_the_path_wins(tmp_path: Path, site: Path, install: Install) -> None:
    folder = install()
    other = tmp_path / "other"
    site.rename(other)
    site.mkdir()
    install()
    assert [wheel.path for wheel in wheel_folders([str(other), str(site)])] == [other / folder.relative_to(site)]


def test_looking_for_them_takes_a_fraction_of_a_millisecond(site: Path, install: Install) -> None:
    """The folder has 400 distributions; importlib.metadata would take tens of milliseconds."""
    for number in range(400):
        (site / f"package{number}").mkdir()
        (site / f"package{number}-1.0.dist-info").mkdir()
    install()
    times = []
    for _ in range(20):
        start = time.perf_counter()
        assert len(wheel_folders([str(site)])) == 1
        times.append(time.perf_counter() - start)
    print(f"looking through 400 distributions: {min(times) * 1e3:.3f} ms")
    assert min(times) < 0.003
