"""Writes what the drawings of the documentation are made of."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape


def document(width: float, height: float, title: str, body: Iterable[str], size: int = 12) -> str:
    """A drawing on white, which a page shows in a dark scheme, too."""
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
