"""Kernels that are compiled without optimization, where they are not what is tested."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.testing
from typer.main import get_command
from unoptimized import unoptimized

from jitnorm.ops import run as run_module

__all__ = ["unoptimized"]

# Else each call of a command builds the parser of all commands, which takes 50 ms.
typer.testing._get_command = cache(get_command)

# Names, arguments, protocols and what libraries make of calls are tested here; the kernels themselves are those of
# other tests: of ranks, those that are processes and those of scripts/comm.
_PLACES = [
    Path(__file__).parent / name
    for name in (
        *("checkpoint", "comm", "compat", "integrations", "torch"),
        *("test_quantized.py", "test_scaled_mm.py"),
    )
]


@pytest.fixture(autouse=True)
def _plain(request: pytest.FixtureRequest) -> None:
    if any(request.path.is_relative_to(place) for place in _PLACES):
        request.getfixturevalue("unoptimized")


@pytest.fixture
def slow_calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ops of calls that took the slow path."""
    ops: list[str] = []
    usual = run_module._run

    def run(dispatcher: Any, named: Any, stream: Any) -> Any:
        ops.append(dispatcher.op.name)
        return usual(dispatcher, named, stream)

    monkeypatch.setattr(run_module, "_run", run)
    return ops
