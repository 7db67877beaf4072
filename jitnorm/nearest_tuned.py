"""Schedules for rows whose length no table lists: that of the nearest tuned length, adapted to fit.

At random lengths in between, calls take 2.4 % more time than with the fastest schedule, or 5.6 % by the rules alone;
see docs/measured.md.
"""

from __future__ import annotations

import math
from dataclasses import replace

from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.numerics import ceil_div, round_up
from jitnorm.kernels.registers import groups_of
from jitnorm.kernels.row_parts import has_separate_parts
from jitnorm.kernels.row_schedule import WARP_LANES, RowSchedule
from jitnorm.kernels.schedule import MAX_WARPS, least_idle_chunks

# Elements per row that `jitnorm tune` measures by default.
HIDDEN_SIZES = (1536, 2048, 3072, 4096, 5120, 6144, 7168, 8192, 12288, 16384, 24576, 32768)
# Beyond this ratio of lengths, the rules choose.
_FARTHEST = 1.5
# Not every target can have more threads or blocks resident.
_MOST_THREADS, _MOST_BLOCKS = 1536, 32


def nearest_tuned(key: KernelConfig) -> KernelConfig | None:
    """The tuning key of the nearest length in `HIDDEN_SIZES`; None if it is too far away, or the same.

    Example:
        >>> nearest_tuned(KernelConfig("rmsnorm", 5376)).hidden_size, nearest_tuned(KernelConfig("rmsnorm", 128))
        (5120, None)
    """
    size = min(HIDDEN_SIZES, key=lambda each: abs(math.log(each / key.hidden_size)))
    ratio = max(size / key.hidden_size, key.hidden_size / size)
    if not 1 < ratio <= _FARTHEST:
        return None
    gate_columns = size if key.gate_columns == key.hidden_size else key.gate_columns
    try:
        return replace(
            key, hidden_size=size, gate_columns=gate_columns, second_size=key.second_size * size // key.hidden_size
        )
    except ValueError:  # the other fields do not allow this length
        return None


def fitted(schedule: RowSchedule, config: KernelConfig) -> RowSchedule:
    """Adapt a schedule for another length, with about as many chunks per lane and threads per multiprocessor.

    Example:
        >>> str(fitted(RowSchedule.parse("10x2o3"), KernelConfig("rmsnorm", 5376)))
        '6x2o5'
    """
    groups, blocks = groups_of(config), schedule.blocks_per_row
    chunks = least_idle_chunks(config, max(schedule.chunks_per_lane, ceil_div(groups, blocks * MAX_WARPS)))
    if blocks > 1 and has_separate_parts(config):  # blocks of the same size, as many as needed
        blocks = ceil_div(groups, chunks * schedule.warps_per_row // blocks)
    warps = round_up(ceil_div(groups, chunks), blocks)
    # More chunks may not fit in registers: add + MXFP4 of 512 x 18176 took 1.21 times as long as the rules' schedule.
    has_room = chunks <= schedule.chunks_per_lane or schedule.loads_ahead
    may_ask = has_room and not (config.gate_columns and chunks == 1)
    return replace(
        schedule,
        warps_per_row=warps,
        chunks_per_lane=ceil_div(groups, warps),
        rows_per_block=_rows_per_block(schedule, warps),
        blocks_per_row=blocks,
        resident_blocks=_residents(schedule, warps) if may_ask else 0,
    )


def _rows_per_block(schedule: RowSchedule, warps: int) -> int:
    if schedule.loads_ahead:  # as many threads as before
        return max(1, schedule.rows_per_block * schedule.warps_per_row // warps)
    return schedule.rows_per_block if warps == 1 else 1


def _residents(schedule: RowSchedule, warps: int) -> int:
    if not schedule.resident_blocks:
        return 0
    most = min(_MOST_BLOCKS, _MOST_THREADS * schedule.blocks_per_row // (WARP_LANES * warps))
    # Lanes with several chunks have no registers to spare: with a tenth more threads, layer normalization of 512 x
    # 10624 took 1.27 times as long as the fastest.
    blocks = schedule.resident_blocks * schedule.warps_per_row / warps
    return max(1, min(most, round(blocks) if schedule.chunks_per_lane == 1 else int(blocks)))
