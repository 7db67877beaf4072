"""Performance targets of groups of ops, and which of them a run reaches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import geometric_mean

from jitnorm.bench.results import JITNORM, Row

_BETTER = "better of both"
_LIBRARIES = ("flashinfer", "quack")

_NORMS = ("rmsnorm", "gemma", "add_rmsnorm", "add gemma", "qk_rmsnorm")
_DYNAMIC = ("fp8 token", "add fp8 token", "rmsnorm fp8 128", "add fp8 128")
_FP8 = ("rmsnorm fp8", "add fp8", *_DYNAMIC)
_BLOCKS = ("add nvfp4", "add mxfp4", "add mxfp8", "rmsnorm mxfp8", "mxfp8 alone")
_NORM_FP4 = ("rmsnorm nvfp4", "rmsnorm mxfp4")
_FP4 = (*_NORM_FP4, "nvfp4 alone", "mxfp4 alone")
_HOST = ("rmsnorm", "rmsnorm nvfp4", "add nvfp4")


def _any(row: Row) -> bool:
    return True


def _long(row: Row) -> bool:
    """Whether a measurement is long enough for its roofline to mean more than kernel start and end."""
    return row.copy >= 3.0


def _large(row: Row) -> bool:
    return row.op_bytes >= 32e6


def _many(row: Row) -> bool:
    return row.rows >= 1000


def _few(row: Row) -> bool:
    return row.rows <= 64


@dataclass(frozen=True)
class Bar:
    """A figure of a group of ops, and what it must reach.

    Attributes:
        group: its name.
        figure: ``roofline``; ``speed-up``, the time of `by` divided by jitnorm's; ``us over copy``; or ``host us``.
        ops: the names of its ops.
        takes: whether one of their measurements counts.
        by: the implementation whose host time it is, or that the speed-up is against.
        mean: what the mean (geometric, for ratios) must reach; None: only for information.
        worst: what every measurement must reach.
    """

    group: str
    figure: str
    ops: tuple[str, ...]
    takes: Callable[[Row], bool]
    by: str = JITNORM
    mean: float | None = None
    worst: float | None = None

    @property
    def is_ratio(self) -> bool:
        """Whether it is a ratio, for which more is better, rather than microseconds."""
        return self.figure in ("roofline", "speed-up")


@dataclass(frozen=True)
class Reached:
    """The result of a run for a bar.

    Attributes:
        bar: the bar.
        count: how many measurements count.
        mean: their mean.
        worst: the worst of them.
        at: the measurement with the worst value, jitnorm's or, for a host time, that of its implementation.
    """

    bar: Bar
    count: int
    mean: float
    worst: float
    at: Row

    @property
    def is_reached(self) -> bool | None:
        """Whether everything that the bar requires is reached; None if it requires nothing."""
        asked = [(self.mean, self.bar.mean), (self.worst, self.bar.worst)]
        answers = [(value >= bar) if self.bar.is_ratio else (value <= bar) for value, bar in asked if bar is not None]
        return all(answers) if answers else None


def _speedups(group: str, ops: tuple[str, ...], takes: Callable[[Row], bool], *by: str) -> tuple[Bar, ...]:
    return tuple(Bar(group, "speed-up", ops, takes, name) for name in by)


def _host(by: str, worst: float | None = None) -> Bar:
    return Bar("host, M to 64", "host us", _HOST, _few, by, worst=worst)


BARS = (
    Bar("norms", "roofline", _NORMS, _long, mean=0.97, worst=0.90),
    Bar("norms", "speed-up", _NORMS, _any, _BETTER, mean=1.05, worst=1.0),
    *_speedups("norms", _NORMS, _any, *_LIBRARIES),
    Bar("FP8", "roofline", _FP8, _long, mean=0.97, worst=0.90),
    Bar("FP8", "speed-up", _FP8, _any, "flashinfer", mean=1.08, worst=1.0),
    Bar("FP8, scales found", "speed-up", _DYNAMIC, _many, "torch.compile", mean=1.5),
    Bar("add to blocks, MXFP8", "roofline", _BLOCKS, _long, mean=0.95, worst=0.88),
    Bar("add to blocks, MXFP8", "speed-up", _BLOCKS, _many, "torch.compile", mean=4.0),
    Bar("FP4, from 32 MB", "roofline", _FP4, _large, mean=0.90, worst=0.80),
    Bar("FP4", "speed-up", _FP4, _many, "torch.compile", mean=4.0),
    Bar("RMSNorm to FP4", "speed-up", _NORM_FP4, _many, "unfused", mean=2.1),
    Bar("add to FP4", "speed-up", _BLOCKS[:2], _many, "unfused", mean=1.96),
    Bar("M to 64", "us over copy", (*_FP8, *_BLOCKS, *_FP4), _few, worst=0.6),
    Bar("norms, M to 64", "speed-up", _NORMS, _few, _BETTER, worst=1.0),
    Bar("chain of 20", "speed-up", ("chain of 20",), _few, "no-pdl", worst=1.15),
    _host(JITNORM, worst=3.0),
    _host("allocating", worst=5.0),
    *(_host(name) for name in ("handle", *_LIBRARIES)),
)


def reached(rows: Iterable[Row], bars: Sequence[Bar] = BARS) -> list[Reached]:
    """Evaluate each bar that a run has measurements for."""
    rows = list(rows)
    return [found for bar in bars if (found := _reached(bar, rows))]


def _reached(bar: Bar, rows: list[Row]) -> Reached | None:
    by = bar.by if bar.figure == "host us" else JITNORM
    own = [row for row in rows if row.by == by and row.op in bar.ops and bar.takes(row)]
    values = {row: value for row in own if (value := _value(bar, row, rows)) is not None}
    if not values:
        return None
    figures = list(values.values())
    at = (min if bar.is_ratio else max)(values, key=values.__getitem__)
    mean = geometric_mean(figures) if bar.is_ratio else sum(figures) / len(figures)
    return Reached(bar, len(figures), mean, values[at], at)


def _value(bar: Bar, row: Row, rows: list[Row]) -> float | None:
    if bar.figure == "roofline":
        return row.roofline
    if bar.figure == "us over copy":
        return row.time - row.copy
    if bar.figure == "host us":
        return row.host
    against = _LIBRARIES if bar.by == _BETTER else (bar.by,)
    times = [other.time for other in rows if (other.op, other.shape) == (row.op, row.shape) and other.by in against]
    return min(times) / row.time if times else None
