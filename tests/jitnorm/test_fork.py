"""A forked child has none of its parent's threads: whatever these were doing, it can call every op."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from fake_cxx import fake_cxx
from python_process import run_python

from jitnorm.launcher import launcher

# The first compilation of a kernel of 56 columns takes as long as the test wants.
STUCK_ONCE = """
if grep -q hidden_size=56 "$source" && mkdir {folder}/stuck 2>/dev/null; then
  while [ ! -e {folder}/go ]; do sleep 0.02; done
fi
"""

WHILE_A_THREAD_BUILDS = """
import multiprocessing, os, signal, sys, threading, time
from pathlib import Path
import numpy as np, jitnorm

folder, how = Path(sys.argv[1]), sys.argv[2]

def check(size):
    x, weight = np.full((2, size), 2.0, np.float16), np.ones(size, np.float16)
    assert (jitnorm.rmsnorm(x, weight) == 1.0).all()

def in_child():
    signal.alarm(20)
    for size in (64, 56, 72):  # loaded, being built in the parent, not seen before
        check(size)
    jitnorm.stats()
    jitnorm.wait_for_builds(0)

check(64)
errors = []
def build():
    try:
        check(56)
    except Exception as error:
        errors.append(error)
building = threading.Thread(target=build)
building.start()
while not (folder / "stuck").exists():
    time.sleep(0.01)
if how == "fork":
    child = os.fork()
    if child == 0:
        in_child()
        sys.exit(0)  # with all that runs at the end of a process
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
else:
    process = multiprocessing.get_context("fork").Process(target=in_child)
    process.start()
    process.join()
    status = process.exitcode
(folder / "go").touch()
building.join()
print(status, *errors)
"""


@pytest.mark.parametrize("how", ["fork", "multiprocessing"])
def test_a_child_forked_while_a_thread_builds_calls_every_op_and_leaves_the_build_alone(
    tmp_path: Path, how: str
) -> None:
    compiler = fake_cxx(tmp_path / "bin", STUCK_ONCE.format(folder=tmp_path))
    launcher()  # it takes the longest to build, and is none of the matter
    environment = {
        "CXX": str(compiler),
        "JITNORM_CACHE_DIR": str(tmp_path / "cache"),
        "JITNORM_READONLY_CACHE": os.environ["JITNORM_CACHE_DIR"],
        "JITNORM_LOCK_TIMEOUT": "0.5",
    }
    assert run_python(WHILE_A_THREAD_BUILDS, str(tmp_path), how, cwd=tmp_path, **environment) == "0\n"
