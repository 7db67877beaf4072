from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from jitnorm.kernels.target import TARGET_NAMES, Target

from jitnorm.toolchains import CompileError, ToolchainMissingError, nvrtc_library
from jitnorm.toolchains.nvrtc import Nvrtc

HOPPER = Target("sm_90a")
KERNEL = """
namespace { __device__ int counter; }
extern "C" __global__ void scale(float* x) { x[threadIdx.x] *= 2.0f + counter++; }
"""


PROGRAM = """
import hashlib, sys
from jitnorm.kernels.target import Target
from jitnorm.toolchains import select
target = Target("sm_90a")
print(hashlib.sha256(select(target, "nvrtc").compile(sys.argv[1], target)).hexdigest())
"""


@pytest.mark.parametrize("name", TARGET_NAMES[1:])
def test_every_cuda_target_compiles_to_a_cubin_of_its_architecture(
    name: str, cubin_architecture: Callable[[bytes], int]
) -> None:
    cubin = Nvrtc().compile(KERNEL, Target(name))
    assert cubin_architecture(cubin) == int(name.strip("sm_af"))
    assert b".text.scale\0" in cubin


def test_every_process_makes_the_same_bytes(tmp_path: Path) -> None:
    digests = set()
    for name in ("a", "b"):
        folder = tmp_path / name
        folder.mkdir()
        command = [sys.executable, "-c", PROGRAM, KERNEL]
        digests.add(subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=120).stdout)
    assert len(digests) == 1


def test_the_flags_reach_the_compiler() -> None:
    contractible = 'extern "C" __global__ void f(float* x) { x[0] = x[1] * x[2] + x[3]; }'
    explicit = 'extern "C" __global__ void f(float* x) { x[0] = __fadd_rn(__fmul_rn(x[1], x[2]), x[3]); }'
    assert Nvrtc().compile(contractible, HOPPER) == Nvrtc().compile(explicit, HOPPER)


def test_the_flags_name_the_target_and_every_option() -> None:
    assert Nvrtc().flags(HOPPER) == (
        *("--gpu-architecture=sm_90a", "--std=c++17", "--fmad=false"),
        *("--prec-div=true", "--prec-sqrt=true", "--ftz=false", "--minimal"),
    )


def test_a_refused_source_gives_the_log_and_the_line() -> None:
    with pytest.raises(CompileError, match="nvrtc: compiling for sm_90a failed") as caught:
        Nvrtc().compile('extern "C" __global__ void f() {\n  undefined();\n}', HOPPER)
    assert 'identifier "undefined" is undefined' in caught.value.log
    assert ">    2 |   undefined();" in str(caught.value)


def test_the_cpu_is_refused() -> None:
    with pytest.raises(ValueError, match="not for cpu"):
        Nvrtc().compile(KERNEL, Target("cpu"))


def test_the_identity_is_the_build_of_the_compiler() -> None:
    identity = Nvrtc().identity()
    assert identity.startswith("NVRTC, Compiler Build ID: CL-")
    assert "release 13." in identity
    assert "/" not in identity


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc_library, "on_sys_path", lambda relative: None)
    monkeypatch.setattr(nvrtc_library, "_SYSTEM_FOLDERS", ())
    for variable in ("CONDA_PREFIX", "CUDA_PATH", "CUDA_HOME", "LD_LIBRARY_PATH"):
        monkeypatch.delenv(variable, raising=False)


@pytest.mark.usefixtures("nothing_installed")
@pytest.mark.parametrize(
    ("variable", "folder"),
    [("CUDA_HOME", "lib64"), ("CUDA_PATH", "lib"), ("CONDA_PREFIX", "lib"), ("LD_LIBRARY_PATH", ".")],
)
def test_a_toolkit_named_by_the_environment_is_found(
    variable: str, folder: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    library = tmp_path / folder / "libnvrtc.so.13"
    library.parent.mkdir(exist_ok=True)
    library.touch()
    monkeypatch.setenv(variable, str(tmp_path))
    assert Nvrtc().location == library


@pytest.mark.usefixtures("nothing_installed")
def test_a_missing_library_names_the_remedy() -> None:
    with pytest.raises(ToolchainMissingError, match=r"libnvrtc\.so\.13.*pip install \"jitnorm\[cuda\]\".*CUDA_HOME"):
        Nvrtc()
