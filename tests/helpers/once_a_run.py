"""Expensive fixtures that are made once per run, by the first worker of pytest-xdist that needs them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock

_TIME_LIMIT = 280.0


def once_a_run(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """The folder filled by ``make``.

    Args:
        factory: the run's.
        name: of the folder, where all workers find it.
        make: fills an empty folder, which is then renamed; so it must not hold its own name.
    """
    shared = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    folder, unfinished = shared / name, shared / f"{name}.unfinished"
    with FileLock(shared / f"{name}.lock", timeout=_TIME_LIMIT):
        if not folder.exists():
            unfinished.mkdir()
            make(unfinished)
            unfinished.rename(folder)
    return folder
