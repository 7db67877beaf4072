"""Rows with separate parts: blocks that share such a row exchange nothing, so any number can share it on any GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .config import KernelConfig
from .numerics import ceil_div
from .row_schedule import RowSchedule

# The maximum number of blocks that share a row without a cluster, as limited by a schedule's text.
MOST_BLOCKS = 99
# Warps in each block of a long row, with two chunks per lane, or one chunk of gates.
_WARPS_OF_LONG_ROW = 8


def has_separate_parts(config: KernelConfig) -> bool:
    """Whether nothing is computed over a whole row, only over its blocks.

    Example:
        >>> has_separate_parts(KernelConfig("quantize", 4096, weight="none", gate_columns=4096))
        True
        >>> has_separate_parts(KernelConfig("rmsnorm", 4096))
        False
    """
    is_plain = config.is_row_wise and not (config.normalizes or config.masked or config.streams)
    return is_plain and not config.needs_row_amax


def of_long_row(config: KernelConfig, groups: int) -> RowSchedule | None:
    """The blocks of a row that no registers of a block hold; None if its parts are not separate, or too many."""
    chunks = 1 if config.gate_columns else 2
    blocks = ceil_div(groups, chunks * _WARPS_OF_LONG_ROW)
    if not has_separate_parts(config) or blocks > MOST_BLOCKS:
        return None
    return RowSchedule(_WARPS_OF_LONG_ROW * blocks, chunks, blocks_per_row=blocks)


def of_few_rows(groups: int, blocks_of: Sequence[int]) -> RowSchedule | None:
    """Small blocks for a row of so many groups, with one chunk per lane; None if there are too many.

    Args:
        groups: the number of groups in the row.
        blocks_of: the allowed numbers of warps per block; the first that leaves the fewest idle is used.

    Example:
        >>> [str(of_few_rows(groups, (4, 5, 6, 7, 8, 3))) for groups in (2, 7, 14, 16, 23)]
        ['2x1', '7x1', '14x1b2', '16x1b4', '24x1b6']
    """
    warps = min(blocks_of, key=lambda each: ceil_div(groups, each) * each)
    warps = min(warps, groups)
    blocks = ceil_div(groups, warps)
    return RowSchedule(warps * blocks, 1, blocks_per_row=blocks) if blocks <= MOST_BLOCKS else None


def of_rows_that_fill(groups: int) -> RowSchedule | None:
    """Blocks of four warps with one chunk per lane, twelve per multiprocessor; None if a row has too many.

    In a block with three chunks per lane, SwiGLU to FP8 groups of 3072 x 21760 took 1.36 times as long.
    """
    schedule = of_few_rows(groups, (4,))
    return schedule and replace(schedule, resident_blocks=12)
