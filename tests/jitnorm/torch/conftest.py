from __future__ import annotations

import pytest
from unoptimized import unoptimized

__all__ = ["unoptimized"]


@pytest.fixture(autouse=True)
def _plain(unoptimized: None) -> None:
    """What torch makes of calls is tested here; the kernels themselves are those of other tests."""
