"""Which backend builds a kernel if nobody names one: that which was measured to be faster, if it is installed."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from jitnorm.cache import Store
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.target import Target

from jitnorm.manager import load_or_build_kernel, toolchain_for
from jitnorm.toolchains import ToolchainMissingError, cute

needs_cutlass = pytest.mark.skipif(
    importlib.util.find_spec("cutlass") is None, reason="CuTe-DSL is not installed: pip install jitnorm[cute]"
)
FASTER_IN_CUTE = [
    "rmsnorm:hidden_size=8192,many_rows=true,quant=e4m3/row/f32",
    "rmsnorm:hidden_size=4096,many_rows=true,quant=e5m2/row/f32",
]
FASTER_IN_CUDA = [
    "rmsnorm:hidden_size=4096",
    "rmsnorm:hidden_size=4096,quant=e4m3/row/f32",
    "rmsnorm:hidden_size=4096,quant=e2m1/16/e4m3",
    "rmsnorm:hidden_size=8192,many_rows=true,quant=e2m1/16/e4m3",
    "rmsnorm:hidden_size=8192,many_rows=true,residual=true,quant=e4m3/row/f32",
    "quantize:hidden_size=8192,weight=none,many_rows=true,quant=e4m3/row/f32",
    "quantize:hidden_size=4096,weight=none,quant=e2m1/16/e4m3,gate_columns=4096",
]


def chosen(text: str, folder: Path, target: str = "sm_90a", backend: str = "auto") -> str:
    return toolchain_for(KernelConfig.parse(text), Target(target), Store(folder), backend).name


@needs_cutlass
@pytest.mark.parametrize("text", FASTER_IN_CUTE)
def test_where_it_is_faster_cute_is_chosen(text: str, tmp_path: Path) -> None:
    assert chosen(text, tmp_path) == "cute"


@pytest.mark.parametrize("text", FASTER_IN_CUDA)
def test_elsewhere_it_is_not(text: str, tmp_path: Path) -> None:
    assert chosen(text, tmp_path) == "nvrtc"


@pytest.mark.parametrize("target", ["sm_80", "sm_100a", "sm_120a"])
def test_where_nothing_was_measured_it_is_not(target: str, tmp_path: Path) -> None:
    assert chosen(FASTER_IN_CUTE[0], tmp_path, target) == "nvrtc"


def test_who_names_a_backend_gets_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert chosen(FASTER_IN_CUTE[0], tmp_path, backend="nvrtc") == "nvrtc"
    monkeypatch.setenv("JITNORM_BACKEND", "nvrtc")
    assert chosen(FASTER_IN_CUTE[0], tmp_path) == "nvrtc"


def test_what_cannot_be_imported_is_not_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert chosen(FASTER_IN_CUTE[0], tmp_path) == "nvrtc"


@needs_cutlass
def test_what_is_there_in_part_is_replaced_unless_it_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> bytes:
        raise ToolchainMissingError("CuTe-DSL", ["a folder, which cannot be imported"], "pip install it")

    monkeypatch.setattr(cute.Cute, "compile", broken)
    config, target = KernelConfig.parse(FASTER_IN_CUTE[0]), Target("sm_90a")
    artifact = load_or_build_kernel(config, target, Store(tmp_path))
    assert artifact.manifest["backend"] == "nvrtc"
    assert "cannot be imported" in caplog.text
    with pytest.raises(ToolchainMissingError, match="cannot be imported"):
        load_or_build_kernel(config, target, Store(tmp_path / "other"), "cute")


def test_what_is_not_installed_is_not_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise ToolchainMissingError("CuTe-DSL", ["sys.path"], "pip install it")

    monkeypatch.setattr(cute, "_find", missing)
    assert chosen(FASTER_IN_CUTE[0], tmp_path) == "nvrtc"
