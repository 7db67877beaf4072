"""Graphs, streams, threads, devices: right bytes whatever else the process does, and an error where the GPU is gone."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from expected import assert_same_bytes, expected_rmsnorm
from frameworks import to_torch_cuda
from inputs import make_input, make_weight
from jitnorm.cache.space import prune

import jitnorm
from jitnorm.store import user_store

pytestmark = pytest.mark.gpu

ROWS, SIZE = 64, 1024
LAUNCHES = int(os.environ.get("JITNORM_TEST_LAUNCHES", "100000"))
X, WEIGHT = make_input("real", ROWS, SIZE, "bfloat16"), make_weight(SIZE, "bfloat16")


def tensors(device: str = "cuda:0") -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Input, weight and an output that no call has written."""
    x, weight = to_torch_cuda(X).to(device), to_torch_cuda(WEIGHT).to(device)
    return x, weight, torch.zeros_like(x)


def in_threads(work: Callable[[int], None], count: int) -> None:
    with ThreadPoolExecutor(count) as pool:
        list(pool.map(work, range(count)))


def test_a_graph_is_captured_while_other_threads_build_load_and_prune() -> None:
    x, weight, out = tensors()
    jitnorm.rmsnorm(x, weight, out=out)  # the kernel of the graph
    out.zero_()
    sizes = (1040, 1056, 1072)
    others = [
        (to_torch_cuda(make_input("real", 2, n, "bfloat16")), to_torch_cuda(make_weight(n, "bfloat16"))) for n in sizes
    ]
    outputs = [torch.empty_like(other) for other, _ in others]
    torch.cuda.synchronize()
    ended, errors = threading.Event(), []
    graph, stream, another = torch.cuda.CUDAGraph(), torch.cuda.Stream(), torch.cuda.Stream()

    def disturb() -> None:
        try:
            torch.cuda.set_stream(another)  # of this thread
            for (other, its_weight), its_out in zip(others, outputs, strict=True):
                jitnorm.rmsnorm(other, its_weight, out=its_out)  # a miss each
                prune(user_store(), 1 << 40)
        except BaseException as error:
            errors.append(error)
        finally:
            ended.set()

    with torch.cuda.stream(stream):
        graph.capture_begin(capture_error_mode="thread_local")
        thread = threading.Thread(target=disturb)
        thread.start()
        calls = 0
        while not ended.is_set() and calls < 1000:
            jitnorm.rmsnorm(x, weight, out=out)
            calls += 1
        thread.join(120)
        graph.capture_end()
    assert errors == []
    graph.replay()
    torch.cuda.synchronize()
    assert_same_bytes(out, expected_rmsnorm(X, WEIGHT))
    for n, its_out in zip(sizes, outputs, strict=True):
        assert_same_bytes(its_out, expected_rmsnorm(make_input("real", 2, n, "bfloat16"), make_weight(n, "bfloat16")))


def test_threads_launch_on_streams_of_their_own() -> None:
    expected = expected_rmsnorm(X, WEIGHT)

    def work(number: int) -> None:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            x, weight, out = tensors()
            for turn in range(500):
                if turn % 100 == 0:
                    out.zero_()
                jitnorm.rmsnorm(x, weight, out=out)
        stream.synchronize()
        assert_same_bytes(out, expected)

    in_threads(work, 8)


def test_many_launches_take_no_memory() -> None:
    """A million by JITNORM_TEST_LAUNCHES=1000000."""
    x, weight, out = tensors()

    def launch(count: int) -> None:
        for turn in range(count):
            jitnorm.rmsnorm(x, weight, out=out)
            if turn % 1000 == 0:
                torch.cuda.synchronize()

    def resident() -> int:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")

    launch(LAUNCHES // 10)
    before, allocated = resident(), torch.cuda.memory_allocated()
    launch(LAUNCHES)
    assert resident() - before < 8 << 20
    assert torch.cuda.memory_allocated() == allocated
    torch.cuda.synchronize()
    assert_same_bytes(out, expected_rmsnorm(X, WEIGHT))


AFTER_THE_CONTEXT = """
import ctypes, sys
import torch
import jitnorm

x = torch.ones(4, 64, dtype=torch.float16, device="cuda")
weight, out = torch.ones(64, dtype=torch.float16, device="cuda"), torch.empty_like(x)
jitnorm.rmsnorm(x, weight, out=out)
torch.cuda.synchronize()
driver = ctypes.CDLL("libcuda.so.1")
assert driver.cuDevicePrimaryCtxReset_v2(0) == 0
try:
    jitnorm.rmsnorm(x, weight, out=out)
except RuntimeError as error:
    print("error:", error, flush=True)
else:
    print("launched", flush=True)
import os
os._exit(0)  # torch's own teardown is not the matter
"""


def test_a_context_that_was_destroyed_is_an_error_and_no_hang() -> None:
    done = subprocess.run([sys.executable, "-c", AFTER_THE_CONTEXT], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("error: CUDA driver: ")


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_threads_call_on_two_gpus_whichever_is_current() -> None:
    expected = expected_rmsnorm(X, WEIGHT)

    def work(number: int) -> None:
        device = f"cuda:{number % 2}"
        x, weight, out = tensors(device)
        torch.cuda.synchronize(device)
        with torch.cuda.device(number // 2 % 2):  # another than the tensors', half of the time
            for _ in range(200):
                jitnorm.rmsnorm(x, weight, out=out)
        torch.cuda.synchronize(device)
        assert_same_bytes(out, expected)

    in_threads(work, 8)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_tensors_of_two_gpus_are_refused_by_name() -> None:
    x, weight, out = tensors("cuda:0")
    with pytest.raises(ValueError, match="weight"):
        jitnorm.rmsnorm(x, weight.to("cuda:1"), out=out)
