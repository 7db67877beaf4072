"""Schedules of kernels whose rows are summed over ranks."""

from __future__ import annotations

from dataclasses import replace

from .config import KernelConfig
from .row_schedule import WARP_LANES, RowSchedule
from .target import Target


def for_ranks(config: KernelConfig, target: Target, schedule: RowSchedule) -> RowSchedule:
    """The schedule for a sum over ranks, from the rules or the configuration.

    Args:
        config: a configuration with `all_reduce`.
        target: the kernel's target.
        schedule: the schedule of a sum with a residual.

    Raises:
        ValueError: rows do not fit in registers, or the configuration's schedule lets rows share a block.
    """
    if schedule.chunks_at_once < schedule.chunks_per_lane:
        raise ValueError(
            f"input: has rows of {config.hidden_size}, too long for the registers of {target}, where rows that are "
            "summed over ranks have to stay"
        )
    has_block = schedule.rows_per_block * schedule.rows_at_once == 1
    one_by_one = config.passes_sums or config.all_reduce == "one_shot_scatter"
    if one_by_one and not has_block:
        if config.schedule:
            raise ValueError(
                f"schedule: is {config.schedule!r}, with which rows share a block; ranks await each row of others"
            )
        schedule, has_block = replace(schedule, rows_per_block=1, rows_at_once=1, lanes_per_row=WARP_LANES), True
    # There are few rows for all ranks, so optimizing for many gains nothing.
    if config.all_reduce in ("one_shot", "one_shot_scatter") and has_block and not config.schedule:
        return replace(schedule, takes_fast_path=True, favours_latency=True)
    return schedule
