"""Schedules of kernels whose rows are summed over ranks."""

from __future__ import annotations

from dataclasses import replace

from .config import KernelConfig
from .row_schedule import CHUNKS_AT_ONCE, RowSchedule
from .target import Target


def for_ranks(config: KernelConfig, target: Target, schedule: RowSchedule) -> RowSchedule:
    """The schedule that the rules or the configuration give, for a sum over ranks.

    Args:
        config: with `all_reduce`.
        target: of the kernel.
        schedule: as for another sum.

    Raises:
        ValueError: rows do not stay in registers, or have no blocks of their own where they have to.
    """
    if not (schedule.holds_row and schedule.chunks_per_lane <= CHUNKS_AT_ONCE):
        raise ValueError(
            f"input: has rows of {config.hidden_size}, too long for the registers of {target}, where rows that are "
            "summed over ranks have to stay"
        )
    has_block = schedule.rows_per_block * schedule.rows_at_once == 1
    if config.passes_sums and not has_block:
        raise ValueError(
            f"all_reduce: is 'two_shot' with rounds_sum, for rows that have blocks of their own, but rows of "
            f"{config.hidden_size} share one; use 'sharded' or 'one_shot'"
        )
    # Those that go to all ranks are few, and nothing is gained by their number.
    if config.all_reduce == "one_shot" and has_block and not config.schedule:
        return replace(schedule, takes_fast_path=True, favours_latency=True)
    return schedule
