"""A kernel is compiled at most once: in a thread, in a process, on a machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from expected import assert_same_bytes, expected_rmsnorm
from inputs import make_input, make_weight
from jitnorm.cache import Artifact, Cache, Store
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.generator import generate
from jitnorm.kernels.target import Target
from python_process import run_python

import jitnorm
from jitnorm import kernel_source, manager, rmsnorm
from jitnorm.launcher import load_or_build_launcher
from jitnorm.store import user_cache
from jitnorm.toolchains import CompileError, ToolchainMissingError
from jitnorm.toolchains.cxx import Cxx

CPU = Target("cpu")
CONFIG = KernelConfig("rmsnorm", 48, "float16")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """An empty cache, and a manager that has loaded nothing."""
    store = Store(tmp_path / "cache")
    monkeypatch.setattr(manager, "user_cache", lambda: Cache(store))
    monkeypatch.setattr(manager, "_kernels", {})
    monkeypatch.setattr(manager, "_locks", {})
    return store


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The sources compiled so far."""
    sources: list[str] = []
    compile_source = Cxx.compile

    def counted(self: Cxx, source: str, target: Target = CPU) -> bytes:
        sources.append(source)
        return compile_source(self, source, target)

    monkeypatch.setattr(Cxx, "compile", counted)
    return sources


def check(kernel: Any, hidden_size: int = 48) -> None:
    x, weight = make_input("random", 3, hidden_size, "float16"), make_weight(hidden_size, "float16")
    out = np.zeros_like(x)
    kernel(x, weight, out, 1e-6)
    assert_same_bytes(out, expected_rmsnorm(x, weight))


def test_a_kernel_is_compiled_once_and_stays_in_memory(store: Store, compilations: list[str]) -> None:
    kernel = jitnorm.get_kernel(CONFIG)
    check(kernel)
    assert jitnorm.get_kernel(CONFIG) is kernel
    assert jitnorm.get_kernel(str(CONFIG), "cpu") is kernel
    assert compilations == [generate(CONFIG, CPU).text]


