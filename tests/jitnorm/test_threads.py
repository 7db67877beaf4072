"""Threads that make first calls at once, with an interpreter lock or without, get the bits of the reference."""

from __future__ import annotations

import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import numpy as np
import pytest
from python_process import run_python

import jitnorm
from jitnorm.reference import rmsnorm_f32

THREADS = 8


def test_first_calls_of_many_threads_give_the_same_bits() -> None:
    barrier = Barrier(THREADS)
    generator = np.random.default_rng(0)
    inputs = [generator.standard_normal((3, size)).astype(np.float32) for size in (1237, 71)]  # of no other test
    weights = [np.ones(x.shape[1], np.float32) for x in inputs]

    def call(number: int) -> list[set[bytes]]:
        found: list[set[bytes]] = [set(), set()]
        barrier.wait()
        for turn in range(number, number + 40):
            which = turn % 2
            found[which].add(jitnorm.rmsnorm(inputs[which], weights[which]).tobytes())
        return found

    with ThreadPoolExecutor(THREADS) as pool:
        results = list(pool.map(call, range(THREADS)))
    expected = [{rmsnorm_f32(x, w).tobytes()} for x, w in zip(inputs, weights, strict=True)]
    assert results == [expected] * THREADS


FIRST_CALLS = """
import sys, threading, time
import torch, jitnorm
from torch.utils import _pytree

class Slow:
    def find_spec(self, name, path, target=None):
        if name == "jitnorm.interop.torch":
            time.sleep(0.3)

def register_slowly(*arguments, **options):
    register(*arguments, **options)
    time.sleep(0.3)

def call():
    try:
        barrier.wait()
        jitnorm.rmsnorm(x, weight)
        jitnorm.quantize(x, spec=jitnorm.FP8_TOKEN)
    except Exception as error:
        print(error)

sys.meta_path.insert(0, Slow())
register, _pytree.register_pytree_node = _pytree.register_pytree_node, register_slowly
x, weight = torch.ones(2, 64), torch.nn.Parameter(torch.ones(64), requires_grad=False)
barrier = threading.Barrier(4)
threads = [threading.Thread(target=call) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
jitnorm.rmsnorm(x, weight)
"""


def test_threads_that_first_meet_a_framework_together_agree_on_it(tmp_path: Path) -> None:
    assert run_python(FIRST_CALLS, cwd=tmp_path) == ""


@pytest.mark.skipif(not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this interpreter has a lock")
def test_no_import_turns_the_lock_of_a_free_threaded_interpreter_on() -> None:
    jitnorm.rmsnorm(np.ones((1, 8), np.float32), np.ones(8, np.float32))
    assert not sys._is_gil_enabled()
