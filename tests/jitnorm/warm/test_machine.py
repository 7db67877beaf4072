"""The number of workers depends on cores and memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from jitnorm.warm import machine


@pytest.mark.parametrize(
    ("jobs", "asked", "cores", "free", "count"),
    [
        (100, None, 8, 100 * machine.WORKER_BYTES, 8),
        (100, None, 8, 3 * machine.WORKER_BYTES, 3),
        (100, None, 8, 0, 1),
        (2, None, 8, 100 * machine.WORKER_BYTES, 2),
        (100, 20, 8, machine.WORKER_BYTES, 20),
        (3, 20, 8, machine.WORKER_BYTES, 3),
    ],
)
def test_the_number_of_workers(
    jobs: int, asked: int | None, cores: int, free: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "usable_cores", lambda: cores)
    monkeypatch.setattr(machine, "free_bytes", lambda: free)
    assert machine.worker_count(jobs, asked) == count


def test_a_control_group_bounds_cores_and_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in {"cpu.max": "150000 100000\n", "memory.max": "5000\n", "memory.current": "2000\n"}.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(machine, "_CGROUP", tmp_path)
    assert machine.usable_cores() == 1
    assert machine.free_bytes() == 3000


def test_without_a_control_group_the_machine_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_CGROUP", tmp_path)
    assert machine.usable_cores() >= 1
    assert machine.free_bytes() > 1 << 20
