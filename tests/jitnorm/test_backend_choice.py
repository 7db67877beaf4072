"""Which backend builds a kernel if nobody names one: CUDA C++, whose kernels were measured to be faster, if it can."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from jitnorm.cache import Store
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.target import Target

from jitnorm.building import toolchain_for
from jitnorm.toolchains import ToolchainMissingError, nvcc, nvrtc

needs_cutlass = pytest.mark.skipif(
    importlib.util.find_spec("cutlass") is None, reason="CuTe-DSL is not installed: pip install jitnorm[cute]"
)
IN_BOTH = [
    "rmsnorm:hidden_size=4096",
    "layernorm:hidden_size=32768",
    "rmsnorm:hidden_size=8192,quant=e4m3/row/f32",
    "rmsnorm:hidden_size=8192,many_rows=true,quant=e2m1/16/e4m3",
    "quantize:hidden_size=4096,weight=none,quant=e2m1/16/e4m3",
]
IN_CUDA_ALONE = "quantize:hidden_size=4096,weight=none,quant=e2m1/16/e4m3,gate_columns=4096"


def chosen(text: str, folder: Path, backend: str = "auto") -> str:
    return toolchain_for(KernelConfig.parse(text), Target("sm_90a"), Store(folder), backend).name


@pytest.fixture
def _without_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither NVRTC nor nvcc."""

    def missing(*_: object) -> None:
        raise ToolchainMissingError("a compiler", ["here"], "install it")

    for toolchain in (nvrtc.Nvrtc, nvcc.Nvcc):
        monkeypatch.setattr(toolchain, "__init__", missing)


@pytest.mark.parametrize("text", [*IN_BOTH, IN_CUDA_ALONE])
def test_cuda_is_chosen_where_it_is_installed(text: str, tmp_path: Path) -> None:
    assert chosen(text, tmp_path) == "nvrtc"


@needs_cutlass
@pytest.mark.usefixtures("_without_cuda")
@pytest.mark.parametrize("text", IN_BOTH)
def test_where_it_is_not_cute_is(text: str, tmp_path: Path) -> None:
    assert chosen(text, tmp_path) == "cute"


@needs_cutlass
@pytest.mark.usefixtures("_without_cuda")
def test_what_cute_lacks_then_names_the_compilers_that_have_it(tmp_path: Path) -> None:
    with pytest.raises(ToolchainMissingError, match="install it"):
        chosen(IN_CUDA_ALONE, tmp_path)


@needs_cutlass
def test_who_names_a_backend_gets_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert chosen(IN_BOTH[0], tmp_path, backend="cute") == "cute"
    monkeypatch.setenv("JITNORM_BACKEND", "cute")
    assert chosen(IN_BOTH[0], tmp_path) == "cute"
    assert chosen(IN_BOTH[0], tmp_path, backend="nvrtc") == "nvrtc"
