"""Memory of a GPU: its libraries are imported by one thread at a time, as cuda-core cannot be by several."""

from __future__ import annotations

import builtins
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from jitnorm.memory import CudaMemory


def test_threads_take_turns_at_importing_cuda_core(monkeypatch: pytest.MonkeyPatch) -> None:
    threads, inside, most, real = 4, [0], [0], builtins.__import__
    everybody = threading.Barrier(threads)

    def slow(name: str, *args: Any, **options: Any) -> Any:
        if not name.startswith("cuda."):
            return real(name, *args, **options)
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        threading.Event().wait(0.02)
        inside[0] -= 1
        return SimpleNamespace(driver=None, Device=lambda device: SimpleNamespace(set_current=lambda: None))

    def make(device: int) -> CudaMemory:
        everybody.wait(timeout=10)
        return CudaMemory(device)

    monkeypatch.setattr(builtins, "__import__", slow)
    with ThreadPoolExecutor(threads) as pool:
        assert len(list(pool.map(make, [0] * threads))) == threads
    assert most == [1]
