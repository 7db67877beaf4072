from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from jitnorm.kernels.config import KernelConfig

from jitnorm import dispatch
from jitnorm.ops import (
    amax,
    batched,
    general,
    norm,
    norm_fp4,
    norm_fp8,
    norm_fp8_dynamic,
    norm_mxfp8,
    norm_qk,
    quantize_fp4,
    quantize_fp8,
)

MODULES = (
    amax,
    batched,
    general,
    norm,
    norm_fp4,
    norm_fp8,
    norm_fp8_dynamic,
    norm_mxfp8,
    norm_qk,
    quantize_fp4,
    quantize_fp8,
)


@pytest.fixture
def fresh_dispatchers() -> Iterator[None]:
    """No call has been seen before."""
    for module in MODULES:
        module._dispatcher.cache_clear()
    yield
    for module in MODULES:
        module._dispatcher.cache_clear()


@pytest.fixture
def prepared(fresh_dispatchers: None, monkeypatch: pytest.MonkeyPatch) -> list[KernelConfig]:
    """The configurations of the kernels that calls have asked for, in order."""
    configs: list[KernelConfig] = []
    get_kernel = dispatch.get_kernel

    def spy(config: KernelConfig, target: Any) -> Any:
        configs.append(config)
        return get_kernel(config, target)

    monkeypatch.setattr(dispatch, "get_kernel", spy)
    return configs
