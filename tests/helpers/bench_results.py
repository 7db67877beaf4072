"""Made-up results of benchmarks, for tests of code that processes results."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from jitnorm.bench.results import Results, Row, Setup

SETUP = Setup("2026-11-20", "NVIDIA H200", "580.1", {"jitnorm": "0.1.0", "torch": "2.11", "flashinfer": "0.7"})
_OPS = ("rmsnorm", "add nvfp4", "amax")
_BY = ("jitnorm", "flashinfer", "quack")


def times() -> st.SearchStrategy[float]:
    """Round times to six digits, as in files."""
    return st.floats(0.1, 1e5).map(lambda time: float(f"{time:.6g}"))


def rows(by: tuple[str, ...] = _BY) -> st.SearchStrategy[tuple[Row, ...]]:
    """Distinct measurements."""
    sizes = st.sampled_from((1, 16, 1024)), st.sampled_from((1024, 4096, 7168))
    row = st.builds(Row, st.sampled_from(_OPS), st.sampled_from(by), *sizes, st.integers(1, 10**9), *[times()] * 3)
    return st.lists(row, min_size=1, unique_by=lambda row: (row.op, row.by, row.shape)).map(tuple)


def results(by: tuple[str, ...] = _BY) -> st.SearchStrategy[Results]:
    return st.builds(Results, st.just(SETUP), rows(by))


def measured(op: str, by: str, m: int, h: int, time: float, copy: float = 1.0) -> Row:
    return Row(op, by, m, h, 4 * m * h, time, copy, 5.0)


def slowed(row: Row, factor: float) -> Row:
    return replace(row, time=row.time * factor)
