"""Calls with AddressSanitizer in launcher and kernels; what touches memory around a tensor ends the process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "sanitized_calls"
# The script's own compiler takes 20 s for the launcher.
QUICK = """#!/bin/sh
exec g++ "$@" -O0 -g0 -fsanitize=address
"""
READS_BESIDE = """
import ctypes
import numpy as np
from fuzz.case import Place
from fuzz.memory import guarded
from fuzz.sanitizer import kept_to

tensor = guarded(np.zeros((3, 16), np.float16), Place(row_gap=16), "numpy")
with kept_to([tensor]):
    ctypes.string_at(tensor.address, 32)
    print("the tensor can be read", flush=True)
    ctypes.string_at(tensor.address + 32, 16)
"""


@pytest.fixture(scope="module")
def libasan() -> str:
    try:
        found = subprocess.run(["g++", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    except OSError:
        pytest.skip("no g++")
    if not Path(found.stdout.strip()).is_absolute():
        pytest.skip("g++ has no AddressSanitizer")
    return found.stdout.strip()


@pytest.mark.exhaustive
def test_random_calls_stay_within_their_tensors(libasan: str, tmp_path: Path) -> None:
    """Each run makes random calls between guard bytes, in test_fuzz_calls.py; here the launcher is built anew."""
    pytest.importorskip("torch", reason="some calls are of torch's tensors")
    compiler = tmp_path / "cxx"
    compiler.write_text(QUICK)
    compiler.chmod(0o755)
    environment = {**os.environ, "CXX": str(compiler), "SANITIZED_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run([SCRIPT, "4", "12", "--kernels", "1"], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "12 calls of 1 configurations" in done.stdout


def test_a_read_beside_a_tensor_ends_the_process(libasan: str) -> None:
    path = os.pathsep.join(map(str, (ROOT / "scripts", ROOT / "tests" / "helpers")))
    environment = {**os.environ, "LD_PRELOAD": libasan, "ASAN_OPTIONS": "detect_leaks=0", "PYTHONPATH": path}
    done = subprocess.run([sys.executable, "-c", READS_BESIDE], env=environment, capture_output=True, text=True)
    assert done.stdout == "the tensor can be read\n"
    assert "use-after-poison" in done.stderr
