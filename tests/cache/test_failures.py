"""Which tiers failed, and why."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from jitnorm.cache import failed_tiers, failures


def test_tiers_that_fail_while_another_thread_lists_them_do_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    class FailingMeanwhile(tuple[object, str]):
        def __iter__(self) -> Iterator[object]:
            failures.tier_failed("another tier", "no answer")
            return super().__iter__()

    monkeypatch.setattr(failures, "_reasons", {"tier": FailingMeanwhile((object(), "refused"))})
    assert failed_tiers() == {"tier": "refused"}
