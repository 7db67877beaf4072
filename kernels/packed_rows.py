"""Short rows that share a warp: each has a power of two of its lanes, which have several chunks each."""

from __future__ import annotations

from collections.abc import Iterator

from .config import KernelConfig
from .numerics import CHUNK_SIZE, ceil_div
from .registers import held_bytes, most_held_chunks
from .row_schedule import CHUNKS_AT_ONCE, WARP_LANES, RowSchedule


def chunks_of(config: KernelConfig) -> int:
    """Chunks of a row."""
    return ceil_div(config.encoded_size, CHUNK_SIZE)


def packings(config: KernelConfig) -> Iterator[RowSchedule]:
    """The divisions of a row among lanes of a warp, those with the most lanes first."""
    for lanes in (16, 8, 4, 2, 1):
        chunks = ceil_div(chunks_of(config), lanes)
        packing = RowSchedule(1, chunks, rows_per_block=WARP_LANES // lanes, lanes_per_row=lanes)
        if not why_not_packed(config, packing):
            yield packing


def why_not_packed(config: KernelConfig, schedule: RowSchedule) -> str:
    """Why rows cannot share a warp as in a schedule, as the end of a sentence; empty if they can."""
    lanes, chunks, count = schedule.lanes_per_row, schedule.chunks_per_lane, chunks_of(config)
    most = min(CHUNKS_AT_ONCE, most_held_chunks(held_bytes(config)))
    if schedule.warps_per_row > 1 or schedule.blocks_per_row > 1 or schedule.loads_ahead:
        return "rows that share a warp have no other, and are not loaded ahead"
    if chunks != ceil_div(count, lanes):
        return f"the {count} chunks of a row are not {chunks} or one less for each of {lanes} lanes"
    if chunks * schedule.rows_at_once > most:
        return f"a lane holds {most} chunks"
    if lanes * schedule.rows_per_block % WARP_LANES or schedule.threads > 1024:
        return "blocks are up to 32 whole warps"
    if config.rope or config.all_reduce or config.backward or config.amax_parts:
        return "heads that are rotated, rows of several ranks, gradients and threads that find an amax are not packed"
    if config.quant is not None and config.quant.has_blocks and config.quant.block_columns > lanes * CHUNK_SIZE:
        return f"a block of {config.quant.block_columns} elements has more lanes than {lanes}"
    return ""
