"""RowSchedule: how the threads of a GPU share a row, and the text by which a configuration names it."""

from __future__ import annotations

import re
from dataclasses import Field, dataclass, field, fields
from typing import Any

WARP_LANES = 32
# The most chunks per lane that are encoded by straight-line code: unrolled in full, 8 take NVRTC 0.34 s, not 0.2, and
# long rows more registers than there are, because the compiler keeps their floats.
MOST_CHUNKS_AT_ONCE = 7


def _flag(letter: str, help: str) -> Any:
    """An option given by a letter."""
    return field(default=False, metadata={"letter": letter, "help": help})


def _count(letter: str, numbers: str, default: int, help: str) -> Any:
    """An option given by a letter and a number; texts omit the default."""
    return field(default=default, metadata={"letter": letter, "numbers": numbers, "help": help})


@dataclass(frozen=True, slots=True)
class RowSchedule:
    """How many threads share a row, and options for how they process it.

    Its text form is warps x chunks per lane, followed by a letter for each option: ``4x2``, ``8x1w``, ``14x1we``,
    ``4x4r2``, ``8x1wu``, ``8x1wql``, ``16x4b2``, ``1x3p2``, ``8x2o4``, ``16x2wao2``, ``4x2uap6o1``, ``8x1wko3``,
    ``4x2mp6o1``, ``19x1wqz``, ``1x3wp16n8``.

    Args:
        warps_per_row: warps that share a row.
        chunks_per_lane: chunks that each of their lanes has.
        prefetches_weight: (w) whether the weight may be loaded before it is needed. Persistent blocks of layer
            normalization have it in shared memory instead, and may have several rows there.
        stores_sum_early: (e) whether a row's sum with the residual is stored before its blocks are encoded; without
            blocks it is always stored early.
        keeps_unpacked: (u) whether the floats of a row of 16-bit values are kept from one pass to the next, which takes
            twice the registers, rather than unpacked again.
        takes_fast_path: (q) whether the statistic and the FP8 scale of values in the normal range take a fast path,
            which gives the same bits.
        favours_latency: (l) whether a single row finishes sooner at the expense of many: its weight is loaded, or with
            a residual unpacked, while sums are in flight, dependents are signalled at once, each lane stores
            separately. Of this, rows of one warp only store so.
        signals_late: (d) whether dependents are signalled once a row is stored, or if it favours latency, when all
            threads have met for the statistic or later, not before; see kernels/signals.py.
        loads_ahead: (a) whether blocks are persistent, `resident_blocks` of them, and copy their next row to shared
            memory while they work on one.
        stays_shared: (s) whether rows of which gradients are computed, and their weight, stay in shared memory for all
            passes, instead of in registers.
        splits_chunks: (h) whether a lane has halves of two chunks, 16 lanes apart, instead of one chunk; see
            kernels/split_chunks.py.
        copies_parameters: (c) whether the parameters of a norm are copied to shared memory while the row is loaded,
            where they take no registers; see kernels/copied_parameters.py.
        stays_resident: (k) whether blocks are persistent, `resident_blocks` of them, keep the parameters of a norm, and
            request their next rows into registers while they work on others; see kernels/resident_rows.py.
        skips_chunks: (g) whether warps that have one chunk per lane less than others skip it, rather than compute
            zeros.
        tabulates: (m) whether blocks are persistent, `resident_blocks` of them, look activations up in a table in their
            shared memory, and request their next rows into registers while they work on others; see
            kernels/tabulated_rows.py.
        activates_early: (z) whether the activations of a norm's gates, often named z, are computed before its statistic
            is known; see kernels/early_activations.py.
        rows_at_once: (r) rows that threads process together, loading the weight once for all of them.
        rows_per_block: (p) rows that share a block, each with its own threads.
        blocks_per_row: (b) blocks among which the warps of a row are divided: a cluster, unless they have nothing to
            exchange.
        resident_blocks: (o) blocks that a multiprocessor should have room for, at the expense of registers; 0 leaves it
            to the compiler.
        lanes_per_row: (n) lanes that share a row, if not those of whole warps: fewer than a warp for short rows, and
            with separate parts any number, such as 72 for 1152 elements, whose next row begins in the same warp.
        holds_row: whether the row stays in registers or shared memory; a schedule that reloads it in each pass has no
            text form.

    Example:
        >>> RowSchedule.parse("8x2w") == RowSchedule(8, 2, prefetches_weight=True)
        True
    """

    warps_per_row: int
    chunks_per_lane: int
    prefetches_weight: bool = _flag("w", "w to load the weight early")
    stores_sum_early: bool = _flag("e", "e to store the sum with the residual early")
    keeps_unpacked: bool = _flag("u", "u to keep unpacked floats")
    takes_fast_path: bool = _flag("q", "q for the fast path of values in the normal range")
    favours_latency: bool = _flag("l", "l to favour latency")
    signals_late: bool = _flag("d", "d to signal dependents late")
    loads_ahead: bool = _flag("a", "a to load a row ahead")
    stays_shared: bool = _flag("s", "s to leave rows of gradients in shared memory")
    splits_chunks: bool = _flag("h", "h to hold halves of chunks")
    copies_parameters: bool = _flag("c", "c to copy the parameters of a norm to shared memory")
    stays_resident: bool = _flag("k", "k to keep the parameters in persistent blocks")
    skips_chunks: bool = _flag("g", "g to skip groups past a row")
    tabulates: bool = _flag("m", "m to look activations up in a table")
    activates_early: bool = _flag("z", "z to compute the activations of gates early")
    rows_at_once: int = _count("r", "[2-4]", 1, "r2 for two rows at once")
    rows_per_block: int = _count("p", r"[2-9]|[1-9]\d{1,2}", 1, "p2 for two rows a block")
    blocks_per_row: int = _count("b", r"[2-9]|[1-9]\d", 1, "b2 for two blocks a row")
    resident_blocks: int = _count("o", r"[1-9]\d?", 0, "o4 for room for four blocks")
    lanes_per_row: int = _count("n", r"[1-9]\d{0,2}", WARP_LANES, "n8 for rows of eight lanes each, side by side")
    holds_row: bool = True

    @property
    def is_persistent(self) -> bool:
        """Whether blocks go from row to row, as many of them as run at once."""
        return self.loads_ahead or self.stays_resident or self.tabulates

    @property
    def chunks_at_once(self) -> int:
        """Chunks per lane that are encoded by straight-line code; if they are not all, rows loop over it.

        Example:
            >>> [RowSchedule(1, chunks).chunks_at_once for chunks in (4, 7, 8)]
            [4, 7, 4]
        """
        if not self.holds_row:
            return 1
        return max(n for n in range(1, MOST_CHUNKS_AT_ONCE + 1) if self.chunks_per_lane % n == 0)

    @property
    def threads_per_row(self) -> int:
        """Threads that share a row."""
        return self.lanes_per_row * self.warps_per_row

    @property
    def threads(self) -> int:
        """Threads in a block."""
        return self.threads_per_row * self.rows_per_block // self.blocks_per_row

    def __str__(self) -> str:
        text = f"{self.warps_per_row}x{self.chunks_per_lane}"
        for choice in _CHOICES:
            value, letter = getattr(self, choice.name), choice.metadata["letter"]
            if value != choice.default:
                text += letter if value is True else f"{letter}{value}"
        return text

    @classmethod
    def parse(cls, text: str) -> RowSchedule:
        """Parse a text form; ValueError if it is not one."""
        found = _TEXT.fullmatch(text) if isinstance(text, str) else None
        if found is None:
            choices = ", ".join(choice.metadata["help"] for choice in _CHOICES)
            raise ValueError(f"schedule: is {text!r}; write warps x chunks per lane, such as 4x2, with {choices}")
        chosen = {name: text for name, text in found.groupdict().items() if text}
        values: dict[str, Any] = {name: int(text) if text.isdigit() else True for name, text in chosen.items()}
        return cls(**values)


def _pattern(choice: Field[Any]) -> str:
    letter, numbers = choice.metadata["letter"], choice.metadata.get("numbers")
    return f"(?:{letter}(?P<{choice.name}>{numbers}))?" if numbers else f"(?P<{choice.name}>{letter})?"


# In the order of a text form.
_CHOICES = tuple(choice for choice in fields(RowSchedule) if choice.metadata)
_TEXT = re.compile(
    r"(?P<warps_per_row>[1-9]\d{0,2})x(?P<chunks_per_lane>[1-9]\d?)" + "".join(_pattern(each) for each in _CHOICES)
)
