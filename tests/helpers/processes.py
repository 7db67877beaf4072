"""The state of other processes, as /proc shows it, and waiting for it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path


def is_running(pid: int) -> bool:
    """Whether a process exists and has not ended; a zombie has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def is_tied(pid: int) -> bool:
    """Whether a lifeline would kill a process with its starter: one of its descriptors sends signals."""
    return any(_flags(path) & os.O_ASYNC for path in Path(f"/proc/{pid}/fdinfo").iterdir())


def _flags(descriptor: Path) -> int:
    try:
        return int(descriptor.read_text().split("flags:")[1].split()[0], 8)
    except FileNotFoundError:  # closed meanwhile
        return 0


def wait_until(condition: Callable[[], bool], seconds: float = 30) -> None:
    """Wait until a condition holds; fail if it does not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"still not true after {seconds:g} s"
        time.sleep(0.01)
