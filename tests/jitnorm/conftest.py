"""Kernels that are compiled without optimization, where they are not what is tested."""

from __future__ import annotations

from pathlib import Path

import pytest
from unoptimized import unoptimized

__all__ = ["unoptimized"]

# Names, arguments and what frameworks and models make of calls are tested here; the kernels themselves are those of
# other tests.
_FOLDERS = [Path(__file__).parent / name for name in ("checkpoint", "compat", "integrations", "interop", "torch")]
# One forbids to compile, the other compares the time of calls with that of handles.
_OPTIMIZED = ("test_jax_programs.py", "test_torch_way.py")


@pytest.fixture(autouse=True)
def _plain(request: pytest.FixtureRequest) -> None:
    if request.path.name not in _OPTIMIZED and any(request.path.is_relative_to(folder) for folder in _FOLDERS):
        request.getfixturevalue("unoptimized")
