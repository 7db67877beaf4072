"""The C++ example runs what the wheels bring, without Python, and verifies it first."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest
from jitnorm.cache import Store
from ml_dtypes import bfloat16
from once_a_run import once_a_run
from wheels import ROOT, kernel

from jitnorm.launcher import load_or_build_launcher
from jitnorm.reference import quantize_fp4, rmsnorm_f32
from jitnorm.store import user_store

CONFIG = "rmsnorm:hidden_size=4096,quant=e2m1/16/e4m3/linear/none"


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, built as its page says."""
    return once_a_run(tmp_path_factory, "example", build_example) / "quantize"


def build_example(folder: Path) -> None:
    path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])
    cmake = shutil.which("cmake", path=path)
    assert cmake, "cmake is missing: pip install cmake"
    found = subprocess.run(
        [sys.executable, "-m", "tvm_ffi.config", "--cmakedir"], check=True, capture_output=True, text=True, timeout=60
    )
    configure = [f"-Dtvm_ffi_DIR={found.stdout.strip()}", f"-DPython_EXECUTABLE={sys.executable}"]
    for command in ([cmake, "-S", ROOT / "examples" / "cpp", "-B", folder, *configure], [cmake, "--build", folder]):
        done = subprocess.run(command, capture_output=True, text=True, timeout=200)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def cache(tmp_path: Path) -> Store:
    """A cache with the launcher and the kernel of the example."""
    store = Store(tmp_path / "cache")
    store.publish(*kernel(CONFIG))
    store.publish("1" * 64, load_or_build_launcher(user_store()))
    return store


def run(program: Path, cache: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    # Without PATH and Python's variables.
    command = [program, cache, *arguments]
    return subprocess.run(command, env={}, capture_output=True, text=True, timeout=60)


def test_it_gives_the_bytes_of_the_reference(program: Path, cache: Store) -> None:
    i = np.arange(5 * 4096)
    x = ((i * 37 % 251 - 125) / 16).astype(bfloat16).reshape(5, 4096)
    weight = (1 + np.arange(4096) % 7 / 8).astype(bfloat16)
    expected = quantize_fp4(rmsnorm_f32(x, weight), block_size=16, scale_format="e4m3", global_scale=None)
    codes, scales = (hashlib.sha256(array.tobytes()).hexdigest() for array in expected)
    done = run(program, cache.layout.root)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"codes  {codes}\nscales {scales}\n"


def test_a_changed_byte_is_noticed(program: Path, cache: Store) -> None:
    for name in ("payload", "manifest.json"):
        for key in (kernel(CONFIG)[0], "1" * 64):
            path = cache.layout.entry(key) / name
            before = path.read_bytes()
            path.write_bytes(before[:200] + bytes([before[200] ^ 1]) + before[201:])
            done = run(program, cache.layout.root)
            assert done.returncode == 1
            assert f"{name} does not match its digest" in done.stderr
            path.write_bytes(before)


def test_what_is_not_there_is_named(program: Path, cache: Store) -> None:
    assert "error: the kernel is not in" in run(program, cache.layout.root, "sm_80").stderr
    (nothing := cache.layout.root / "nothing" / "v1").mkdir(parents=True)
    assert "error: the launcher is not in" in run(program, nothing.parent).stderr


def test_it_runs_the_launcher_that_wheels_bring(program: Path, dist: Path, tmp_path: Path) -> None:
    (wheel,) = dist.glob("jitnorm_kernels_cpu-*.whl")
    shutil.unpack_archive(wheel, tmp_path, "zip")
    done = run(program, tmp_path / "jitnorm_kernels_cpu" / "cache")
    assert (done.returncode, done.stderr) == (0, "")
