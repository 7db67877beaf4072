"""The running total: additions count immediately, and a new measurement forgets none of them."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from jitnorm.cache import ledger
from jitnorm.cache.layout import Layout
from jitnorm.cache.ledger import Recount, add


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "cache")


def begin(layout: Layout, space: int, *, is_exact: bool = True) -> None:
    with Recount(layout) as recount:
        recount.finish(space, is_exact=is_exact)


def total(layout: Layout) -> int | None:
    found = add(layout, 0)
    return None if found is None else found.space


def test_nobody_knows_the_total_before_it_is_measured(layout: Layout) -> None:
    assert add(layout, 100) is None
    begin(layout, 5000)
    assert total(layout) == 5000, "what was added before the measurement is part of it"


def test_what_is_added_and_removed_counts_at_once(layout: Layout) -> None:
    begin(layout, 5000)
    assert [found.space for change in (+100, -300, 0) if (found := add(layout, change))] == [5100, 4800, 4800]


def test_what_is_added_while_the_cache_is_measured_counts_on_top(layout: Layout) -> None:
    begin(layout, 5000)
    with Recount(layout) as recount:
        add(layout, +100)
        add(layout, -50)
        recount.finish(6000, is_exact=True)
    assert total(layout) == 6100, "rather too high than too low"


def test_nothing_that_processes_add_at_once_is_lost(layout: Layout) -> None:
    begin(layout, 0)
    program = f"""
from pathlib import Path
from jitnorm.cache.layout import Layout
from jitnorm.cache.ledger import add
for _ in range(300):
    add(Layout(Path({str(layout.root)!r})), 7)
"""
    adders = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(4)]
    assert [adder.wait(timeout=60) for adder in adders] == [0] * 4
    assert total(layout) == 4 * 300 * 7


def test_what_is_added_as_two_recounts_end_at_once_is_not_lost(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    begin(layout, 5000)
    with Recount(layout) as first, Recount(layout) as second:
        found = ledger.is_at

        def end_another_first(descriptor: int, path: Path) -> bool:
            monkeypatch.setattr(ledger, "is_at", found)
            is_there = found(descriptor, path)
            first.finish(6000, is_exact=True)
            add(layout, +100)
            return is_there

        monkeypatch.setattr(ledger, "is_at", end_another_first)
        second.finish(6000, is_exact=True)
    assert total(layout) == 6100


@pytest.mark.parametrize("is_before", [True, False])
def test_what_is_added_as_the_ledger_is_replaced_is_not_lost(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, is_before: bool
) -> None:
    begin(layout, 5000)
    rename = Path.rename

    def rename_and_add(path: Path, target: Path) -> Path:
        if is_before:
            add(layout, +100)
        renamed = rename(path, target)
        if not is_before:
            add(layout, +100)
        return renamed

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", rename_and_add)
        begin(layout, 6000)
    assert total(layout) == 6100


@pytest.mark.parametrize("content", ["", "+100\n", "lots of\n", "5000\n+100\n", "5000 0 0\n", "5000 1\n+1x\n"])
def test_a_damaged_ledger_knows_nothing_until_the_next_measurement(layout: Layout, content: str) -> None:
    layout.version.mkdir(parents=True)
    layout.ledger.write_text(content)
    assert add(layout, 0) is None
    begin(layout, 5000)
    assert total(layout) == 5000


def test_a_ledger_is_due_when_it_is_old_long_or_an_estimate(layout: Layout) -> None:
    def is_due() -> bool:
        found = add(layout, 0)
        assert found is not None
        return found.is_due

    begin(layout, 5000)
    assert not is_due()
    layout.ledger.write_text(f"5000 {time.time() - 2 * 86400:.0f}\n")
    assert is_due()
    layout.ledger.write_text(f"5000 {time.time() + 2 * 86400:.0f}\n")
    assert is_due(), "a clock was wrong"
    begin(layout, 5000, is_exact=False)
    assert is_due()
    layout.ledger.write_text(f"5000 {time.time():.0f}\n" + "+1\n" * 30_000)
    assert is_due()


def test_a_cache_that_was_deleted_begins_without_a_total(layout: Layout) -> None:
    begin(layout, 5000)
    with Recount(layout) as recount:
        shutil.rmtree(layout.root)
        recount.finish(5000, is_exact=True)
    assert total(layout) is None


def test_where_nothing_can_be_written_there_is_no_total_and_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    layout = Layout(tmp_path / "file")
    begin(layout, 5000)
    assert total(layout) is None
