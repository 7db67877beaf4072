"""The launcher that zig builds runs on old distributions, and is as good as one that the host's compiler builds."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from jitnorm.cache import Artifact, Store
from wheels import ROOT

from jitnorm.toolchains import ToolchainMissingError, zig
from jitnorm.toolchains.zig import Zig
from jitnorm.wheel.own import PREBUILT

# What of glibc may be linked; everything else comes from TVM-FFI, which Python has loaded.
_LIBRARIES = {b"libc.so.6", b"libm.so.6", b"libdl.so.2", b"libpthread.so.0", b"ld-linux-x86-64.so.2"}


@pytest.fixture
def prebuilt(bare_python: Path) -> Path:
    """The cache folder that jitnorm's own wheel brings."""
    (folder,) = bare_python.parents[1].glob(f"lib/python*/site-packages/jitnorm/{PREBUILT}")
    return folder


@pytest.fixture
def artifact(prebuilt: Path) -> Artifact:
    store = Store(prebuilt, writable=False)
    (entry,) = store.entries()
    found = store.load(entry.key)
    assert found is not None
    return found


def test_it_says_what_it_requires(artifact: Artifact) -> None:
    assert artifact.manifest["kind"] == "launcher"
    assert artifact.manifest["toolchain"].startswith("zig ")
    assert artifact.manifest["requires"]["machine"] == "x86_64"
    major, minor = map(int, artifact.manifest["requires"]["glibc"].split("."))
    assert (2, 14) < (major, minor) <= (2, 28)


def test_it_needs_no_symbol_that_is_newer_than_its_platform_tag(artifact: Artifact) -> None:
    versions = {tuple(map(int, found)) for found in re.findall(rb"GLIBC_(\d+)\.(\d+)", artifact.payload)}
    assert versions
    assert max(versions) <= (2, 28)
    assert re.search(rb"GLIBCXX_|CXXABI_|GCC_\d", artifact.payload) is None
    assert set(re.findall(rb"[\w+-]+\.so(?:\.\d+)*(?=\0)", artifact.payload)) - {b"libcuda.so.1"} <= _LIBRARIES


def test_it_is_small(artifact: Artifact) -> None:
    assert len(artifact.payload) < 1_000_000


def test_the_tests_of_the_ops_pass_with_it(prebuilt: Path) -> None:
    """Errors are thrown through it and through TVM-FFI's library, which another C++ library was linked to."""
    tests = ["tests/jitnorm/ops/test_bad_input.py", "-k", "numpy"]  # other frameworks would only take longer
    environment = {**os.environ, "JITNORM_READONLY_CACHE": str(prebuilt), "CXX": "/nonexistent/c++"}
    environment.pop("PYTEST_XDIST_WORKER", None)
    program = "import jitnorm.launcher as l; print(l.load_or_build_launcher(l.user_cache()).manifest['toolchain'])"
    used = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60, cwd=ROOT
    )
    assert used.stdout.startswith("zig "), used.stderr
    del environment["CXX"]  # the kernels are this machine's compiler's
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0", *tests]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout[-3000:]


def test_zig_is_missed_with_its_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(zig, "on_sys_path", lambda relative: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolchainMissingError, match="pip install ziglang"):
        Zig()


def test_a_machine_that_it_does_not_build_for_is_refused() -> None:
    with pytest.raises(ValueError, match="machine: 'mips' is not known; use one of x86_64, aarch64"):
        Zig(machine="mips")
