"""A forked child has none of its parent's threads: whatever these were doing, it can call every op."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from fake_cxx import fake_cxx
from jitnorm.kernels.launcher_source import launcher_source
from python_process import run_python

from jitnorm.launcher import launcher


@pytest.fixture(scope="module", autouse=True)
def _built_launcher() -> None:
    """Build the launcher first: it takes longest and is not what is tested."""
    launcher()


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
    environment = {
        "CXX": str(compiler),
        "JITNORM_CACHE_DIR": str(tmp_path / "cache"),
        "JITNORM_READONLY_CACHE": os.environ["JITNORM_CACHE_DIR"],
        "JITNORM_LOCK_TIMEOUT": "0.5",
    }
    assert run_python(WHILE_A_THREAD_BUILDS, str(tmp_path), how, cwd=tmp_path, **environment) == "0\n"


WHILE_A_THREAD_IMPORTS = """
import os, signal, sys, threading, time
import numpy as np, jitnorm

class Slow:
    def find_spec(self, name, path, target=None):
        if name == sys.argv[1]:
            importing.set()
            time.sleep(0.5)

def call():  # of a size that no other test has built
    assert (jitnorm.rmsnorm(np.ones((2, 1864), np.float16), np.ones(1864, np.float16)) == 1).all()

importing = threading.Event()
sys.meta_path.insert(0, Slow())
threading.Thread(target=call).start()
assert importing.wait(60)
child = os.fork()
if child == 0:
    signal.alarm(20)
    call()
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.parametrize("module", ["tvm_ffi._tensor", "jitnorm.cache.room", "jitnorm.interop.numpy"])
def test_a_child_forked_while_a_thread_makes_the_first_call_can_make_it_too(tmp_path: Path, module: str) -> None:
    folders = {"JITNORM_CACHE_DIR": str(tmp_path / "cache"), "JITNORM_READONLY_CACHE": os.environ["JITNORM_CACHE_DIR"]}
    assert run_python(WHILE_A_THREAD_IMPORTS, module, cwd=tmp_path, **folders) == "0\n"


HOOKS_OF_A_FIRST_CALL = """
import os
import numpy as np, jitnorm

def note(**hooks):
    hooked.extend(hook.__module__ for when, hook in hooks.items() if when == "before")
    register(**hooks)

hooked, register = [], os.register_at_fork
os.register_at_fork = note
size = 1872  # that no other test has built
assert (jitnorm.rmsnorm(np.ones((2, size), np.float16), np.ones(size, np.float16)) == 1).all()
print(hooked)
"""


def test_a_first_call_registers_no_hook_that_would_run_before_the_wait_for_imports(tmp_path: Path) -> None:
    """Such a hook may wait for the import that registers it, which waits for the fork."""
    folders = {"JITNORM_CACHE_DIR": str(tmp_path / "cache"), "JITNORM_READONLY_CACHE": os.environ["JITNORM_CACHE_DIR"]}
    assert run_python(HOOKS_OF_A_FIRST_CALL, cwd=tmp_path, **folders) == "[]\n"


WHILE_A_COMPILER_IS_STARTED = """
import os, subprocess, threading, time
from jitnorm.toolchains.process import run

get_handles = subprocess.Popen._get_handles

def get_handles_slowly(*arguments):
    handles = get_handles(*arguments)
    starting.set()
    time.sleep(0.5)
    return handles

starting, (reading, writing) = threading.Event(), os.pipe()
subprocess.Popen._get_handles = get_handles_slowly
running = threading.Thread(target=run, args=(["true"], None, 60))
running.start()
assert starting.wait(60)
if os.fork() == 0:  # a child that stays, and opens nothing but keeps what is open
    os.close(writing)
    os.read(reading, 1)
    os._exit(0)
running.join(20)
print("waits for the child" if running.is_alive() else "ended")
"""


def test_a_child_that_is_forked_while_a_compiler_is_started_does_not_hold_up_the_build(tmp_path: Path) -> None:
    assert run_python(WHILE_A_COMPILER_IS_STARTED, cwd=tmp_path) == "ended\n"


WHILE_THREADS_CALL = """
import os, signal, sys, threading
import numpy as np, jitnorm

def arrays(rows, size):
    return np.ones((rows, size), np.float16), np.ones(size, np.float16)

def call_for_ever():
    several = [arrays(rows, 64) for rows in range(1, 200)]  # more than are remembered: each looks into the table
    while True:
        for x, weight in several:
            jitnorm.rmsnorm(x, weight)

for size in (64, 72):
    jitnorm.rmsnorm(*arrays(1, size))
for _ in range(2):
    threading.Thread(target=call_for_ever, daemon=True).start()
for _ in range(int(sys.argv[1])):
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        jitnorm.rmsnorm(*arrays(1 << 16, 72))  # another class of rows: its kernel is learned, and called by threads
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == 0, status
os._exit(0)
"""


def test_a_child_forked_while_threads_call_learns_kernels_and_has_threads_of_its_own(tmp_path: Path) -> None:
    run_python(WHILE_THREADS_CALL, os.environ.get("JITNORM_TEST_ROUNDS", "24"), cwd=tmp_path, JITNORM_CPU_THREADS="2")


def test_the_launcher_has_no_lock_but_those_that_a_fork_takes() -> None:
    folder = Path(launcher_source.__code__.co_filename).parent / "launcher"
    locking = re.compile(r"std::\w*mutex \w+;|once_flag|condition_variable|pthread_(mutex|rwlock)")
    found = {file.name for file in folder.iterdir() if locking.search(file.read_text())}
    assert found == {"locks.h"}
