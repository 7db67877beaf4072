from __future__ import annotations

from pathlib import Path

import pytest
from jitnorm.cache import CacheError, Store
from jitnorm.cache.budget import byte_budget, parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [("1", 1), ("1000", 1000), ("2K", 2048), ("2k", 2048), ("3M", 3 << 20), ("1G", 1 << 30), ("1T", 1 << 40)],
)
def test_sizes_are_bytes_with_or_without_a_suffix(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["0", "0K", "none", "None"])
def test_zero_and_none_are_no_limit(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JITNORM_CACHE_MAX_BYTES", text)
    assert byte_budget() is None


def test_the_budget_is_4_gib_unless_said_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Store(tmp_path).max_bytes == 4 << 30
    monkeypatch.setenv("JITNORM_CACHE_MAX_BYTES", "10M")
    assert Store(tmp_path).max_bytes == 10 << 20


@pytest.mark.parametrize("text", ["-1", "1.5G", "1 G", "1GB", "lots", "inf", "١", "9" * 30])
def test_what_is_not_a_size_is_refused(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JITNORM_CACHE_MAX_BYTES", text)
    with pytest.raises(CacheError, match=r"JITNORM_CACHE_MAX_BYTES is .*; allowed are bytes.*: unset it for 4G"):
        Store(tmp_path)
