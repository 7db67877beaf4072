"""Writes the SVG elements of the drawings in the documentation."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from math import hypot


def document(width: float, height: float, title: str, body: Iterable[str], size: int = 12) -> str:
    """A drawing on a white background, so that it is readable in dark mode, too."""
    style = f"font-family='sans-serif' font-size='{size}'"
    head = f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width:g} {height:g}' role='img' {style}>"
    ground = f"<rect width='{width:g}' height='{height:g}' fill='white'/>"
    return "\n".join([head, f"<title>{escape(title)}</title>", ground, *body, "</svg>", ""])


def text(x: float, y: float, content: str, anchor: str = "middle", style: str = "") -> str:
    """A line of text whose start, middle or end is at x."""
    return f"<text x='{x:.1f}' y='{y:.1f}' text-anchor='{anchor}'{style and ' ' + style}>{escape(content)}</text>"


def box(x: float, y: float, width: float, height: float, fill: str) -> str:
    """A rectangle with a thin outline."""
    return f"<rect x='{x:g}' y='{y:g}' width='{width:g}' height='{height:g}' fill='{fill}' stroke='#999'/>"


def arrow(x1: float, y1: float, x2: float, y2: float, color: str = "#555") -> str:
    """A line with a head at its end."""
    length = hypot(x2 - x1, y2 - y1)
    along, across = (x2 - x1) / length * 7, (y2 - y1) / length * 7
    left = x2 - along - across / 2, y2 - across + along / 2
    right = x2 - along + across / 2, y2 - across - along / 2
    head = " ".join(f"{x:.1f},{y:.1f}" for x, y in ((x2, y2), left, right))
    line = f"<line x1='{x1:g}' y1='{y1:g}' x2='{x2 - along:.1f}' y2='{y2 - across:.1f}' stroke='{color}'/>"
    return f"{line}<polygon points='{head}' fill='{color}'/>"
