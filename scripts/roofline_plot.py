"""Draws the committed results of jitnorm bench as bytes per second over bytes; rewrites docs/roofline.svg.

Needs only jitnorm: python scripts/roofline_plot.py
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import svg

DOCS = Path(__file__).parents[1] / "docs"
PLOT = DOCS / "roofline.svg"
LEFT, TOP, WIDTH, HEIGHT = 75, 40, 640, 300
# Both axes are logarithmic.
BYTES, SPEED = (8e3, 1.4e9), (5e9, 1e13)
FAMILIES = {
    "norms": ("#1f5fa8", ("rmsnorm", "gemma", "add_rmsnorm", "add gemma", "qk_rmsnorm")),
    "norms in FP8": ("#2a9d4a", ("rmsnorm fp8", "add fp8", "fp8 token", "rmsnorm mxfp8", "add mxfp8")),
    "norms in FP4": ("#d1491f", ("rmsnorm nvfp4", "add nvfp4", "rmsnorm mxfp4", "add mxfp4")),
}


def newest() -> dict[str, Any]:
    """The newest committed run."""
    found: dict[str, Any] = json.loads(max((DOCS / "benchmarks").glob("*.json"), key=_date).read_text("utf-8"))
    return found


def _date(path: Path) -> str:
    return path.stem[-len("2026-11-22") :]


def plot(run: dict[str, Any]) -> str:
    """Draw a line for copies, and a dot for each op and shape."""
    title = f"Bytes per second of jitnorm's ops and of copies, {run['device']}, {run['date']}"
    rows = [row for row in run["rows"] if row["by"] == "jitnorm"]
    body = [*axes(title), *copies(rows)]
    for position, (family, (color, ops)) in enumerate(FAMILIES.items()):
        body += [dot(row["op_bytes"], row["time"], color) for row in rows if row["op"] in ops]
        body += legend(position + 1, f"<circle cx='12' cy='-4' r='4' fill='{color}'/>", family)
    return svg.document(LEFT + WIDTH + 20, TOP + HEIGHT + 50, title, body)


def x_of(size: float) -> float:
    return LEFT + WIDTH * (math.log10(size) - math.log10(BYTES[0])) / math.log10(BYTES[1] / BYTES[0])


def y_of(speed: float) -> float:
    return TOP + HEIGHT * (math.log10(SPEED[1]) - math.log10(speed)) / math.log10(SPEED[1] / SPEED[0])


def dot(size: float, microseconds: float, color: str) -> str:
    x, y = x_of(size), y_of(size / microseconds * 1e6)
    return f"<circle cx='{x:.1f}' cy='{y:.1f}' r='3' fill='{color}' fill-opacity='0.7'/>"


def copies(rows: Iterable[dict[str, Any]]) -> Iterable[str]:
    """Draw the line through the copies."""
    times = {row["op_bytes"]: row["copy"] for row in rows}
    points = " ".join(f"{x_of(size):.1f},{y_of(size / times[size] * 1e6):.1f}" for size in sorted(times))
    yield f"<polyline points='{points}' fill='none' stroke='#333' stroke-width='1.5'/>"
    yield from legend(0, "<path d='M2 -4H22' stroke='#333' stroke-width='1.5'/>", "a copy of as many bytes")


def legend(position: int, mark: str, label: str) -> Iterable[str]:
    yield f"<g transform='translate({LEFT + WIDTH - 190} {TOP + HEIGHT - 90 + 20 * position})'>{mark}"
    yield svg.text(30, 0, label, "start") + "</g>"


def axes(title: str) -> Iterable[str]:
    yield svg.text(LEFT, 20, title, "start", "font-weight='bold'")
    for power, label in ((4, "10 kB"), (5, "100 kB"), (6, "1 MB"), (7, "10 MB"), (8, "100 MB"), (9, "1 GB")):
        x = x_of(10**power)
        yield f"<path d='M{x:.1f} {TOP}V{TOP + HEIGHT}' stroke='#ddd'/>"
        yield svg.text(x, TOP + HEIGHT + 18, label)
    for power, label in ((10, "10 GB/s"), (11, "100 GB/s"), (12, "1 TB/s"), (13, "10 TB/s")):
        y = y_of(10**power)
        yield f"<path d='M{LEFT} {y:.1f}H{LEFT + WIDTH}' stroke='#ddd'/>"
        yield svg.text(LEFT - 6, y + 4, label, "end")
    yield svg.text(LEFT + WIDTH / 2, TOP + HEIGHT + 38, "bytes that the op has to read and write")


if __name__ == "__main__":
    PLOT.write_text(plot(newest()), encoding="utf-8")
