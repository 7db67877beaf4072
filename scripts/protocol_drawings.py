"""Draws how ranks exchange rows, for docs/parallel.md; rewrites docs/parallel/.

Needs only the standard library: python scripts/protocol_drawings.py
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import svg

FOLDER = Path(__file__).parents[1] / "docs" / "parallel"
OWN, PEER, SPENT, FREE = "#d9ead3", "#cfe2f3", "#f4cccc", "#f5f5f5"
BOLD = "font-weight='bold'"
BUFFERS = 3


def one_shot() -> str:
    """Where rows go in a call of two ranks, and what the three buffers of a rank are for, call by call."""
    body = [*_pushes(30, 30), *_turns(30, 210)]
    return svg.document(720, 375, "One-shot: every rank sends its rows to all others", body)


def _pushes(left: float, top: float) -> Iterator[str]:
    right = left + 440
    for rank, x in enumerate((left, right)):
        yield svg.text(x, top, f"rank {rank}", "start", BOLD)
        yield svg.box(x, top + 12, 90, 26, OWN)
        yield svg.text(x + 45, top + 29, "own rows")
        yield svg.box(x + 60, top + 100, 160, 26, PEER)
        yield svg.text(x + 140, top + 117, f"slots of rank {1 - rank}'s rows")
        yield svg.arrow(x + 30, top + 38, x + 30, top + 148)
        yield svg.arrow(x + 140, top + 126, x + 140, top + 148)
        yield svg.text(x, top + 163, "sum in the order of ranks, norm, codes", "start")
    yield svg.arrow(left + 90, top + 25, right + 120, top + 98)
    yield svg.arrow(right, top + 25, left + 160, top + 98)
    yield svg.text((left + 90 + right) / 2, top + 22, "stores over NVLink")


def _turns(left: float, top: float) -> Iterator[str]:
    cell, height, calls = 92, 26, 6
    yield svg.text(left, top, "What a rank does with its buffers in its calls", "start", BOLD)
    for call in range(calls):
        yield svg.text(left + 90 + (call + 0.5) * cell, top + 24, f"call {call}")
    for buffer in range(BUFFERS):
        y = top + 32 + buffer * (height + 6)
        yield svg.text(left, y + 17, f"buffer {buffer}", "start")
        for call in range(calls):
            state, color = turn(call, buffer)
            yield svg.box(left + 90 + call * cell, y, cell - 4, height, color)
            yield svg.text(left + 90 + (call + 0.5) * cell - 2, y + 17, state)
    note = "A peer is one call ahead at most: what it stores then goes into the buffer that is ready."
    yield svg.text(left, top + 150, note, "start")


def turn(call: int, buffer: int) -> tuple[str, str]:
    """The state of a rank's buffer in a call, and its color."""
    age = (call - buffer) % BUFFERS
    if age == 0:
        return "receives", PEER
    if age == 1 and call > 0:
        return "is cleared", SPENT
    return "ready", FREE


def two_shot() -> str:
    """Reads and writes of two ranks in a call."""
    body: list[str] = []
    for rank in (0, 1):
        y = 60 + rank * 130
        body += [svg.text(30, y - 12, f"rank {rank}", "start", BOLD)]
        for chunk in (0, 1):
            top, color = y + chunk * 34, OWN if chunk == rank else FREE
            body += [svg.box(30, top, 130, 30, color), svg.text(95, top + 19, f"input, chunk {chunk}")]
            color = OWN if chunk == rank else PEER
            body += [svg.box(530, top, 170, 30, color), svg.text(615, top + 19, f"codes or sums, chunk {chunk}")]
        work = y + rank * 34
        body += [svg.box(270, work, 170, 30, OWN)]
        body += [svg.text(355, work + 19, f"sum of chunk {rank}")]
        for other in (0, 1):
            there = 60 + other * 130 + rank * 34 + 15
            body += [svg.arrow(160, there, 268, work + 15), svg.arrow(440, work + 15, 528, there)]
    for x, label in ((215, "1: all inputs are there"), (485, "2: all chunks are written")):
        body += [svg.text(x, 24, label)]
    return svg.document(720, 290, "Two-shot: every rank sums a chunk of the rows", body)


def drawings() -> dict[str, str]:
    """The drawings, by file name."""
    return {"one_shot.svg": one_shot(), "two_shot.svg": two_shot()}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, content in drawings().items():
        (FOLDER / name).write_text(content, encoding="utf-8")
