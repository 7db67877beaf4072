"""ScheduleForm: a schedule for rows of any length, such as "two chunks per lane, the weight loaded early"."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from .config import KernelConfig
from .numerics import ceil_div, round_up
from .registers import MOST_RESIDENT_THREADS, groups_of, residents_of, with_room_for_weight
from .row_parts import has_separate_parts
from .row_schedule import RowSchedule
from .rows_ahead import loading_ahead
from .schedule import MAX_WARPS, PREFERRED_WARPS, why_unfit
from .target import Target

# About how many threads a multiprocessor should have room for, where schedules do not leave that to the compiler.
_RESIDENT_THREADS = (MOST_RESIDENT_THREADS, 1024, 512)
_TEXT = re.compile(r"(?P<chunks>\d+)(?:/(?P<warps>\d+))?(?P<options>[^t]*)(?:t(?P<threads>\d+))?")


@dataclass(frozen=True)
class ScheduleForm:
    """The part of schedules that is the same at all lengths.

    Its text is that of a RowSchedule without the warps of a row, with those of a block if that has so many at any
    length, and with threads instead of resident blocks: ``2``, ``1wu``, ``1/4``, ``1/8b2``, ``2wt1024``.

    Args:
        options: the chunks per lane, which are more only for rows that are too long, and everything else that does not
            depend on the length; its warps and resident blocks do not count.
        block_warps: warps of each of a row's blocks. With separate parts, rows have as many blocks as needed; in a
            cluster, lanes have as many chunks as needed. 0: as many warps as the chunks leave.
        resident_threads: about how many threads a multiprocessor should have room for; 0 leaves it to the compiler.

    Example:
        >>> form = ScheduleForm.parse("2wt1024")
        >>> [str(form.schedule(KernelConfig("rmsnorm", size), Target("sm_90a"))) for size in (4096, 6000)]
        ['4x2wo8', '6x2wo5']
    """

    options: RowSchedule
    block_warps: int = 0
    resident_threads: int = 0

    def __str__(self) -> str:
        chunks = self.options.chunks_per_lane
        others = str(self.options).removeprefix(f"{self.options.warps_per_row}x{chunks}")
        of_block = f"/{self.block_warps}" if self.block_warps else ""
        return f"{chunks}{of_block}{others}" + (f"t{self.resident_threads}" if self.resident_threads else "")

    @classmethod
    def parse(cls, text: str) -> ScheduleForm:
        """Parse a text; ValueError if it is not that of a form."""
        found = _TEXT.fullmatch(text)
        if found is None:
            raise ValueError(f"schedule form: is {text!r}; write chunks per lane and options, such as 2w or 1/4t1536")
        options = RowSchedule.parse(f"1x{found['chunks']}{found['options']}")
        return cls(options, int(found["warps"] or 0), int(found["threads"] or 0))

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
        warps = schedule.warps_per_row // blocks if blocks > 1 else 0
        if has_separate_parts(config):
            options = replace(options, blocks_per_row=1)
        elif warps == PREFERRED_WARPS:
            options = replace(options, chunks_per_lane=1)
        else:
            warps = 0
        same = (each for each in _RESIDENT_THREADS if residents_of(each, schedule.threads) == residents)
        return cls(options, warps, next(same, residents * schedule.threads) if residents else 0)

    def schedule(self, config: KernelConfig, target: Target) -> RowSchedule | None:
        """The schedule for a configuration; None if no such one fits it and the target."""
        found = with_room_for_weight(config, self._residing(self._divided(config), config, target))
        return None if why_unfit(config, target, found) else found

    def _divided(self, config: KernelConfig) -> RowSchedule:
        """The warps and blocks of a row."""
        groups, chunks, blocks = groups_of(config), self.options.chunks_per_lane, self.options.blocks_per_row
        is_parted = self.block_warps > 0 and blocks == 1
        if is_parted:
            blocks = ceil_div(groups, chunks * self.block_warps)
        if self.block_warps and blocks > 1:
            warps = self.block_warps * blocks
        else:
            warps = round_up(ceil_div(groups, max(chunks, ceil_div(groups, MAX_WARPS * blocks))), blocks)
        rows = self.options.rows_per_block if warps == 1 else 1
        if not (is_parted and blocks > 1):
            chunks = ceil_div(groups, warps)
        return replace(
            self.options, warps_per_row=warps, chunks_per_lane=chunks, blocks_per_row=blocks, rows_per_block=rows
        )

    def _residing(self, divided: RowSchedule, config: KernelConfig, target: Target) -> RowSchedule:
        """The same with its number of resident blocks."""
        if divided.loads_ahead:
            return loading_ahead(config, target, divided)
        if not self.resident_threads:
            return divided
        return replace(divided, resident_blocks=residents_of(self.resident_threads, divided.threads))
