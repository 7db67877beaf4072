"""Kernels that are compiled without optimization, where they are not what is tested."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
import typer.testing
from typer.main import get_command
from unoptimized import unoptimized

__all__ = ["unoptimized"]

# Else each call of a command builds the parser of all commands, which takes 50 ms.
typer.testing._get_command = cache(get_command)

# Names, arguments and what torch makes of calls are tested here; the kernels themselves are those of other tests.
_FOLDERS = [Path(__file__).parent / name for name in ("checkpoint", "compat", "torch")]


@pytest.fixture(autouse=True)
def _plain(request: pytest.FixtureRequest) -> None:
    if any(request.path.is_relative_to(folder) for folder in _FOLDERS):
        request.getfixturevalue("unoptimized")
