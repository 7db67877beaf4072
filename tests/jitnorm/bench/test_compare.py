"""The comparison finds exactly what became slower."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bench_results import SETUP, measured, results, slowed
from hypothesis import given
from hypothesis import strategies as st

from jitnorm.bench.compare import Pair, confirmed, pairs, regressions
from jitnorm.bench.results import Results, Row


@given(results(("jitnorm",)), st.data(), st.sampled_from((0.0, 0.05, 0.2)))
def test_what_is_slowed_beyond_the_tolerance_is_found_and_nothing_else(
    before: Results, data: st.DataObject, tolerance: float
) -> None:
    just = 1 / (1 - tolerance)
    factors = [data.draw(st.sampled_from((0.5, 1.0, just * 0.999, just * 1.001, 3.0))) for _ in before.rows]
    after = replace(before, rows=tuple(slowed(row, factor) for row, factor in zip(before.rows, factors, strict=True)))
    found = regressions(pairs(before, after), tolerance)
    wanted = {row for row, factor in zip(after.rows, factors, strict=True) if factor > just}
    assert {pair.after for pair in found} == wanted
    assert [pair.change for pair in found] == sorted(pair.change for pair in found)


@given(results(("jitnorm",)), st.floats(0.25, 4))
def test_a_machine_that_is_slower_throughout_is_no_regression(before: Results, factor: float) -> None:
    rows = (replace(row, time=row.time * factor, copy=row.copy * factor) for row in before.rows)
    assert regressions(pairs(before, replace(before, rows=tuple(rows))), 0.05) == []


def test_what_is_as_fast_once_when_measured_again_is_no_regression() -> None:
    before = measured("amax", "jitnorm", 1024, 4096, 10.0, 10.0)
    lucky, slow = (Pair(before, replace(slowed(before, 1.2), hidden_size=size)) for size in (4096, 8192))
    found = {4096: iter((11.8, 10.1)), 8192: iter((12.5, 11.9))}
    seen = []

    def again(row: Row) -> Row:
        seen.append(row.hidden_size)
        return replace(row, time=next(found[row.hidden_size]))

    (left,) = confirmed([lucky, slow], 0.05, again)
    assert (left.after.hidden_size, left.after.time) == (8192, 11.9)
    assert sorted(seen) == [4096, 4096, 8192, 8192]
    assert confirmed([], 0.05, again) == []


def test_only_what_jitnorm_has_in_both_runs_counts() -> None:
    before = Results(SETUP, (measured("amax", "jitnorm", 1, 64, 1.0), measured("amax", "quack", 2, 64, 1.0),
                             measured("amax", "jitnorm", 3, 64, 1.0)))  # fmt: skip
    after = Results(SETUP, (measured("amax", "jitnorm", 1, 64, 1.0), measured("amax", "quack", 2, 64, 9.0),
                            measured("amax", "jitnorm", 4, 64, 9.0)))  # fmt: skip
    assert [pair.after.shape for pair in pairs(before, after)] == [(1, 64)]
    assert regressions(pairs(before, after), 0.05) == []


def test_with_nothing_in_common_there_is_nothing_to_say() -> None:
    runs = [Results(SETUP, (measured("amax", "jitnorm", m, 64, 1.0),)) for m in (1, 2)]
    with pytest.raises(ValueError, match="against: the two runs have no op at the same shape"):
        pairs(*runs)
