from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from call_facts import facts
from jitnorm.cache import Cache

from jitnorm.store import user_cache, user_store

__all__ = ["facts"]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cache]:
    """An empty user's cache, for this process and those that it starts."""
    monkeypatch.setenv("JITNORM_CACHE_DIR", str(tmp_path / "cache"))
    for opened in (user_store, user_cache):
        opened.cache_clear()
    yield user_cache()
    for opened in (user_store, user_cache):
        opened.cache_clear()
