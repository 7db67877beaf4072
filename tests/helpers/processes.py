"""What processes do, as the kernel tells it, and waiting for it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path


def is_running(pid: int) -> bool:
    """Whether a process exists and has not ended; one that nobody has waited for counts as ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def is_tied(pid: int) -> bool:
    """Whether a lifeline kills a process with its starter: one of its descriptors sends signals."""
    return any(_flags(path) & os.O_ASYNC for path in Path(f"/proc/{pid}/fdinfo").iterdir())


def _flags(descriptor: Path) -> int:
    try:
        return int(descriptor.read_text().split("flags:")[1].split()[0], 8)
    except FileNotFoundError:  # closed meanwhile
        return 0


def wait_until(condition: Callable[[], bool], seconds: float = 30) -> None:
    """Wait for a condition; fail after a time that suffices on a busy machine, too."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not so after {seconds:g} s"
        time.sleep(0.01)
