"""Division: how a configuration names the schedule of its kernel, in place of the one that the rules choose."""

from __future__ import annotations

import re
from dataclasses import dataclass

_TEXT = re.compile(r"([1-9]\d?)x([1-9]\d?)(w?)(e?)(u?)(a?)(s?)(?:r([2-4]))?(?:p([24]))?(?:b([248]))?(?:o([1-9]\d?))?")


@dataclass(frozen=True, slots=True)
class Division:
    """A row's threads, and what else of a schedule can be chosen.

    Its text form is warps x chunks a lane and a letter for each choice: ``4x2``, ``8x1w``, ``14x1we``, ``4x4r2``,
    ``8x1wu``, ``16x4b2``, ``1x3p2``, ``8x2o4``, ``16x2wao2``, ``16x4waso2``.

    Args:
        warps: that share a row.
        chunks: that each of their lanes has.
        prefetches_weight: (w) whether the weight may be loaded before it is needed.
        stores_sum_early: (e) whether a row's sum with the residual is stored before its blocks are encoded; what is not
            encoded in blocks stores it early anyway.
        keeps_unpacked: (u) whether the floats of a row of 16-bit values are kept from one pass to the next, which takes
            twice the registers, rather than unpacked again.
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
    loads_ahead: bool = False
    stays_shared: bool = False
    rows_at_once: int = 1
    rows_per_block: int = 1
    blocks: int = 1
    resident_blocks: int = 0

    def __str__(self) -> str:
        parts = [f"{self.warps}x{self.chunks}", "w" * self.prefetches_weight, "e" * self.stores_sum_early]
        parts += ["u" * self.keeps_unpacked, "a" * self.loads_ahead, "s" * self.stays_shared]
        parts += [f"r{self.rows_at_once}"] if self.rows_at_once > 1 else []
        parts += [f"p{self.rows_per_block}"] if self.rows_per_block > 1 else []
        parts += [f"b{self.blocks}"] if self.blocks > 1 else []
        parts += [f"o{self.resident_blocks}"] if self.resident_blocks else []
        return "".join(parts)

    @classmethod
    def parse(cls, text: str) -> Division:
        """The division of a text form; ValueError if it is none."""
        found = _TEXT.fullmatch(text) if isinstance(text, str) else None
        if found is None:
            raise ValueError(
                f"schedule: is {text!r}; write warps x chunks a lane, such as 4x2, with w to load the weight early, "
                "e to store the sum with the residual early, u to keep unpacked floats, a to load a row ahead, s to "
                "leave it in shared memory, r2 for two rows at once, p2 for two rows a block, b2 for clusters of two "
                "blocks, o4 for room for four blocks"
            )
        warps, chunks, w, e, u, a, s, *choices, residents = found.groups()
        rows_at_once, rows_per_block, blocks = (int(choice or 1) for choice in choices)
        return cls(
            int(warps),
            int(chunks),
            bool(w),
            bool(e),
            bool(u),
            bool(a),
            bool(s),
            rows_at_once,
            rows_per_block,
            blocks,
            int(residents or 0),
        )
