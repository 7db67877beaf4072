"""Determines how many workers this machine has cores and memory for."""

from __future__ import annotations

import os
from pathlib import Path

# Peak memory of a worker: Python, NVRTC and its largest kernels, or a C++ compiler; docs/host.md.
WORKER_BYTES = 384 << 20
_CGROUP = Path("/sys/fs/cgroup")


def worker_count(jobs: int, asked: int | None = None) -> int:
    """The number of workers to start: as requested, else as cores and free memory allow; never more than jobs.

    Args:
        jobs: how many kernels to build.
        asked: the user's choice; None for as many as fit.
    """
    fitting = min(usable_cores(), max(1, free_bytes() // WORKER_BYTES))
    return max(1, min(jobs, fitting if asked is None else asked))


def usable_cores() -> int:
    """Cores that this process may use, by its affinity and its control group's quota."""
    cores = len(os.sched_getaffinity(0))
    quota, _, period = _read(_CGROUP / "cpu.max").partition(" ")
    if quota.isdecimal() and period.strip().isdecimal():
        cores = min(cores, max(1, int(quota) // int(period)))
    return cores


def free_bytes() -> int:
    """Memory available to new processes, on the machine and in the control group."""
    available = [line for line in _read(Path("/proc/meminfo")).splitlines() if line.startswith("MemAvailable:")]
    free = int(available[0].split()[1]) * 1024 if available else 1 << 62
    limit, used = _read(_CGROUP / "memory.max").strip(), _read(_CGROUP / "memory.current").strip()
    if limit.isdecimal() and used.isdecimal():
        free = min(free, max(0, int(limit) - int(used)))
    return free


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
