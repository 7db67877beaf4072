"""Plots of results: heat maps of throughput and roofline, bars of speed-ups against peers. Needs matplotlib."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from jitnorm.bench.results import JITNORM, Results, Row, Setup
from jitnorm.bench.shapes import shape_text
from jitnorm.bench.summary import speedups

_COLUMNS = 5  # panels side by side
_MOST_NUMBERS = 300  # in a figure of grids; with more, only colours
_COLORS = ("#56B4E9", "#E69F00", "#009E73")  # Okabe and Ito's palette, which everybody can tell apart
_SETTINGS = {
    # The same results give the same file, with text that can be searched. Each text names all fonts of the list.
    "svg.hashsalt": "jitnorm",
    "svg.fonttype": "none",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 8.0,
    "axes.titlesize": 9.0,
}


@dataclass(frozen=True)
class Panel:
    """A heat map as data.

    Attributes:
        title: the title above it.
        lines: labels from top to bottom.
        columns: labels from left to right.
        cells: values by line and column; some may be missing.
    """

    title: str
    lines: tuple[str, ...]
    columns: tuple[str, ...]
    cells: dict[tuple[str, str], float]


def require_matplotlib() -> None:
    """Raise a RuntimeError that says how to install it, unless it is installed."""
    try:
        import matplotlib as _  # noqa: F401
    except ImportError:
        raise RuntimeError('matplotlib, which draws the plots, is missing: pip install "jitnorm[bench]"') from None


def draw(results: Results, folder: Path, suffix: str = "svg") -> list[Path]:
    """Draw everything in the results: jitnorm's throughput and roofline, and speed-ups if there are peers.

    Args:
        results: of one run.
        folder: the folder for the files; it is created.
        suffix: the suffix of their names, ``svg`` or ``png``.

    Returns:
        the files.

    Raises:
        RuntimeError: matplotlib is missing.
        ValueError: the results have nothing of jitnorm.
    """
    require_matplotlib()
    own = [row for row in results.rows if row.by == JITNORM]
    if not own:
        raise ValueError("plot: the results do not include jitnorm; measure it, too: --by jitnorm")
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.{suffix}" for name in ("throughput", "roofline", "speedup")]
    throughputs = panels(own, lambda row: row.throughput)
    plot_heat_maps(throughputs, paths[0], _title("throughput in TB/s", results.setup))
    rooflines = panels(own, lambda row: row.roofline)
    plot_heat_maps(rooflines, paths[1], _title("roofline", results.setup), highest=1.0)
    ratios = speedups(results.rows)
    if not ratios:
        return paths[:2]
    plot_speedups({key: list(found.values()) for key, found in ratios.items()}, paths[2], results.setup)
    return paths


def panels(rows: Sequence[Row], value: Callable[[Row], float]) -> list[Panel]:
    """One heat map over M x H per op, or a single one of ops and shapes if the shapes fill less than half of a grid."""
    shapes = sorted({row.shape for row in rows}, key=lambda shape: (math.prod(shape), shape))
    ops = tuple(dict.fromkeys(row.op for row in rows))
    ms, hs = (tuple(map(str, sorted({shape[axis] for shape in shapes}))) for axis in (0, 1))
    if len(shapes) * 2 <= len(ms) * len(hs):
        cells = {(row.op, shape_text(row.shape)): value(row) for row in rows}
        return [Panel("", ops, tuple(map(shape_text, shapes)), cells)]
    return [
        Panel(op, ms, hs, {(str(row.rows), str(row.hidden_size)): value(row) for row in rows if row.op == op})
        for op in ops
    ]


def plot_heat_maps(found: Sequence[Panel], path: Path, title: str, highest: float | None = None) -> None:
    """Draw heat maps with a common colour scale, from 0 to `highest`, by default the largest value."""
    columns = min(_COLUMNS, len(found))
    lines = math.ceil(len(found) / columns)
    first = found[0]
    is_grid = bool(first.title)
    width, height = (0.32, 0.2) if is_grid else (0.75, 0.2)
    size = (1.6 + columns * (0.2 + width * len(first.columns)), 0.9 + lines * (0.3 + height * len(first.lines)))
    top = highest or max(max(panel.cells.values()) for panel in found)
    has_numbers = not is_grid or sum(len(panel.cells) for panel in found) <= _MOST_NUMBERS
    with _drawing(path, title, size) as figure:
        axes = figure.subplots(lines, columns, squeeze=False, sharex=True, sharey=True)
        for panel, each in zip(found, axes.flat, strict=False):
            mesh = _heat_map(each, panel, top, has_numbers=has_numbers)
        for unused in axes.flat[len(found) :]:
            unused.remove()
        if is_grid:
            figure.supxlabel("H")
            figure.supylabel("M")
        if is_grid:
            figure.colorbar(mesh, ax=list(axes.flat[: len(found)]), fraction=0.03, pad=0.02)


def _heat_map(axes: Any, panel: Panel, top: float, *, has_numbers: bool) -> Any:
    values = [[panel.cells.get((line, column), math.nan) for column in panel.columns] for line in panel.lines]
    mesh = axes.pcolormesh(values, cmap="cividis", vmin=0, vmax=top, edgecolors="white", linewidth=1)
    axes.set_xticks([index + 0.5 for index in range(len(panel.columns))], panel.columns)
    axes.set_yticks([index + 0.5 for index in range(len(panel.lines))], panel.lines)
    axes.set_title(panel.title)
    axes.tick_params("both", length=0)
    if panel.title:
        axes.tick_params("x", rotation=90)
    axes.set_ylim(len(panel.lines), 0)
    for side in axes.spines.values():
        side.set_visible(False)
    if has_numbers:
        for y, line in enumerate(values):
            for x, value in enumerate(line):
                if not math.isnan(value):
                    color = "black" if value > top / 2 else "white"
                    axes.text(x + 0.5, y + 0.5, f"{value:.2f}", color=color, ha="center", va="center")
    return mesh


def plot_speedups(ratios: dict[tuple[str, str], list[float]], path: Path, setup: Setup) -> None:
    """Draw a bar for each op and peer (the geometric mean), with a dot for each shape.

    Args:
        ratios: the peer's time divided by jitnorm's, by op and peer.
        path: the file.
        setup: named in the title.
    """
    from matplotlib.patches import Patch

    ops = list(dict.fromkeys(op for op, _ in ratios))
    colors = dict(zip(dict.fromkeys(peer for _, peer in ratios), itertools.cycle(_COLORS), strict=False))
    width = 0.8 / len(colors)
    title = _title("speed-up against peers, each shape and geometric mean", setup)
    with _drawing(path, title, (1.5 + 1.4 * len(ops), 3.2)) as figure:
        axes = figure.subplots()
        for (op, peer), found in ratios.items():
            beside = [name for other, name in ratios if other == op]
            place = ops.index(op) + (beside.index(peer) - (len(beside) - 1) / 2) * width
            mean = geometric_mean(found)
            axes.bar(place, mean, width * 0.92, color=colors[peer])
            axes.plot([place] * len(found), found, "o", color="black", markersize=2.5, alpha=0.6)
            axes.text(place, 0.03, f"{mean:.2f}", ha="center", va="bottom")
        axes.axhline(1, color="black", linewidth=0.8)
        axes.set_xticks(range(len(ops)), ops)
        axes.set_ylabel("peer's time / jitnorm's")
        axes.spines[["top", "right"]].set_visible(False)
        figure.legend(
            [Patch(color=color) for color in colors.values()],
            [f"{peer} {setup.versions.get(peer, '')}".strip() for peer in colors],
            loc="outside lower center", ncols=len(colors), frameon=False,
        )  # fmt: skip


def _title(what: str, setup: Setup) -> str:
    return f"jitnorm {setup.versions.get('jitnorm', '')}, {what}: {setup.device}, {setup.date}"


@contextmanager
def _drawing(path: Path, title: str, size: tuple[float, float]) -> Iterator[Any]:
    """A figure that is written to a file, in the format of its suffix."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_SETTINGS):
        figure = Figure(size, layout="constrained")
        figure.suptitle(title, fontsize=10)
        yield figure
        figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)
