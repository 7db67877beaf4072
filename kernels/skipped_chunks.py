"""Chunks past a row, which warps skip or compute as zeros: when a schedule may skip them.

Where the groups of a row are not a multiple of its warps, some warps have one chunk per lane less than others. As
zeros, it takes as many instructions as any other, which slows norms to FP4 and those with an activation, but all warps
run the same code, in which the compiler interleaves chunks.
"""

from __future__ import annotations

from .config import KernelConfig
from .registers import groups_of
from .row_schedule import WARP_LANES, RowSchedule


def why_not_skipped(config: KernelConfig, schedule: RowSchedule) -> str:
    """Why no warp of a schedule skips a chunk, as the end of a sentence; empty if some do."""
    if not config.normalizes or config.second_size:
        return "only norms of rows of one length skip what lies past them"
    if config.quant is not None and config.quant.crosses_warps:
        return f"blocks of {config.quant.block_size} values share the magnitudes of all chunks"
    if schedule.splits_chunks or schedule.lanes_per_row != WARP_LANES:
        return "warps that skip chunks have whole chunks of one row"
    fills = groups_of(config) % schedule.warps_per_row == 0
    return f"all {schedule.warps_per_row} warps have {schedule.chunks_per_lane} chunks per lane" if fills else ""
