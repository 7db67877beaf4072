from __future__ import annotations

from pathlib import Path

import pytest
from jitnorm.kernels.target import Target

from jitnorm.toolchains import ToolchainMissingError, host_compiler, nvcc, nvrtc_library, select, toolchain_class
from jitnorm.toolchains.inventory import installed

CPU, HOPPER = Target("cpu"), Target("sm_90a")


@pytest.fixture
def no_nvrtc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc_library, "on_sys_path", lambda relative: None)


@pytest.fixture
def nvcc_somewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(nvcc, "_find_nvcc", lambda host_compiler: tmp_path / "nvcc")
    monkeypatch.setattr(nvcc, "_part", lambda compiler, *candidates: compiler)


def test_the_cpu_gets_cxx() -> None:
    assert select(CPU).name == "cxx"
    assert select(CPU, "cxx").name == "cxx"


@pytest.mark.usefixtures("nvcc_somewhere")
def test_cuda_targets_get_nvrtc_if_both_are_there() -> None:
    assert select(HOPPER).name == "nvrtc"


@pytest.mark.usefixtures("no_nvrtc", "nvcc_somewhere")
def test_cuda_targets_get_nvcc_where_nvrtc_is_missing() -> None:
    assert select(HOPPER).name == "nvcc"


@pytest.mark.usefixtures("nvcc_somewhere")
@pytest.mark.parametrize("name", ["nvrtc", "nvcc"])
def test_a_backend_can_be_named(name: str) -> None:
    assert select(HOPPER, name).name == name


@pytest.mark.usefixtures("nvcc_somewhere")
def test_the_variable_replaces_auto_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JITNORM_BACKEND", "nvcc")
    assert select(HOPPER).name == "nvcc"
    assert select(HOPPER, "nvrtc").name == "nvrtc"
    assert select(CPU).name == "cxx"


@pytest.mark.parametrize("value", ["", "auto"])
def test_an_empty_variable_means_auto(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("JITNORM_BACKEND", value)
    assert select(HOPPER).name == "nvrtc"


@pytest.mark.parametrize(
    ("target", "backend", "allowed"),
    [
        (HOPPER, "clang", "auto, nvrtc, nvcc, cute"),
        (HOPPER, "cxx", "auto, nvrtc, nvcc, cute"),
        (CPU, "nvcc", "auto, cxx, zig"),
    ],
)
def test_a_backend_that_does_not_fit_lists_those_that_do(target: Target, backend: str, allowed: str) -> None:
    with pytest.raises(ValueError, match=f"backend: '{backend}' does not build for {target}; use one of {allowed}"):
        select(target, backend)


def test_a_wrong_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JITNORM_BACKEND", "gcc")
    with pytest.raises(ValueError, match="JITNORM_BACKEND: 'gcc'"):
        select(HOPPER)


def test_an_unknown_name_has_no_class() -> None:
    with pytest.raises(ValueError, match="use one of nvrtc, nvcc, cute, cxx, zig"):
        toolchain_class("tcc")


@pytest.mark.usefixtures("no_wheels", "only_path")
def test_a_machine_without_compilers_is_told_all_remedies() -> None:
    with pytest.raises(ToolchainMissingError, match="a compiler for sm_90a was not found") as caught:
        select(HOPPER)
    assert 'pip install "jitnorm[cuda]"' in str(caught.value)
    assert "apt-get install g++" in str(caught.value)
    for refused in (lambda: select(CPU), host_compiler):
        with pytest.raises(ToolchainMissingError) as caught:
            refused()
        for remedy in ("apt-get install g++", "pip install ziglang", "pip install jitnorm-kernels-cpu"):
            assert remedy in str(caught.value)


@pytest.mark.usefixtures("only_path")
def test_zig_replaces_a_compiler_that_is_not_there_but_none_that_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert select(CPU).name == host_compiler().name == "zig"
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(ToolchainMissingError, match="CXX='no-such-compiler'"):
        host_compiler()
    assert select(CPU, "zig").name == "zig"


def test_the_inventory_tells_identity_and_place() -> None:
    inventory = {entry.name: entry for entry in installed()}
    assert list(inventory) == ["nvrtc", "nvcc", "cute", "cxx", "zig"]
    for name in ("nvrtc", "cxx", "zig"):
        entry = inventory[name]
        assert entry.available
        assert entry.identity == toolchain_class(name)().identity()
        assert entry.location is not None
        assert entry.location.exists()
        assert entry.remedy == ""


@pytest.mark.usefixtures("no_wheels", "only_path")
def test_the_inventory_tells_the_remedy_for_what_is_missing() -> None:
    for entry in installed():
        assert not entry.available
        assert "remedy: " in entry.remedy
        assert (entry.identity, entry.location) == ("", None)


@pytest.mark.usefixtures("no_wheels", "only_path")
@pytest.mark.parametrize("variable", ["PATH", "CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX", "LD_LIBRARY_PATH", "CXX"])
@pytest.mark.parametrize("target", [CPU, HOPPER], ids=str)
def test_a_place_that_cannot_be_entered_is_like_one_that_is_missing(
    target: Target, variable: str, locked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvrtc_library, "_SYSTEM_FOLDERS", ())
    monkeypatch.setenv(variable, str(locked / "g++" if variable == "CXX" else locked))
    with pytest.raises(ToolchainMissingError):
        select(target)
