"""Large calls of the CPU target run on several threads, and give the same bytes however the rows are divided."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.launch_recipe import launch_recipe
from jitnorm.kernels.target import Target
from python_process import run_python

GOLDEN = Path(__file__).parents[1] / "golden" / "test_golden.py"

# The golden tests, with kernels for which every row is worth a thread.
EVERY_ROW_A_PART = f"""
import json, sys, pytest
from jitnorm import manager

real = manager.launcher()

class Launcher:
    def load_kernel(self, recipe, payload):
        return real.load_kernel(json.dumps({{**json.loads(recipe), "grain": 1}}), payload)

    def __getattr__(self, name):
        return getattr(real, name)

manager.launcher = Launcher
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "-n", "0", "-k", "cpu", *OPTIONS, {str(GOLDEN)!r}]))
"""

ONE_LARGE_CALL = """
import numpy as np, jitnorm
try:
    jitnorm.compute_amax(np.ones((4096, 1024), np.float16))
except Exception as error:
    print(f"{type(error).__name__}: {error}")
"""

# A process that built a kernel keeps its cache in the background, with threads of its own, which have to end first.
CALLS_FOR_A_SECOND = """
import os, time
import numpy as np, jitnorm
from jitnorm.cache.upkeep import upkeep
x, w = np.ones((4096, 1024), np.float16), np.ones(1024, np.float16)
out = jitnorm.rmsnorm(x, w)
assert upkeep.wait(60)
while len(os.listdir("/proc/self/task")) > 1:
    time.sleep(0.001)
print("ready", flush=True)
end = time.monotonic() + 1
while time.monotonic() < end:
    jitnorm.rmsnorm(x, w, out=out)
"""


def test_every_row_may_be_a_part(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    # Golden tests make a cache of their own; the kernels of this run serve it, so the same cases run.
    built = os.environ["JITNORM_CACHE_DIR"]
    options = ["-m", pytestconfig.getoption("-m"), "--turn", str(pytestconfig.getoption("--turn"))]
    said = run_python(
        f"OPTIONS = {options}\n{EVERY_ROW_A_PART}", cwd=tmp_path, JITNORM_CPU_THREADS="5", JITNORM_READONLY_CACHE=built
    )
    assert " passed" in said


def most_threads(program: str, folder: Path, **environment: str) -> int:
    """The most threads that were seen at once in a process, once it says that it is ready."""
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=folder,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", **environment},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        return max(_thread_counts(process))
    finally:
        process.kill()
        process.communicate()


def _thread_counts(process: subprocess.Popen[str]) -> Iterator[int]:
    while process.poll() is None:
        try:
            yield len(os.listdir(f"/proc/{process.pid}/task"))
        except FileNotFoundError:
            return
        time.sleep(0.001)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_a_call_starts_as_many_as_it_may_and_no_more(threads: int, tmp_path: Path) -> None:
    assert most_threads(CALLS_FOR_A_SECOND, tmp_path, JITNORM_CPU_THREADS=str(threads)) == threads


@pytest.mark.parametrize("value", ["0", "-1", "two", "1.5"])
def test_a_bad_number_of_threads_is_an_error_that_says_what_is_allowed(value: str, tmp_path: Path) -> None:
    said = run_python(ONE_LARGE_CALL, cwd=tmp_path, JITNORM_CPU_THREADS=value)
    assert said == f"ValueError: JITNORM_CPU_THREADS: is '{value}'; use a whole number of at least 1\n"


SIZES = [1, 7, 128, 4096, 70001, 262144]


@given(st.sampled_from(SIZES))
def test_small_calls_stay_on_one_thread(hidden_size: int) -> None:
    grain = launch_recipe(KernelConfig("rmsnorm", hidden_size), Target("cpu"))["grain"]
    assert grain * hidden_size >= 1 << 17
    assert (grain - 1) * hidden_size < 1 << 17


@given(st.sampled_from(SIZES))
def test_small_tensors_have_one_part_whose_amax_is_found(hidden_size: int) -> None:
    grid = launch_recipe(KernelConfig("quantize", hidden_size, amax_parts=256), Target("cpu"))["grid"]
    rows = grid[1][2] if grid[1][0] == "ceil_div" else 1
    assert (rows - 1) * hidden_size < 1 << 17 <= rows * hidden_size
    assert grid == ["min", ["+", "M", 1] if rows == 1 else ["ceil_div", ["+", "M", 1], rows], 256]
