from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from forgetful import forget_dispatchers
from jitnorm.kernels.config import KernelConfig

from jitnorm import dispatch


@pytest.fixture
def fresh_dispatchers() -> Iterator[None]:
    """Forget all calls before the test."""
    forget_dispatchers()
    yield
    forget_dispatchers()


@pytest.fixture
def prepared(fresh_dispatchers: None, monkeypatch: pytest.MonkeyPatch) -> list[KernelConfig]:
    """The configurations of the kernels that calls have requested, in order."""
    configs: list[KernelConfig] = []
    get_kernel = dispatch.get_kernel

    def spy(config: KernelConfig, target: Any) -> Any:
        configs.append(config)
        return get_kernel(config, target)

    monkeypatch.setattr(dispatch, "get_kernel", spy)
    return configs


@pytest.fixture(autouse=True)
def _quickly_built(request: pytest.FixtureRequest) -> None:
    """Run unoptimized kernels on the CPU, except where a GPU's bytes are compared with them."""
    if request.node.get_closest_marker("gpu") is None:
        request.getfixturevalue("unoptimized")
