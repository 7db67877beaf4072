"""Plots say what the results say."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from bench_results import SETUP, measured

from jitnorm.bench.plot import draw, panels
from jitnorm.bench.results import Results, Row, read
from jitnorm.bench.shapes import NAMED

BENCHMARKS = Path(__file__).parents[3] / "docs" / "benchmarks"
PEERS = Results(SETUP, tuple(measured("rmsnorm", by, m, 64, time) for by, time in (("jitnorm", 2.0), ("quack", 2.5))
                             for m in (1, 2)))  # fmt: skip


def texts(path: Path) -> set[str]:
    """The readable text of an SVG."""
    return {found.strip() for found in re.findall(r">([^<>]+)</text>", path.read_text(encoding="utf-8"))}


def test_a_grid_of_shapes_has_a_panel_for_each_op() -> None:
    rows = [measured(op, "jitnorm", m, h, 1.0 + m) for op in ("rmsnorm", "amax") for m, h in NAMED["grid"].usual]
    found = panels(rows, lambda row: row.time)
    assert [panel.title for panel in found] == ["rmsnorm", "amax"]
    assert (len(found[0].lines), len(found[0].columns), len(found[0].cells)) == (19, 6, 114)
    assert found[1].cells["65536", "1536"] == 65537.0


def test_few_shapes_have_one_panel_of_ops_and_shapes_in_the_order_of_their_size() -> None:
    rows = [measured("rmsnorm", "jitnorm", m, h, float(m)) for m, h in NAMED["quick"].usual]
    (found,) = panels([*rows, measured("amax", "jitnorm", 1, 4096, 9.0)], lambda row: row.time)
    assert (found.lines, found.columns[:3]) == (("rmsnorm", "amax"), ("1x4096", "16x7168", "1024x4096"))
    assert found.cells["amax", "1x4096"] == 9.0
    assert ("amax", "16x7168") not in found.cells


def test_numbers_ops_and_shapes_can_be_read(tmp_path: Path) -> None:
    throughput, roofline, speedup = draw(PEERS, tmp_path / "new")
    assert {"rmsnorm", "H", "M", "64", "1", "2", "0.50"} <= texts(roofline)
    assert f"{PEERS.rows[1].throughput:.2f}" in texts(throughput)
    assert {"rmsnorm", "quack", "1.25"} <= texts(speedup)
    for path in (throughput, roofline, speedup):
        assert any(SETUP.device in text and SETUP.date in text for text in texts(path))


def test_png_is_drawn_as_well(tmp_path: Path) -> None:
    for path in draw(PEERS, tmp_path, "png"):
        assert path.suffix == ".png"
        assert path.read_bytes().startswith(b"\x89PNG")


def test_without_peers_there_is_no_plot_of_speedups(tmp_path: Path) -> None:
    alone = replace(PEERS, rows=tuple(row for row in PEERS.rows if row.by == "jitnorm"))
    assert [path.name for path in draw(alone, tmp_path)] == ["throughput.svg", "roofline.svg"]
    others = replace(PEERS, rows=tuple(row for row in PEERS.rows if row.by != "jitnorm"))
    with pytest.raises(ValueError, match="plot: the results do not include jitnorm"):
        draw(others, tmp_path)


@pytest.mark.parametrize("stored", sorted(BENCHMARKS.glob("*-????-??-??.json")), ids=lambda path: path.stem)
def test_committed_plots_show_the_committed_results(stored: Path) -> None:
    found = read(stored)
    own = [row for row in found.rows if row.by == "jitnorm"]
    shown = texts(stored.with_suffix("") / "roofline.svg")
    assert {row.op for row in own} <= shown
    assert {f"{row.roofline:.2f}" for row in own} <= shown


def test_the_same_results_give_the_same_file(tmp_path: Path) -> None:
    first, second = (draw(PEERS, tmp_path / name) for name in ("one", "two"))
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_a_row_keeps_its_value(tmp_path: Path) -> None:
    row = Row("amax", "jitnorm", 4, 64, 512, 2.0, 1.0, 3.0)
    (panel,) = panels([row], lambda row: row.roofline)
    assert panel.cells == {("4", "64"): 0.5}
