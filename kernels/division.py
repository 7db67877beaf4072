"""Division: how a configuration names the schedule of its kernel, in place of the one that the rules choose."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

# In their order in a text: what is chosen by a letter; what by a letter and a number, and the usual one, left out.
_LETTERS = {
    "prefetches_weight": "w",
    "stores_sum_early": "e",
    "keeps_unpacked": "u",
    "is_quick": "q",
    "favours_latency": "l",
    "loads_ahead": "a",
    "stays_shared": "s",
}
_NUMBERS = {
    "rows_at_once": ("r", "[2-4]", 1),
    "rows_per_block": ("p", "[24]", 1),
    "blocks": ("b", "[248]", 1),
    "resident_blocks": ("o", r"[1-9]\d?", 0),
}
_TEXT = re.compile(
    r"(?P<warps>[1-9]\d?)x(?P<chunks>[1-9]\d?)"
    + "".join(f"(?P<{field}>{letter})?" for field, letter in _LETTERS.items())
    + "".join(f"(?:{letter}(?P<{field}>{number}))?" for field, (letter, number, _) in _NUMBERS.items())
)


@dataclass(frozen=True, slots=True)
class Division:
    """A row's threads, and what else of a schedule can be chosen.

    Its text form is warps x chunks a lane and a letter for each choice: ``4x2``, ``8x1w``, ``14x1we``, ``4x4r2``,
    ``8x1wu``, ``8x1wql``, ``16x4b2``, ``1x3p2``, ``8x2o4``, ``16x2wao2``, ``16x4waso2``.

    Args:
        warps: that share a row.
        chunks: that each of their lanes has.
        prefetches_weight: (w) whether the weight may be loaded before it is needed.
        stores_sum_early: (e) whether a row's sum with the residual is stored before its blocks are encoded; what is not
            encoded in blocks stores it early anyway.
        keeps_unpacked: (u) whether the floats of a row of 16-bit values are kept from one pass to the next, which takes
            twice the registers, rather than unpacked again.
        is_quick: (q) whether the statistic and the FP8 scale of ordinary values take a shorter way, to the same bits.
        favours_latency: (l) whether one row is done sooner at the cost of many: its weight is unpacked before the
            statistic is known, dependents are signalled at once, each lane stores by itself.
        loads_ahead: (a) whether blocks stay, as many as `resident_blocks` says, and have their next row copied to
            shared memory while they work on one.
        stays_shared: (s) whether a row that was loaded ahead stays in shared memory, where each pass finds it, and not
            in registers.
        rows_at_once: (r) rows that threads work on together, for which they load the weight once.
        rows_per_block: (p) rows, each with a warp of its own, that share a block.
        blocks: (b) of a cluster that the warps of a row belong to.
        resident_blocks: (o) that a multiprocessor shall have room for, at the cost of registers; 0 leaves it to the
            compiler.

    Example:
        >>> Division.parse("8x2w") == Division(8, 2, prefetches_weight=True)
        True
    """

    warps: int
    chunks: int
    prefetches_weight: bool = False
    stores_sum_early: bool = False
    keeps_unpacked: bool = False
    is_quick: bool = False
    favours_latency: bool = False
    loads_ahead: bool = False
    stays_shared: bool = False
    rows_at_once: int = 1
    rows_per_block: int = 1
    blocks: int = 1
    resident_blocks: int = 0

    def __str__(self) -> str:
        letters = "".join(letter for field, letter in _LETTERS.items() if getattr(self, field))
        numbers = [(letter, getattr(self, field), usual) for field, (letter, _, usual) in _NUMBERS.items()]
        chosen = "".join(f"{letter}{number}" for letter, number, usual in numbers if number != usual)
        return f"{self.warps}x{self.chunks}{letters}{chosen}"

    @classmethod
    def parse(cls, text: str) -> Division:
        """The division of a text form; ValueError if it is none."""
        found = _TEXT.fullmatch(text) if isinstance(text, str) else None
        if found is None:
            raise ValueError(
                f"schedule: is {text!r}; write warps x chunks a lane, such as 4x2, with w to load the weight early, "
                "e to store the sum with the residual early, u to keep unpacked floats, q for quick statistics, l to "
                "favour latency, a to load a row ahead, s to leave it in shared memory, r2 for two rows at once, p2 "
                "for two rows a block, b2 for clusters of two blocks, o4 for room for four blocks"
            )
        chosen = {field: text for field, text in found.groupdict().items() if text}
        values: dict[str, Any] = {field: int(text) if text.isdigit() else True for field, text in chosen.items()}
        return cls(**values)
