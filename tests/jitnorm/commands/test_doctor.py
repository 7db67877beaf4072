"""The doctor reports what is there, suggests remedies for what is not, and never raises."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from jitnorm.cache import CacheTrustError, Store

from jitnorm.commands import doctor
from jitnorm.toolchains.inventory import Installation
from jitnorm.toolchains.nvrtc_library import NvrtcLibrary, Version

CXX = Installation("cxx", True, "g++ 12.2.0", Path("/usr/bin/g++"), targets=("cpu",))
NO_NVCC = Installation("nvcc", False, remedy="nvcc was not found; remedy: install it")


def raising(message: str) -> Any:
    def fail(*_: object) -> None:
        raise RuntimeError(message)

    return fail


def launcher_of(*capabilities: tuple[int, int]) -> Any:
    """A launcher on a machine with these GPUs."""
    return SimpleNamespace(
        driver_version=lambda: 13010,
        device_count=lambda: len(capabilities),
        device_name=lambda i: f"GPU {i}",
        device_capability=lambda i: capabilities[i],
    )


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with a C++ compiler, a driver and no GPU."""
    monkeypatch.setattr(doctor, "user_store", lambda: Store(tmp_path))
    monkeypatch.setattr(doctor, "launcher", launcher_of)
    monkeypatch.setattr(doctor, "installed", lambda memo_dir: [CXX, NO_NVCC])


def test_with_a_host_compiler_alone_the_cpu_target_can_be_built() -> None:
    report = doctor.examine()
    assert report.targets == ("cpu",)
    assert report.can_build


def test_with_a_cuda_compiler_every_gpu_target_can_be_built(monkeypatch: pytest.MonkeyPatch) -> None:
    nvrtc = Installation("nvrtc", True, "NVRTC 13.4", Path("libnvrtc.so.13"), targets=doctor.TARGET_NAMES[1:])
    monkeypatch.setattr(doctor, "installed", lambda memo_dir: [CXX, nvrtc])
    assert doctor.examine().targets == doctor.TARGET_NAMES


def test_gpus_come_with_their_target_or_with_why_they_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "launcher", lambda: launcher_of((9, 0), (7, 5)))
    report = doctor.examine()
    assert report.driver == "CUDA 13.1"
    assert [(gpu.capability, gpu.target) for gpu in report.gpus] == [("9.0", "sm_90a"), ("7.5", "")]
    assert "compute capability 7.5 is not supported" in report.gpus[1].problem


@pytest.mark.parametrize(
    ("installed", "driver", "fitting", "remedy"),
    [
        ([(13, 4), (12, 9)], (13, 0), "NVRTC 13.4 (libnvrtc.so)", ""),
        ([(13, 4), (12, 9)], (12, 2), "NVRTC 12.9 (libnvrtc.so)", ""),
        ([(12, 9)], (13, 0), "NVRTC 12.9 (libnvrtc.so)", ""),
        (
            [(13, 4)],
            (12, 2),
            "",
            'NVRTC 13.4 (libnvrtc.so) builds what this driver cannot load; pip install "jitnorm[cuda12]"',
        ),
        ([], (12, 2), "", 'pip install "jitnorm[cuda12]"'),
        ([], (13, 1), "", 'pip install "jitnorm[cuda]"'),
        ([(12, 9)], (11, 4), "", "install a driver of branch 525 or later"),
        ([(12, 9)], None, "", ""),
    ],
)
def test_the_nvrtc_that_fits_the_driver_is_named_or_what_to_install(
    installed: list[Version], driver: Version | None, fitting: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [NvrtcLibrary(Path("libnvrtc.so"), version) for version in installed]
    monkeypatch.setattr(doctor, "installed_libraries", lambda: found or raising("none")())
    named, problem = doctor.nvrtc_for(driver)
    assert named == fitting
    assert problem.endswith(remedy)
    assert bool(problem) is bool(remedy)


def test_without_a_driver_the_report_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = launcher_of()
    broken.driver_version = broken.device_count = raising("CUDA driver: libcuda.so.1 was not found")
    monkeypatch.setattr(doctor, "launcher", lambda: broken)
    report = doctor.examine()
    assert (report.driver, report.driver_problem) == ("", "CUDA driver: libcuda.so.1 was not found")
    assert report.can_build, "the CPU needs no driver"


def test_without_the_launcher_nothing_can_be_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "launcher", raising("no compiler"))
    report = doctor.examine()
    assert report.launcher_problem == "no compiler"
    assert not report.can_build


def test_an_untrusted_cache_is_reported_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise CacheTrustError("others can write to it. Run chmod go-w")

    monkeypatch.setattr(doctor, "user_store", refuse)
    cache = doctor.examine().cache
    assert (cache.is_writable, cache.problem) == (False, "others can write to it. Run chmod go-w")


def test_every_missing_framework_comes_with_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        if name == "apache-tvm-ffi":
            return "1.0"
        raise doctor.PackageNotFoundError(name)

    monkeypatch.setattr(doctor, "version", missing)
    for framework in doctor.examine().frameworks:
        assert framework.version == ""
        assert framework.remedy.startswith("pip install ")


@pytest.mark.parametrize("problem", ["", "no compiler"])
def test_the_result_is_whether_anything_can_be_built(
    problem: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if problem:
        monkeypatch.setattr(doctor, "launcher", raising(problem))
    assert doctor.show_doctor(as_json=False) is (problem == "")
    shown = capsys.readouterr().out
    assert "g++ 12.2.0; /usr/bin/g++" in shown
    assert "remedy: install it" in shown
    assert problem in shown


def test_json_has_every_field_of_the_report(capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor.show_doctor(as_json=True)
    report = json.loads(capsys.readouterr().out)
    assert report.keys() == {*doctor.Report.__dataclass_fields__, "can_build"}
    assert report["toolchains"][0]["location"] == "/usr/bin/g++"
