"""Schedules of kernels whose rows are summed over ranks."""

from __future__ import annotations

from dataclasses import replace

from .config import KernelConfig
from .row_schedule import CHUNKS_AT_ONCE, WARP_LANES, RowSchedule
from .target import Target


def for_ranks(config: KernelConfig, target: Target, schedule: RowSchedule) -> RowSchedule:
    """The schedule that the rules or the configuration give, for a sum over ranks.

    Args:
        config: with `all_reduce`.
        target: of the kernel.
        schedule: as for another sum.

    Raises:
        ValueError: rows do not stay in registers, or share a block by the configuration's schedule where none may.
    """
    if not (schedule.holds_row and schedule.chunks_per_lane <= CHUNKS_AT_ONCE):
        raise ValueError(
            f"input: has rows of {config.hidden_size}, too long for the registers of {target}, where rows that are "
            "summed over ranks have to stay"
        )
    has_block = schedule.rows_per_block * schedule.rows_at_once == 1
    if config.passes_sums and not has_block:
        if config.schedule:
            raise ValueError(
                f"schedule: is {config.schedule!r}, by which rows share a block; a rank awaits each row's sum by itself"
            )
        return replace(schedule, rows_per_block=1, rows_at_once=1, lanes_per_row=WARP_LANES)
    # Those that go to all ranks are few, and nothing is gained by their number.
    if config.all_reduce == "one_shot" and has_block and not config.schedule:
        return replace(schedule, takes_fast_path=True, favours_latency=True)
    return schedule
