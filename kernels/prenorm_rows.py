"""How to divide rows of streams that are mixed after a sum over them; threads compute factors of several rows last."""

from __future__ import annotations

from .config import KernelConfig
from .numerics import ceil_div
from .packed_rows import packed_streams_schedule
from .registers import groups_of, held_bytes, most_held_chunks
from .row_schedule import RowSchedule
from .short_rows import small_row_schedule

_MOST_CHUNKS = 2
# Rows of up to so many groups have one chunk per lane.
_SHORT_GROUPS = 4
# Blocks of at least `_PERSISTENT_WARPS` warps, which compute the factors of their rows last, are as many as run at
# once: about `_RESIDENT_WARPS` warps per multiprocessor.
_PERSISTENT_WARPS, _RESIDENT_WARPS = 7, 24


def may_hold(config: KernelConfig, warps: int) -> bool:
    """Whether a block of so many warps holds a row."""
    return groups_of(config) <= warps * min(_MOST_CHUNKS, most_held_chunks(held_bytes(config)))


def prenorm_schedule(config: KernelConfig) -> RowSchedule:
    """Blocks with several rows each, whose factors their threads then compute together.

    On an H100, 20000 x 640 went from 0.36 of a copy to 0.85, 12000 x 1200 from 0.76 to 0.87, 3000 x 6144 from 0.88 to
    0.94, 1000 x 12288 from 0.63 to 0.84.
    """
    groups = groups_of(config)
    if most_held_chunks(held_bytes(config)) < _MOST_CHUNKS:
        return RowSchedule(groups, 1)
    if groups == 1:
        return packed_streams_schedule(config) or small_row_schedule(config)
    if groups == 2:
        return RowSchedule(1, 2, rows_per_block=4, resident_blocks=4)
    if groups <= _SHORT_GROUPS:
        return RowSchedule(groups, 1, resident_blocks=6 if groups == 3 else 0)
    warps = ceil_div(groups, _MOST_CHUNKS)
    blocks = min(2, max(1, _RESIDENT_WARPS // warps)) if warps >= _PERSISTENT_WARPS else 0
    return RowSchedule(warps, ceil_div(groups, warps), resident_blocks=blocks)
