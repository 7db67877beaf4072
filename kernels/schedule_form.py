"""ScheduleForm: a schedule for rows of any length, such as "two chunks per lane, the weight loaded early"."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from .config import KernelConfig
from .copied_parameters import most_copies, why_not_copied
from .numerics import ceil_div, round_up
from .packed_rows import chunks_of
from .registers import (
    MOST_RESIDENT_THREADS,
    groups_of,
    have_room_for_row,
    residents_of,
    with_room_for_bias,
    with_room_for_floats,
    with_room_for_weight,
)
from .resident_rows import why_not_resident
from .row_parts import has_separate_parts
from .row_schedule import WARP_LANES, RowSchedule
from .rows_ahead import loading_ahead
from .schedule import MAX_WARPS, MOST_WARPS, PREFERRED_WARPS, why_unfit
from .side_by_side import side_by_side
from .skipped_chunks import why_not_skipped
from .split_chunks import why_not_split
from .tabulated_rows import tabulated
from .target import Target

# About how many threads a multiprocessor should have room for, where schedules do not leave that to the compiler.
_RESIDENT_THREADS = (MOST_RESIDENT_THREADS, 1024, 512)
# Blocks in which rows lie side by side have at least so many threads.
_FILLED_THREADS = (128, 256, 64)
_TEXT = re.compile(
    r"(?P<chunks>\d+)(?:/(?P<warps>\d+))?(?:(?P<where>[fi])(?P<filled>\d+))?(?P<options>[^t]*)(?:t(?P<threads>\d+))?"
)


@dataclass(frozen=True)
class ScheduleForm:
    """The part of schedules that is the same at all lengths.

    Its text is that of a RowSchedule without the warps of a row, with those of a block if that has so many at any
    length, and with threads instead of resident blocks: ``2``, ``1wu``, ``1/4``, ``1/8b2``, ``1f128``, ``1i128``,
    ``2wt1024``, ``5qp16n8``. Blocks with a table of activations (``1m``) have as many rows as kernels/tabulated_rows.py
    says.

    Args:
        options: the chunks per lane, and everything else that does not depend on the length; its warps and resident
            blocks do not count. Chunks are more only for rows that are too long, and the most for rows that share
            warps (``n``); longer ones have no such schedule.
        block_warps: warps of each of a row's blocks. With separate parts, rows have as many blocks as needed; in a
            cluster, lanes have as many chunks as needed. 32: as many warps as the chunks leave, at most 32, unless
            parts are separate. 0: the same, at most 16.
        filled_threads: the least number of threads in a block whose rows lie side by side, so that no lane is idle; 0:
            rows have whole warps.
        where_others_idle: whether rows lie so only where a quarter of the lanes would be idle otherwise (``i``).
        resident_threads: about how many threads a multiprocessor should have room for; 0 leaves it to the compiler.

    Example:
        >>> form = ScheduleForm.parse("2wt1024")
        >>> [str(form.schedule(KernelConfig("rmsnorm", size), Target("sm_90a"))) for size in (4096, 6000)]
        ['4x2wo8', '6x2wo5']
    """

    options: RowSchedule
    block_warps: int = 0
    filled_threads: int = 0
    where_others_idle: bool = False
    resident_threads: int = 0

    def __str__(self) -> str:
        chunks = self.options.chunks_per_lane
        others = str(self.options).removeprefix(f"{self.options.warps_per_row}x{chunks}")
        of_block = f"/{self.block_warps}" if self.block_warps else ""
        of_block += f"{'i' if self.where_others_idle else 'f'}{self.filled_threads}" if self.filled_threads else ""
        return f"{chunks}{of_block}{others}" + (f"t{self.resident_threads}" if self.resident_threads else "")

    @classmethod
    def parse(cls, text: str) -> ScheduleForm:
        """Parse a text; ValueError if it is not that of a form."""
        found = _TEXT.fullmatch(text)
        if found is None:
            raise ValueError(f"schedule form: is {text!r}; write chunks per lane and options, such as 2w or 1/4t1536")
        options = RowSchedule.parse(f"1x{found['chunks']}{found['options']}")
        warps, filled, threads = (int(found[name] or 0) for name in ("warps", "filled", "threads"))
        return cls(options, warps, filled, found["where"] == "i", threads)

    @classmethod
    def of(cls, schedule: RowSchedule, config: KernelConfig) -> ScheduleForm:
        """The form of a schedule for a configuration.

        Example:
            >>> swiglu = KernelConfig("quantize", 11648, weight="none", gate_columns=11648)
            >>> str(ScheduleForm.of(RowSchedule.parse("24x1b6o8"), swiglu))
            '1/4t1024'
        """
        blocks, residents = schedule.blocks_per_row, schedule.resident_blocks
        options = replace(schedule, warps_per_row=1, resident_blocks=0)
        if schedule.loads_ahead:
            return cls(replace(options, rows_per_block=1))
        if schedule.tabulates:
            return cls(RowSchedule(1, schedule.chunks_per_lane, tabulates=True))
        warps = schedule.warps_per_row // blocks
        if has_separate_parts(config) and blocks > 1:
            options = replace(options, blocks_per_row=1)
        elif warps > MAX_WARPS:
            warps = MOST_WARPS
        elif warps == PREFERRED_WARPS and blocks > 1:
            options = replace(options, chunks_per_lane=1)
        else:
            warps = 0
        threads = schedule.threads
        filled = [each for each in _FILLED_THREADS if _is_filled(config, schedule, each)]
        if filled:
            options = replace(options, lanes_per_row=WARP_LANES, rows_per_block=1)
        same = (each for each in _RESIDENT_THREADS if residents_of(each, threads) == residents)
        resident_threads = next(same, residents * threads) if residents else 0
        return cls(options, warps, filled[0] if filled else 0, resident_threads=resident_threads)

    def schedule(self, config: KernelConfig, target: Target) -> RowSchedule | None:
        """The schedule for a configuration; None if no such one fits it and the target."""
        if self.options.tabulates:
            found = tabulated(config, self.options.chunks_per_lane)
            return None if why_unfit(config, target, found) else found
        if self.filled_threads:
            divided = self._side_by_side(config)
        elif self.options.lanes_per_row < WARP_LANES:
            divided = self._packed(config)
        else:
            divided = self._divided(config)
        if divided is None:
            return None
        found = with_room_for_weight(config, self._residing(divided, config, target))
        found = with_room_for_bias(config, with_room_for_floats(config, found))
        if found.splits_chunks and why_not_split(config, found):
            found = replace(found, splits_chunks=False)
        if found.copies_parameters and found.stays_resident:
            return None if why_unfit(config, target, found) else found
        if found.copies_parameters and why_not_copied(config, target, found):
            found = replace(found, copies_parameters=False)
        if found.skips_chunks and why_not_skipped(config, found):
            found = replace(found, skips_chunks=False)
        if found.stays_resident and why_not_resident(config, found):
            found = replace(found, stays_resident=False, resident_blocks=0)
        return None if why_unfit(config, target, found) else found

    def _side_by_side(self, config: KernelConfig) -> RowSchedule | None:
        """Rows without idle lanes."""
        chunks, where = self.options.chunks_per_lane, self.where_others_idle
        found = side_by_side(config, chunks, self.filled_threads, where_others_idle=where)
        return found and replace(self.options, rows_per_block=found.rows_per_block, lanes_per_row=found.lanes_per_row)

    def _packed(self, config: KernelConfig) -> RowSchedule | None:
        """Rows that share warps, if their lanes need no more chunks than the form has."""
        chunks = ceil_div(chunks_of(config), self.options.lanes_per_row)
        return None if chunks > self.options.chunks_per_lane else replace(self.options, chunks_per_lane=chunks)

    def _divided(self, config: KernelConfig) -> RowSchedule:
        """The warps and blocks of a row."""
        groups, chunks, blocks = groups_of(config), self.options.chunks_per_lane, self.options.blocks_per_row
        is_parted = self.block_warps > 0 and blocks == 1 and has_separate_parts(config)
        if is_parted:
            blocks = ceil_div(groups, chunks * self.block_warps)
        if self.block_warps and blocks > 1 and (is_parted or self.block_warps != MOST_WARPS):
            warps = self.block_warps * blocks
        else:
            most = (self.block_warps or MAX_WARPS) * blocks
            warps = round_up(ceil_div(groups, max(chunks, ceil_div(groups, most))), blocks)
        rows = self.options.rows_per_block if warps == 1 else 1
        if not (is_parted and blocks > 1):
            chunks = ceil_div(groups, warps)
        return replace(
            self.options, warps_per_row=warps, chunks_per_lane=chunks, blocks_per_row=blocks, rows_per_block=rows
        )

    def _residing(self, divided: RowSchedule, config: KernelConfig, target: Target) -> RowSchedule:
        """The schedule with its number of resident blocks, if these have room for the row."""
        if divided.loads_ahead:
            return loading_ahead(config, target, divided)
        if not self.resident_threads:
            return divided
        blocks = residents_of(self.resident_threads, divided.threads)
        if divided.stays_resident and divided.copies_parameters:
            blocks = min(blocks, max(1, most_copies(config, target, divided)))
        residing = replace(divided, resident_blocks=blocks)
        return residing if have_room_for_row(config, residing) else divided


def _is_filled(config: KernelConfig, schedule: RowSchedule, threads: int) -> bool:
    """Whether rows lie side by side in the blocks that have so many threads at least."""
    found = side_by_side(config, schedule.chunks_per_lane, threads)
    if found is None or found.lanes_per_row != schedule.lanes_per_row:
        return False
    return found.rows_per_block == schedule.rows_per_block
