"""A fixture that records the facts of a call that determine its configuration."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from forgetful import forget_dispatchers
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.target import Target

from jitnorm.call_config import config_of_call
from jitnorm.ffi import tvm_ffi


@pytest.fixture
def facts(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[dict[str, Any], dict[str, Any]]]]:
    """The facts of each launch in a call; the kernels do nothing, and nothing is compiled."""
    found: list[tuple[dict[str, Any], dict[str, Any]]] = []

    def record(options: dict[str, Any], target: Target, **of_call: Any) -> KernelConfig:
        found.append((options, of_call))
        return config_of_call(options, target, **of_call)

    forget_dispatchers()
    nothing = tvm_ffi().convert(lambda *_: None)
    monkeypatch.setattr("jitnorm.dispatch.config_of_call", record)
    monkeypatch.setattr("jitnorm.dispatch.get_kernel", lambda *_: nothing)
    yield found
    forget_dispatchers()
