from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from jitnorm.cache import Store
from jitnorm.kernels.target import Target

from jitnorm.store import MemoFolder
from jitnorm.toolchains import CompileError, ToolchainMissingError, identity
from jitnorm.toolchains.nvcc import Nvcc
from jitnorm.toolchains.workplace import Workplace, temporary_folder

MakeProgram = Callable[[str, str], Path]
HOPPER = Target("sm_90a")
KERNEL = """
namespace { __device__ int counter; }
extern "C" __global__ void scale(float* x) { x[threadIdx.x] *= 2.0f + counter++; }
"""


def _has_nvcc() -> bool:
    try:
        Nvcc()
    except ToolchainMissingError:
        return False
    return True


requires_nvcc = pytest.mark.skipif(not _has_nvcc(), reason="no nvcc on this machine")


@requires_nvcc
@pytest.mark.parametrize("name", ["sm_80", "sm_90a"])
def test_cuda_targets_compile_to_a_cubin_of_their_architecture(
    name: str, cubin_architecture: Callable[[bytes], int], work_dir: Path, workplaces: list[Workplace]
) -> None:
    cubin = Nvcc(workplaces=workplaces).compile(KERNEL, Target(name))
    assert cubin_architecture(cubin) == int(name.strip("sm_af"))
    assert b".text.scale\0" in cubin
    assert list(work_dir.iterdir()) == []


@requires_nvcc
def test_two_folders_give_the_same_bytes(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    here, there = ([partial(temporary_folder, folder)] for folder in (tmp_path, tmp_path / "other"))
    assert Nvcc(workplaces=here).compile(KERNEL, HOPPER) == Nvcc(workplaces=there).compile(KERNEL, HOPPER)


@requires_nvcc
def test_products_are_not_contracted_into_sums() -> None:
    contractible = 'extern "C" __global__ void f(float* x) { x[0] = x[1] * x[2] + x[3]; }'
    explicit = 'extern "C" __global__ void f(float* x) { x[0] = __fadd_rn(__fmul_rn(x[1], x[2]), x[3]); }'
    assert Nvcc().compile(contractible, HOPPER) == Nvcc().compile(explicit, HOPPER)


@requires_nvcc
def test_a_refused_source_gives_the_log_and_the_line() -> None:
    with pytest.raises(CompileError, match="nvcc: compiling for sm_90a failed: exit status") as caught:
        Nvcc().compile('extern "C" __global__ void f() {\n  undefined();\n}', HOPPER)
    assert 'identifier "undefined" is undefined' in caught.value.log
    assert ">    2 |   undefined();" in str(caught.value)


@requires_nvcc
def test_the_cpu_is_refused() -> None:
    with pytest.raises(ValueError, match="not for cpu"):
        Nvcc().compile(KERNEL, Target("cpu"))


@requires_nvcc
def test_the_identity_names_the_builds_of_all_parts() -> None:
    text = Nvcc().identity()
    assert [part.split()[0] for part in text.split(", ")] == ["nvcc", "cicc", "ptxas"]
    assert "compiler." in text
    assert "/usr" not in text


@requires_nvcc
def test_a_wrapper_script_is_resolved_to_the_real_compiler(
    make_program: MakeProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Nvcc().location
    wrapper = make_program("nvcc", f'exec {real} "$@"')
    monkeypatch.setenv("PATH", str(wrapper.parent), prepend=":")
    assert Nvcc().location == real


@requires_nvcc
def test_a_link_is_followed_to_the_real_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Nvcc().location
    (tmp_path / "nvcc").symlink_to(real)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CXX", "/bin/sh")  # not started: finding a linked nvcc starts nothing
    assert Nvcc().location == real


def make_toolkit(root: Path, version: str = "1") -> Path:
    """A toolkit of scripts that stand in for nvcc's parts."""
    scripts = {
        "bin/nvcc": f'echo "#\\$ _HERE_={root}/bin"; echo "Build cuda_{version}"',
        "bin/ptxas": f'echo "Build cuda_{version}"',
        "nvvm/bin/cicc": f'echo "// Compiler Build ID: CL-{version}" > "$5"',
    }
    for name, script in scripts.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
    return root


@pytest.mark.parametrize("variable", ["CUDA_HOME", "CUDA_PATH"])
def test_a_toolkit_named_by_the_environment_comes_before_path(
    variable: str, make_program: MakeProgram, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(make_program("nvcc", "exit 1").parent), prepend=":")
    toolkit = make_toolkit(tmp_path / "cuda")
    monkeypatch.setenv(variable, str(toolkit))
    assert Nvcc().location == toolkit / "bin/nvcc"


def test_the_wheels_come_after_path(
    only_path: Path, make_program: MakeProgram, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    toolkit = make_toolkit(tmp_path / "site-packages/nvidia/cu13")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site-packages")])
    make_program("g++", "exit 0")
    assert Nvcc().location == toolkit / "bin/nvcc"
    on_path = make_toolkit(tmp_path / "cuda")
    make_program("nvcc", f'exec {on_path}/bin/nvcc "$@"')
    assert Nvcc().location == on_path / "bin/nvcc"


def test_the_identity_is_asked_once_per_state_of_the_parts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    toolkit, memo_dir = make_toolkit(tmp_path / "cuda"), MemoFolder(Store(tmp_path / "cache"))
    monkeypatch.setenv("CUDA_HOME", str(toolkit))
    assert Nvcc(memo_dir).identity() == "nvcc cuda_1, cicc CL-1, ptxas cuda_1"
    monkeypatch.setattr(identity, "_seen", {})
    with monkeypatch.context() as context:
        context.setattr(Nvcc, "_probe", lambda self: pytest.fail("asked again"))
        assert Nvcc(memo_dir).identity() == "nvcc cuda_1, cicc CL-1, ptxas cuda_1"
    (toolkit / "nvvm/bin/cicc").write_text('#!/bin/sh\necho "// Compiler Build ID: CL-22" > "$5"\n')
    assert Nvcc(memo_dir).identity() == "nvcc cuda_1, cicc CL-22, ptxas cuda_1"


@pytest.mark.usefixtures("no_wheels")
def test_a_missing_nvcc_names_the_remedy(only_path: Path, make_program: MakeProgram) -> None:
    make_program("g++", "exit 0")
    with pytest.raises(ToolchainMissingError, match=r"nvcc was not found.*PATH.*jitnorm\[nvcc\].*CUDA_HOME"):
        Nvcc()


def test_a_missing_host_compiler_is_named(only_path: Path, make_program: MakeProgram) -> None:
    make_program("nvcc", "exit 0")
    with pytest.raises(ToolchainMissingError, match=r"C\+\+ compiler, which nvcc needs.*apt-get install g\+\+"):
        Nvcc()


def test_a_wrapper_that_leads_nowhere_is_named(only_path: Path, make_program: MakeProgram) -> None:
    make_program("g++", "exit 0")
    wrapper = make_program("nvcc", "echo no such toolkit; exit 1")
    with pytest.raises(ToolchainMissingError, match=f"behind the wrapper {wrapper}.*no such toolkit"):
        Nvcc()


def test_a_toolkit_without_a_part_names_the_part(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    toolkit = make_toolkit(tmp_path / "cuda")
    (toolkit / "bin/ptxas").unlink()
    monkeypatch.setenv("CUDA_HOME", str(toolkit))
    with pytest.raises(ToolchainMissingError, match="ptxas, a part of nvcc"):
        Nvcc()
