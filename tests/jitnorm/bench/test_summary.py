"""Summaries, against NumPy over the same rows."""

from __future__ import annotations

import numpy as np
import pytest
from bench_results import measured, rows
from hypothesis import given

from jitnorm.bench.results import Row
from jitnorm.bench.summary import speedups, summarize


@given(rows())
def test_every_figure_is_numpys(found: tuple[Row, ...]) -> None:
    summaries = summarize(found)
    assert [(each.op, each.by) for each in summaries] == list(dict.fromkeys((row.op, row.by) for row in found))
    for each in summaries:
        group = [row for row in found if (row.op, row.by) == (each.op, each.by)]
        rooflines = np.array([row.copy for row in group]) / np.array([row.time for row in group])
        assert each.count == len(group)
        assert each.roofline == pytest.approx(np.prod(rooflines ** (1 / len(group))))
        assert each.worst.copy / each.worst.time == rooflines.min()
        own = {row.shape: row.time for row in found if (row.op, row.by) == (each.op, "jitnorm")}
        ratios = np.array([row.time / own[row.shape] for row in group if row.shape in own])
        if each.by == "jitnorm" or not len(ratios):
            assert each.speedup is None
        else:
            assert each.speedup == pytest.approx(np.exp(np.log(ratios).mean()))


def test_a_speedup_is_above_1_where_jitnorm_takes_less_time() -> None:
    found = [measured("amax", "jitnorm", 1, 64, 2.0), measured("amax", "quack", 1, 64, 3.0),
             measured("amax", "quack", 2, 64, 3.0), measured("rmsnorm", "quack", 1, 64, 3.0)]  # fmt: skip
    assert speedups(found) == {("amax", "quack"): {(1, 64): 1.5}}
