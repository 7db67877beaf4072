"""The device of a command: a usable GPU, or else the CPU, with the reason."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from jitnorm.kernels.target import Target

from jitnorm.commands import place


def launcher_with(device_count: Any) -> Any:
    return lambda: SimpleNamespace(device_count=device_count, device_name=lambda _: "NVIDIA H200")


def test_without_a_driver_it_is_the_cpu_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_driver() -> int:
        raise RuntimeError("CUDA driver: libcuda.so.1 was not found")

    monkeypatch.setattr(place, "launcher", launcher_with(no_driver))
    found = place.find_place()
    assert (found.target, found.why_cpu) == (Target("cpu"), "CUDA driver: libcuda.so.1 was not found")


def test_without_a_gpu_it_is_the_cpu_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "launcher", launcher_with(lambda: 0))
    assert place.find_place().why_cpu == "the CUDA driver sees no GPU"


def test_a_gpu_too_old_means_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "launcher", launcher_with(lambda: 1))
    monkeypatch.setattr(place, "cuda_target", lambda _: Target.of_capability(7, 5))
    assert "compute capability 7.5 is not supported" in place.find_place().why_cpu


def test_a_usable_gpu_is_preferred_unless_the_cpu_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "launcher", launcher_with(lambda: 1))
    monkeypatch.setattr(place, "cuda_target", lambda _: Target("sm_90a"))
    monkeypatch.setattr(place, "CudaMemory", lambda device: ("memory of", device))
    monkeypatch.setattr("jitnorm.toolchains.select", lambda target: None)
    found = place.find_place()
    assert (str(found.target), found.name, found.why_cpu) == ("sm_90a", "NVIDIA H200 (sm_90a)", "")
    assert str(place.find_place(only_cpu=True).target) == "cpu"


def test_a_missing_launcher_does_not_pass_for_a_missing_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_launcher() -> Any:
        raise RuntimeError("a C++ compiler was not found")

    monkeypatch.setattr(place, "launcher", no_launcher)
    with pytest.raises(RuntimeError, match=r"C\+\+ compiler"):
        place.find_place()


def test_a_named_target_is_taken_and_without_one_the_first_gpus_or_the_cpu_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert place.target_or_default("sm_80") == (Target("sm_80"), "")
    monkeypatch.setattr(place, "launcher", launcher_with(lambda: 0))
    assert place.target_or_default(None) == (Target("cpu"), "the CUDA driver sees no GPU")
    monkeypatch.setattr(place, "launcher", launcher_with(lambda: 1))
    monkeypatch.setattr(place, "cuda_target", lambda _: Target("sm_90a"))
    assert place.target_or_default(None) == (Target("sm_90a"), "")
