"""With JITNORM_TIERED=1, a call of a new hidden size does not wait for its kernel, and no byte depends on it."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from expected import assert_same_bytes, expected_rmsnorm
from inputs import make_input, make_weight
from jitnorm.cache import Artifact, Cache, Store
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.generic import generic_config
from jitnorm.kernels.quant_spec import NVFP4
from jitnorm.kernels.target import Target
from python_process import run_python
from stopping_compiler import BOUND, Compiler

import jitnorm
from jitnorm import background, manager, rmsnorm, tiered
from jitnorm.background import BuildQueue, wait_for_builds
from jitnorm.ffi import tvm_ffi
from jitnorm.toolchains.cxx import Cxx

CPU = Target("cpu")
FIRST, NEW = 64, 96


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Compiler:
    return Compiler(Cxx, monkeypatch)


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The hidden size of the kernel of each call, "any" of a generic one."""
    sizes: list[str] = []
    bind = manager._bind

    def counted(artifact: Artifact) -> Any:
        kernel = bind(artifact)
        size = str(KernelConfig.parse(artifact.manifest["config"])).partition("hidden_size=")[2].partition(",")[0]

        def call(*arguments: Any) -> None:
            sizes.append(size)
            kernel(*arguments)

        return tvm_ffi().convert(call)

    monkeypatch.setattr(manager, "_bind", counted)
    return sizes


