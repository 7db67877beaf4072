"""A lost GPU, and streams of many threads and two devices: errors, but never a hang, and nothing left open.

A driver that stands in for NVIDIA's counts launches and fails on request.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.launch_recipe import launch_recipe
from jitnorm.kernels.target import Target
from python_process import run_python
from stand_in_driver import CHECKED, build_stand_in_driver

HELPERS = str(Path(__file__).parents[2] / "helpers")
LAUNCHES = os.environ.get("JITNORM_TEST_LAUNCHES", "8000")
# Needs more shared memory than a kernel has without asking.
RECIPE = json.dumps(launch_recipe(KernelConfig("rmsnorm", 4096, schedule="8x1wao4"), Target("sm_90a")))

PRELUDE = """
import ctypes, json, os, sys, threading
sys.path.insert(0, sys.argv[1])
from dlpack_by_hand import CUDA, tensor_by_hand
from jitnorm.launcher import launcher

recipe, driver = sys.argv[2], ctypes.CDLL("libcuda.so.1")

def tensors(device):
    shapes = enumerate(((3, 4096), (4096,), (3, 4096)), start=1)
    return [tensor_by_hand(i << 44, shape, "bfloat16", device=(CUDA, device)) for i, shape in shapes]

def said(function, *arguments):
    try:
        function(*arguments)
        return ""
    except RuntimeError as error:
        return str(error)
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("driver")
    return {**build_stand_in_driver(folder, [(9, 0), (9, 0)]), "STAND_IN_COUNTS": "1"}


FAIL_ONE_BY_ONE = """
answers = {}
for name in sys.argv[3:]:
    def call():
        kernel = launcher().load_kernel(recipe, b"code")
        kernel(*tensors(device), 1e-6)
    device = 0
    if name == "cuDevicePrimaryCtxRetain":
        device = 1  # whose context nobody has retained yet
    os.environ["STAND_IN_FAILS"] = f"{name}:719"
    failed = said(call)
    del os.environ["STAND_IN_FAILS"]
    answers[name] = failed, said(call), driver.stand_in_depth(), driver.stand_in_mode()
print(json.dumps(answers))
"""


def test_each_failure_of_the_driver_is_an_error_that_names_it_and_leaves_nothing_open(
    driver: dict[str, str], tmp_path: Path
) -> None:
    answers = json.loads(run_python(PRELUDE + FAIL_ONE_BY_ONE, HELPERS, RECIPE, *CHECKED, cwd=tmp_path, **driver))
    assert answers == {
        name: [f"CUDA driver: {name.removesuffix('_v2')} failed with error 719: none", "", 0, 0] for name in CHECKED
    }


CALL_WITHOUT_A_CONTEXT = """
from jitnorm.call_config import prototype
from jitnorm.kernels.launch_recipe import dispatch_signature

_, _, facts, _, _ = launcher().make_dispatcher(json.dumps(dispatch_signature(prototype({"op": "rmsnorm"}))))
*_, is_capturing = facts(*tensors(1), 1e-6)
print(json.dumps([bool(is_capturing), driver.stand_in_depth()]))
"""


def test_a_thread_without_a_context_captures_nothing(driver: dict[str, str], tmp_path: Path) -> None:
    """Torch's autograd runs backward passes in such threads, where the driver says of a stream only that it fails."""
    answer = run_python(PRELUDE + CALL_WITHOUT_A_CONTEXT, HELPERS, RECIPE, cwd=tmp_path, **driver)
    assert json.loads(answer) == [False, 0]


LOSE_THE_GPU = """
kernel = launcher().load_kernel(recipe, b"code")
kernel(*tensors(0), 1e-6)
allocated = [launcher().allocate((64,), "float16", device) for device in (0, 1)]
os.environ["STAND_IN_FAILS"] = "*:999"
answers = [said(kernel, *tensors(device), 1e-6) for device in (0, 1)]
answers.append(said(launcher().allocate, (64,), "float16", 0))
answers.append(said(launcher().load_kernel, recipe, b"code"))
del allocated  # which can raise no error
del os.environ["STAND_IN_FAILS"]
answers.append(said(kernel, *tensors(1), 1e-6))
print(json.dumps([*answers, driver.stand_in_depth(), driver.stand_in_mode()]))
"""


def test_a_lost_gpu_is_an_error_of_each_call_and_no_end_of_the_process(driver: dict[str, str], tmp_path: Path) -> None:
    *lost, found_again, depth, mode = json.loads(
        run_python(PRELUDE + LOSE_THE_GPU, HELPERS, RECIPE, cwd=tmp_path, **driver)
    )
    assert [answer.partition(" failed")[2] for answer in lost] == [" with error 999: none"] * 4
    assert (found_again, depth, mode) == ("", 0, 0)


LAUNCH_FROM_THREADS = """
kernel, count, errors = launcher().load_kernel(recipe, b"code"), int(sys.argv[3]), []

def launch(number):
    device = number % 2
    given = tensors(device)
    try:
        for turn in range(count // 8):
            stream = (device + 1) * 1000 + turn % 7
            kernel(*given, 1e-6, stream)
            if turn % 100 == 0:
                launcher().load_kernel(recipe, b"code")(*given, 1e-6, stream)
        assert driver.stand_in_depth() == 0
    except BaseException as error:
        errors.append(repr(error))

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

def launch_all():
    threads = [threading.Thread(target=launch, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

launch_all()
before = resident()
launch_all()
print(json.dumps([errors, [driver.stand_in_launches(device) for device in (0, 1)], resident() - before]))
"""


def test_threads_launch_on_the_streams_of_two_devices_and_memory_stays(driver: dict[str, str], tmp_path: Path) -> None:
    errors, launches, growth = json.loads(
        run_python(PRELUDE + LAUNCH_FROM_THREADS, HELPERS, RECIPE, LAUNCHES, cwd=tmp_path, **driver)
    )
    turns = int(LAUNCHES) // 8
    assert errors == []
    assert launches == [2 * 4 * (turns + -(-turns // 100))] * 2
    assert growth < 8 << 20
