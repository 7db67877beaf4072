"""Which NVRTC is used: by what is installed, the target and the driver."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.generator import generate
from jitnorm.kernels.target import TARGET_NAMES, Target

from jitnorm.toolchains import ToolchainMissingError, cuda_driver, nvrtc, nvrtc_library
from jitnorm.toolchains.cuda_driver import too_old_for
from jitnorm.toolchains.nvrtc import Nvrtc
from jitnorm.toolchains.nvrtc_library import NvrtcLibrary, Version, choose, installed_libraries
from jitnorm.toolchains.search import on_path, on_sys_path

AMPERE, HOPPER, THOR = Target("sm_80"), Target("sm_90a"), Target("sm_110a")
OLD, NEW = (NvrtcLibrary(Path(f"libnvrtc.so.{version[0]}"), version) for version in ((12, 9), (13, 4)))


@pytest.mark.parametrize(
    ("target", "driver", "chosen"),
    [
        (HOPPER, (12, 2), OLD),
        (HOPPER, (12, 9), OLD),
        (HOPPER, (13, 0), NEW),  # an older minor version of the driver does not matter
        (HOPPER, (14, 0), NEW),
        (HOPPER, None, NEW),
        (HOPPER, (11, 4), NEW),  # loads neither
        (THOR, (12, 9), NEW),  # CUDA 12 does not know it
        (None, (12, 9), OLD),
        (None, None, NEW),
    ],
)
def test_the_newest_whose_code_the_driver_loads_is_chosen(
    target: Target | None, driver: Version | None, chosen: NvrtcLibrary
) -> None:
    assert choose([NEW, OLD], target, driver) == choose([OLD, NEW], target, driver) == chosen


versions = st.tuples(st.integers(12, 14), st.integers(0, 9)).filter(lambda version: version >= nvrtc_library.OLDEST)
targets = st.sampled_from(TARGET_NAMES[1:]).map(Target)


@given(st.lists(versions, min_size=1), targets, st.none() | st.tuples(st.integers(11, 14), st.integers(0, 9)))
def test_what_is_chosen_builds_for_the_target_and_no_other_serves_better(
    installed: list[Version], target: Target, driver: Version | None
) -> None:
    libraries = [NvrtcLibrary(Path("libnvrtc.so"), version) for version in installed]
    able = [library for library in libraries if library.builds_for(target)]
    if not able:
        with pytest.raises(ToolchainMissingError, match=f"builds for {target}"):
            choose(libraries, target, driver)
        return
    chosen = choose(libraries, target, driver)
    assert chosen in able
    for other in able:
        if driver is None or other.runs_on(driver) >= chosen.runs_on(driver):
            assert chosen.version >= other.version


@pytest.mark.parametrize(
    ("target", "version", "remedy"),
    [
        ("sm_110a", (12, 9), r'"jitnorm\[cuda\]".* 13\.0 or later'),
        ("sm_103a", (12, 8), r'"jitnorm\[cuda12\]".* 12\.9 or later'),
        ("sm_100a", (12, 6), r'"jitnorm\[cuda12\]".* 12\.8 or later'),
    ],
)
def test_a_target_that_the_version_lacks_is_refused_with_the_remedy(target: str, version: Version, remedy: str) -> None:
    with pytest.raises(ToolchainMissingError, match=f"NVRTC that builds for {target} .*{remedy}"):
        choose([NvrtcLibrary(Path("libnvrtc.so.12"), version)], Target(target))


def put(folder: Path, major: int, minor: int) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"libnvrtc-builtins.so.{major}.{minor}").touch()
    library = folder / f"libnvrtc.so.{major}"
    library.touch()
    return library


@pytest.fixture
def toolkit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The only folder with libraries."""
    monkeypatch.setattr(nvrtc_library, "on_sys_path", lambda relative: None)
    monkeypatch.setattr(nvrtc_library, "_SYSTEM_FOLDERS", ())
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    return tmp_path / "lib64"


def test_both_major_versions_are_found_with_their_versions(toolkit: Path) -> None:
    new, old = put(toolkit, 13, 1), put(toolkit, 12, 8)
    assert installed_libraries() == [NvrtcLibrary(new, (13, 1)), NvrtcLibrary(old, (12, 8))]


def test_a_version_that_is_too_old_is_named(toolkit: Path) -> None:
    put(toolkit, 12, 3)
    with pytest.raises(ToolchainMissingError, match=r"NVRTC 12\.3 .*too old.*jitnorm\[cuda12\].*12\.4 or later"):
        installed_libraries()


def test_the_driver_is_asked_only_where_there_is_a_choice(toolkit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new = put(toolkit, 13, 1)
    monkeypatch.setattr(nvrtc, "driver_version", lambda: pytest.fail("asked"))
    assert Nvrtc(target=HOPPER).location == new
    old = put(toolkit, 12, 9)
    monkeypatch.setattr(nvrtc, "driver_version", lambda: (12, 4))
    assert Nvrtc(target=HOPPER).location == old
    assert Nvrtc(target=THOR).location == new


def test_a_machine_without_a_driver_has_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr("ctypes.CDLL", missing)
    assert cuda_driver.driver_version.__wrapped__() is None


@pytest.mark.parametrize(
    ("toolchain", "driver", "advised"),
    [
        ("NVRTC, Compiler Build ID: CL-1, Cuda compilation tools, release 13.4, V13.4.92", (12, 8), True),
        ("nvcc cuda_13.0.r13.0/compiler.1, cicc CL-1, ptxas cuda_13.0.r13.0/compiler.1", (12, 8), True),
        ("NVRTC, Compiler Build ID: CL-1, Cuda compilation tools, release 12.9, V12.9.86", (12, 2), False),
        ("NVRTC, Compiler Build ID: CL-1, Cuda compilation tools, release 13.4, V13.4.92", (13, 0), False),
        ("NVRTC, Compiler Build ID: CL-1, Cuda compilation tools, release 13.4, V13.4.92", None, False),
        ("gcc version 12.2.0, x86_64-linux-gnu", (12, 2), False),
    ],
)
def test_what_a_driver_cannot_load_names_the_remedy(toolchain: str, driver: Version | None, advised: bool) -> None:
    assert ('pip install "jitnorm[cuda12]"' in too_old_for(toolchain, driver)) is advised


_CUDA12 = on_sys_path("nvidia/cuda_nvrtc/lib/libnvrtc.so.12")
_CUOBJDUMP = on_sys_path("nvidia/cu13/bin/cuobjdump") or on_path("cuobjdump")


@pytest.mark.skipif(_CUDA12 is None, reason='NVRTC 12 is missing: pip install "jitnorm[cuda12]"')
@pytest.mark.skipif(_CUOBJDUMP is None, reason="cuobjdump is missing: pip install nvidia-cuda-cuobjdump")
@pytest.mark.parametrize("name", ["sm_80", "sm_90a", "sm_100a"])
def test_cuda_12_builds_kernels_that_spill_nothing(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "driver_version", lambda: (12, 2))
    toolchain, target = Nvrtc(target=Target(name)), Target(name)
    assert "release 12." in toolchain.identity()
    config = KernelConfig.parse("rmsnorm:hidden_size=4096,quant=e2m1/16/e4m3/128x4/given")
    file = tmp_path / "kernel.cubin"
    file.write_bytes(toolchain.compile(generate(config, target).text, target))
    command = [str(_CUOBJDUMP), "--dump-resource-usage", str(file)]
    usage = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    assert "LOCAL:0" in usage
    assert "STACK:0" in usage
