"""The drawings and plots of the documentation are what their scripts draw."""

from __future__ import annotations

import formats
import layout_drawings
import protocol_drawings
import pytest
import roofline_plot

from jitnorm.reference import unswizzle_scales


def test_the_page_on_formats_has_what_its_script_measures() -> None:
    rows = formats.measure()
    assert formats.table(rows) in formats.PAGE.read_text(encoding="utf-8")
    assert formats.plot(rows) == formats.PLOT.read_text(encoding="utf-8")


def test_the_protocols_are_drawn_by_their_script() -> None:
    found = {path.name: path.read_text(encoding="utf-8") for path in protocol_drawings.FOLDER.iterdir()}
    assert found == protocol_drawings.drawings(), "run scripts/protocol_drawings.py"


def test_in_each_call_a_rank_receives_in_a_buffer_and_clears_the_one_before() -> None:
    states = [[protocol_drawings.turn(call, buffer)[0] for buffer in range(3)] for call in range(5)]
    assert states[0] == ["receives", "ready", "ready"]
    assert all(sorted(each) == ["is cleared", "ready", "receives"] for each in states[1:])
    assert all(states[call][call % 3] == "receives" for call in range(5))


def test_the_layouts_are_drawn_as_the_reference_has_them() -> None:
    drawn = layout_drawings.drawings()
    found = {path.name: path.read_text(encoding="utf-8") for path in layout_drawings.FOLDER.iterdir()}
    assert found == drawn, "run scripts/layout_drawings.py"


def test_the_plot_shows_the_newest_committed_run() -> None:
    expected = roofline_plot.plot(roofline_plot.newest())
    assert roofline_plot.PLOT.read_text(encoding="utf-8") == expected, "run scripts/roofline_plot.py"


@pytest.mark.parametrize("name", layout_drawings.DRAWINGS)
def test_memory_holds_each_scale_once(name: str) -> None:
    drawing = layout_drawings.DRAWINGS[name]
    memory = drawing.memory(drawing.rows, drawing.columns)
    assert sorted(memory[memory >= 0]) == list(range(drawing.rows * drawing.columns))


@pytest.mark.parametrize("layout", ["128x4", "8x4"])
def test_tiles_are_read_back_as_they_are_drawn(layout: str) -> None:
    drawing = layout_drawings.DRAWINGS[layout]
    memory = (drawing.memory(drawing.rows, drawing.columns) % 251).astype("uint8")
    scales = unswizzle_scales(memory, drawing.rows, drawing.columns, layout)
    assert scales.ravel().tolist() == [number % 251 for number in range(drawing.rows * drawing.columns)]