def test_a_stored_kernel_is_loaded_without_compiling(
    store: Store, compilations: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    jitnorm.get_kernel(CONFIG)
    monkeypatch.setattr(manager, "_kernels", {})
    check(jitnorm.get_kernel(CONFIG))
    assert len(compilations) == 1
    assert len(list(store.entries())) == 1


def test_another_configuration_is_another_entry(store: Store, compilations: list[str]) -> None:
    check(jitnorm.get_kernel(CONFIG))
    check(jitnorm.get_kernel(KernelConfig("rmsnorm", 64, "float16")), 64)
    assert len(compilations) == 2
    assert len(list(store.entries())) == 2


def test_the_manifest_says_what_was_built(store: Store) -> None:
    jitnorm.get_kernel(CONFIG)
    (entry,) = store.entries()
    assert entry.manifest["kind"] == "kernel"
    assert entry.manifest["config"] == str(CONFIG)
    assert entry.manifest["target"] == "cpu"
    assert entry.manifest["backend"] == "cxx"
    assert entry.manifest["toolchain"] == Cxx().identity()


def test_the_key_depends_on_everything_that_shapes_the_artifact(monkeypatch: pytest.MonkeyPatch) -> None:
    source, compiler = generate(CONFIG, CPU), Cxx()
    keys = {kernel_source.kernel_key(source, compiler)}
    keys.add(kernel_source.kernel_key(generate(KernelConfig("rmsnorm", 49, "float16"), CPU), compiler))
    for change in ({"identity": lambda self: "g++ 99"}, {"flags": lambda self, target: ("-O0",)}):
        with monkeypatch.context() as patch:
            for name, value in change.items():
                patch.setattr(Cxx, name, value)
            keys.add(kernel_source.kernel_key(source, compiler))
    with monkeypatch.context() as patch:
        patch.setattr(kernel_source, "LAUNCHER_ABI", -1)
        keys.add(kernel_source.kernel_key(source, compiler))
    assert len(keys) == 5
    assert kernel_source.kernel_key(source, compiler) in keys


def test_threads_that_miss_together_compile_once(store: Store, compilations: list[str]) -> None:
    kernels: list[Any] = []
    barrier = threading.Barrier(8)

    def ask() -> None:
        barrier.wait(30)
        kernels.append(jitnorm.get_kernel(CONFIG))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(compilations) == 1
    assert len(kernels) == 8
    assert all(kernel is kernels[0] for kernel in kernels)


def test_threads_may_call_one_op_at_once() -> None:
    x, weight = make_input("random", 64, 384, "float16"), make_weight(384, "float16")
    expected, wrong = expected_rmsnorm(x, weight), []

    def call() -> None:
        for _ in range(50):
            if rmsnorm(x, weight).tobytes() != expected.tobytes():
                wrong.append(1)

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong


def test_a_corrupted_payload_is_built_again(
    store: Store, compilations: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    jitnorm.get_kernel(CONFIG)
    (entry,) = store.entries()
    payload = store.layout.entry(entry.key) / "payload"
    content = bytearray(payload.read_bytes())
    content[len(content) // 2] ^= 1
    payload.chmod(0o600)
    payload.write_bytes(content)
    monkeypatch.setattr(manager, "_kernels", {})
    check(jitnorm.get_kernel(CONFIG))
    assert len(compilations) == 2
    assert store.load(entry.key) is not None


def test_a_kernel_that_cannot_be_loaded_is_an_error_and_no_crash(store: Store) -> None:
    key = kernel_source.kernel_key(generate(CONFIG, CPU), Cxx())
    store.publish(key, Artifact(b"not a library", {"recipe": kernel_source.recipe_text(CONFIG, CPU)}))
    with pytest.raises(RuntimeError, match="cannot load the kernel"):
        jitnorm.get_kernel(CONFIG)


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr("jitnorm.toolchains.zig.on_sys_path", lambda relative: None)


@pytest.mark.usefixtures("no_compiler")
def test_a_missing_compiler_is_an_error_that_says_what_to_install(store: Store) -> None:
    with pytest.raises(ToolchainMissingError, match=r"g\+\+, clang\+\+ on PATH;.*; remedy: install"):
        jitnorm.get_kernel(CONFIG)


KILLED_ONCE = """
if [ ! -e {marker} ] && [ "$1" = "-shared" ]; then touch {marker}; kill -KILL $$; fi
exec {compiler} "$@"
"""


def test_a_compiler_killed_in_the_middle_is_an_error_and_the_next_caller_builds(
    store: Store, tmp_path: Path, make_compiler: Callable[[str], Path]
) -> None:
    marker = tmp_path / "killed"
    make_compiler(KILLED_ONCE.format(marker=marker, compiler=shutil.which("g++") or shutil.which("clang++")))
    with pytest.raises(CompileError, match="cxx: compiling for cpu failed: killed by SIGKILL"):
        jitnorm.get_kernel(CONFIG)
    assert not list(store.entries())
    assert not list(store.layout.private.glob("*"))
    check(jitnorm.get_kernel(CONFIG))
    assert len(list(store.entries())) == 1


@pytest.fixture
def make_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Makes CXX a shell script."""

    def make(script: str) -> Path:
        path = tmp_path / "fake-cxx"
        path.write_text(f"#!/bin/sh\n{script}")
        path.chmod(0o755)
        monkeypatch.setenv("CXX", str(path))
        return path

    return make


RACERS = """
import multiprocessing, sys
import numpy as np, jitnorm

def race(number):
    x = np.arange(96, dtype=np.float16).reshape(2, 48)
    begun.wait(60)
    with open(f"{number}.out", "wb") as file:
        file.write(jitnorm.rmsnorm(x, np.ones(48, np.float16)).tobytes())

fork = multiprocessing.get_context("fork")
begun = fork.Barrier(16)
racers = [fork.Process(target=race, args=(number,)) for number in range(16)]
for racer in racers:
    racer.start()
for racer in racers:
    racer.join(100)
print(*{racer.exitcode for racer in racers})
"""


def test_processes_that_miss_together_compile_once(tmp_path: Path, make_compiler: Callable[[str], Path]) -> None:
    """16 of them, released at once on an empty cache, that the launcher is missing from too."""
    log, cache = tmp_path / "compilations", tmp_path / "cache"
    real = shutil.which("g++") or shutil.which("clang++")
    make_compiler(f'[ "$1" = "-shared" ] && echo $$ >> {log} && sleep 0.5\nexec {real} "$@"')
    assert run_python(RACERS, cwd=tmp_path, JITNORM_CACHE_DIR=str(cache)) == "0\n"
    x = np.arange(96, dtype=np.float16).reshape(2, 48)
    expected = expected_rmsnorm(x, np.ones(48, np.float16)).tobytes()
    assert [path.read_bytes() for path in tmp_path.glob("*.out")] == [expected] * 16
    assert len(log.read_text().splitlines()) == 2  # the launcher and the kernel
    store = Store(cache)
    assert len(list(store.entries())) == 2
    assert not list(store.layout.private.iterdir())
    assert not list(store.layout.quarantine.iterdir())


# Of a hidden size that no other test has, so that it is in no cache of theirs.
BUILDER = """
import numpy as np, jitnorm
jitnorm.rmsnorm(np.ones((2, 4711), np.float16), np.ones(4711, np.float16))
"""


def test_what_a_killed_builder_leaves_lies_in_the_cache_and_goes_with_the_next_build(
    tmp_path: Path, make_compiler: Callable[[str], Path]
) -> None:
    load_or_build_launcher(user_cache())  # it takes the longest to build, and is none of the matter
    marker, temporary, store = tmp_path / "started", tmp_path / "tmp", Store(tmp_path / "cache")
    temporary.mkdir()
    real = shutil.which("g++") or shutil.which("clang++")
    make_compiler(f'[ "$1" = "-shared" ] && mkdir {marker} 2>/dev/null && sleep 60\nexec {real} "$@"')
    environment = {
        **os.environ,
        "JITNORM_CACHE_DIR": str(store.layout.root),
        "JITNORM_READONLY_CACHE": os.environ["JITNORM_CACHE_DIR"],
        "TMPDIR": str(temporary),
    }
    with subprocess.Popen([sys.executable, "-c", BUILDER], cwd=tmp_path, env=environment) as process:
        while not marker.exists():
            assert process.poll() is None
            time.sleep(0.01)
        process.kill()
    (left,) = store.layout.private.iterdir()
    assert (left / "kernel.cpp").exists()
    begin = time.monotonic()
    run_python(BUILDER, cwd=tmp_path, **environment)
    assert time.monotonic() - begin < 30
    assert not list(store.layout.private.iterdir())
    assert not list(temporary.iterdir())
    assert len(list(store.entries())) == 1


HOT_CALL = """
import time
import torch, jitnorm
x, w = torch.ones(1, 64).half(), torch.ones(64).half()
out = torch.empty_like(x)
for _ in range(200):
    jitnorm.rmsnorm(x, w, out=out)
def batch():
    start = time.perf_counter()
    for _ in range(1000):
        jitnorm.rmsnorm(x, w, out=out)
    return (time.perf_counter() - start) * 1000
print(min(batch() for _ in range(10)))
"""


def test_a_hot_call_takes_microseconds(tmp_path: Path, record_property: Callable[[str, Any], None]) -> None:
    microseconds = float(run_python(HOT_CALL, cwd=tmp_path))
    record_property("hot call, 1x64 on the CPU, microseconds", microseconds)
    print(f"hot call, 1x64 on the CPU: {microseconds:.2f} us")
    assert microseconds < 50