@pytest.fixture(autouse=True)
def fresh(
    tmp_path: Path, fresh_dispatchers: None, compiler: Compiler, used: list[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Tiered mode, with an empty cache and nothing in memory."""
    store, queue = Store(tmp_path / "cache"), BuildQueue()
    monkeypatch.setattr(manager, "user_cache", lambda: Cache(store))
    monkeypatch.setattr(manager, "_kernels", {})
    monkeypatch.setattr(manager, "_locks", {})
    monkeypatch.setattr(background, "builds", queue)
    monkeypatch.setattr(tiered, "builds", queue)
    monkeypatch.setenv("JITNORM_TIERED", "1")
    yield
    compiler.go_on.set()
    assert queue.wait(BOUND)


def check(hidden_size: int, rows: int = 5) -> None:
    x, weight = make_input("random", rows, hidden_size, "float16"), make_weight(hidden_size, "float16")
    assert_same_bytes(rmsnorm(x, weight), expected_rmsnorm(x, weight))


def test_the_first_kernel_ever_is_built_at_once_and_the_generic_one_after_it(
    compiler: Compiler, used: list[str]
) -> None:
    check(FIRST)
    assert wait_for_builds(BOUND)
    assert compiler.compiled == [str(FIRST), "any"]
    assert used == [str(FIRST)]


def test_a_call_of_a_new_hidden_size_returns_before_its_kernel_is_built(compiler: Compiler, used: list[str]) -> None:
    check(FIRST)
    assert wait_for_builds(BOUND)
    compiler.stops_at = {str(NEW)}
    check(NEW)
    check(NEW)
    assert not wait_for_builds(0)
    assert used == [str(FIRST), "any", "any"]
    compiler.go_on.set()
    assert wait_for_builds(BOUND)
    check(NEW)
    check(NEW, rows=6)
    assert used[3:] == [str(NEW), str(NEW)]
    assert compiler.compiled == [str(FIRST), "any", str(NEW)]


def test_no_byte_changes_while_the_kernel_does(compiler: Compiler, used: list[str]) -> None:
    check(FIRST)
    assert wait_for_builds(BOUND)
    compiler.stops_at = {str(NEW)}
    x, weight = make_input("random", 40, NEW, "float16"), make_weight(NEW, "float16")
    expected, wrong = expected_rmsnorm(x, weight).tobytes(), []
    calls, has_ended = [0] * 8, threading.Event()

    def call(thread: int) -> None:
        out = np.empty_like(x)
        while not has_ended.is_set():
            out.view(np.uint16)[...] = 0xA5A5
            rmsnorm(x, weight, out=out)
            calls[thread] += 1
            if out.tobytes() != expected:
                wrong.append(thread)

    def wait_for_calls() -> None:
        """Each thread calls some more."""
        before = list(calls)
        waiting = threading.Event()
        for _ in range(3000):
            if all(now > then + 20 for now, then in zip(calls, before, strict=True)):
                return
            waiting.wait(0.01)
        pytest.fail("the threads do not call")

    threads = [threading.Thread(target=call, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    try:
        wait_for_calls()
        assert set(used[1:]) == {"any"}
        compiler.go_on.set()
        assert wait_for_builds(BOUND)
        wait_for_calls()  # a thread's first may have been on its way
        seen = len(used)
        wait_for_calls()
        assert set(used[seen:]) == {str(NEW)}
    finally:
        has_ended.set()
        for thread in threads:
            thread.join(BOUND)
    assert not wrong
    assert compiler.compiled.count(str(NEW)) == 1


def test_a_failed_build_is_logged_once_and_the_generic_kernel_stays(
    compiler: Compiler, used: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    check(FIRST)
    assert wait_for_builds(BOUND)
    compiler.fails_at = {str(NEW)}
    with caplog.at_level(logging.WARNING, "jitnorm.background"):
        check(NEW)
        assert wait_for_builds(BOUND)
        rmsnorm.__globals__["_dispatcher"].cache_clear()
        check(NEW)
        assert wait_for_builds(BOUND)
    assert used == [str(FIRST), "any", "any"]
    assert compiler.compiled.count(str(NEW)) == 1
    assert [record.getMessage() for record in caplog.records] == [
        f"the kernel of {KernelConfig('rmsnorm', NEW, 'float16')} for cpu cannot be built in the background, and will "
        f"not be tried again by this process; calls go on without it: no kernel of {NEW} today"
    ]


def test_a_generic_kernel_in_the_cache_serves_the_first_call_of_a_process(
    compiler: Compiler, used: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    check(FIRST)
    assert wait_for_builds(BOUND)
    monkeypatch.setattr(manager, "_kernels", {})
    compiler.stops_at = {str(NEW)}
    check(NEW)
    assert used[1:] == ["any"]


def test_a_kernel_in_the_cache_is_preferred(
    compiler: Compiler, used: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for size in (FIRST, NEW):
        check(size)
        assert wait_for_builds(BOUND)
    monkeypatch.setattr(manager, "_kernels", {})
    rmsnorm.__globals__["_dispatcher"].cache_clear()
    del used[:]
    check(NEW)
    assert used == [str(NEW)]
    assert compiler.compiled == [str(FIRST), "any", str(NEW)]


def test_what_has_no_generic_kernel_is_built_as_usual(compiler: Compiler, used: list[str]) -> None:
    x = make_input("random", 4, 2 * NEW, "float16")
    jitnorm.silu_and_mul_quantize(x, spec=NVFP4)
    assert used == [str(NEW)]
    assert compiler.compiled == [str(NEW)]


def test_out_of_tiered_mode_kernels_are_built_as_usual(
    compiler: Compiler, used: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JITNORM_TIERED", "0")
    check(FIRST)
    check(NEW)
    assert used == compiler.compiled == [str(FIRST), str(NEW)]


def test_another_value_of_the_variable_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JITNORM_TIERED", "yes")
    with pytest.raises(ValueError, match="JITNORM_TIERED: is 'yes'; use 0 or 1"):
        check(FIRST)


def test_a_call_that_is_refused_starts_no_build(compiler: Compiler) -> None:
    with pytest.raises(ValueError, match="weight: shape is"):
        rmsnorm(make_input("random", 2, NEW, "float16"), make_weight(FIRST, "float16"))
    assert compiler.compiled == []


def test_a_full_queue_builds_in_the_foreground(
    compiler: Compiler, used: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    check(FIRST)
    assert wait_for_builds(BOUND)
    monkeypatch.setattr(background, "_MOST_WAITING", 0)
    check(NEW)
    assert used == [str(FIRST), str(NEW)]


def test_where_compiling_is_denied_the_generic_kernel_serves_and_the_miss_is_recorded(
    compiler: Compiler, used: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JITNORM_MISS_RECORD", str(tmp_path / "misses"))
    monkeypatch.setenv("JITNORM_JIT", "deny")
    with pytest.raises(jitnorm.KernelNotWarmError, match=f"hidden_size={NEW}"):
        check(NEW)
    monkeypatch.setenv("JITNORM_JIT", "auto")
    check(FIRST)
    assert wait_for_builds(BOUND)
    monkeypatch.setenv("JITNORM_JIT", "deny")
    for size in (NEW, FIRST, 48):
        check(size)
    assert wait_for_builds(0)
    assert used == [str(FIRST), "any", str(FIRST), "any"]
    assert compiler.compiled == [str(FIRST), "any"]
    recorded = [json.loads(line)["config"] for line in (tmp_path / "misses").read_text().splitlines()]
    assert recorded == [str(KernelConfig("rmsnorm", size, "float16")) for size in (NEW, 48)]


def test_more_rows_than_a_launch_has_blocks_are_not_for_the_generic_kernel(compiler: Compiler) -> None:
    check(FIRST)
    assert wait_for_builds(BOUND)
    learned: list[Any] = []
    place = tiered.Place(lambda kernel: learned.append(kernel) or 0, lambda number, kernel: None, None)  # type: ignore[func-returns-value]
    new = KernelConfig("rmsnorm", NEW, "float16")
    tiered.learn_tiered(new, CPU, (1 << 30) + 1, place)
    assert learned == [manager.loaded_kernel(new, CPU)]
    assert compiler.compiled == [str(FIRST), "any", str(NEW)]


def capture(config: KernelConfig) -> Any:
    """What would run a call during the capture of a graph."""
    from jitnorm.dispatch import _captured_kernel

    return _captured_kernel(config, CPU, rows=5)


def test_during_a_capture_the_generic_kernel_serves_if_it_is_loaded(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = KernelConfig("rmsnorm", NEW, "float16")
    check(FIRST)
    assert wait_for_builds(BOUND)
    generic = generic_config(new)
    assert generic is not None
    assert capture(new) is manager.loaded_kernel(generic, CPU)
    monkeypatch.setattr(manager, "_kernels", {})
    with pytest.raises(jitnorm.KernelNotReadyError, match="is not loaded, and loading it would break"):
        capture(new)
    assert compiler.compiled == [str(FIRST), "any"]


def test_waiting_is_bounded(compiler: Compiler) -> None:
    check(FIRST)
    assert wait_for_builds(BOUND)
    compiler.stops_at = {str(NEW)}
    check(NEW)
    assert not wait_for_builds(0.01)
    for timeout in (-1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match=r"timeout: is .*; expected a finite number of seconds, 0 or more"):
            wait_for_builds(timeout)


def test_two_threads_build_and_a_build_is_shared() -> None:
    begun, go_on, kernels = [threading.Event() for _ in range(3)], threading.Event(), []
    queue = BuildQueue()

    def build(config: KernelConfig, target: Target) -> str:
        begun[config.hidden_size - 1].set()
        assert go_on.wait(BOUND)
        return str(config.hidden_size)

    submit: Callable[[int], bool] = lambda size: queue.submit(KernelConfig("rmsnorm", size), CPU, kernels.append)  # noqa: E731
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(background, "build_kernel", build)
        assert all(submit(size) for size in (1, 2, 3, 3, 1))
        assert begun[0].wait(BOUND)
        assert begun[1].wait(BOUND)
        assert not begun[2].wait(0.05)
        go_on.set()
        assert queue.wait(BOUND)
    assert sorted(kernels) == ["1", "1", "2", "3", "3"]


def test_a_queue_that_is_closed_or_has_no_threads_takes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    config, closed = KernelConfig("rmsnorm", 1), BuildQueue()
    closed.close()
    assert not closed.submit(config, CPU, print)

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    queue = BuildQueue()
    assert not queue.submit(config, CPU, print)
    assert queue.wait(0)


EXIT = """
import os, sys, threading, time
from jitnorm import background
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.target import Target
begun = threading.Event()
def build(config, target):
    begun.set()
    time.sleep(3600)
background.build_kernel = build
for size in range(1, 9):
    background.builds.submit(KernelConfig("rmsnorm", size), Target("cpu"), print)
assert begun.wait(60)
if sys.argv[1] == "fork":
    child = os.fork()
    if child:
        assert os.waitpid(child, 0)[1] == 0
    else:
        assert background.wait_for_builds(0)
        background.build_kernel = lambda config, target: "built"
        ready = []
        background.builds.submit(KernelConfig("rmsnorm", 1), Target("cpu"), ready.append)
        assert background.wait_for_builds(60)
        os._exit(ready != ["built"])
print("ends")
"""


@pytest.mark.parametrize("mode", ["exit", "fork"])
def test_neither_exit_nor_a_fork_waits_for_builds(mode: str, tmp_path: Path) -> None:
    assert run_python(EXIT, mode, cwd=tmp_path) == "ends\n"
