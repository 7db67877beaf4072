"""Persistent blocks that keep the parameters of a norm, in registers or shared memory: when a schedule may have them.

In registers (``wk``), parameters are the fastest, but float32 ones of layer normalization take 32 for each chunk of a
lane. In shared memory (``ck``), they leave these to more rows, or to rows that are longer.
"""

from __future__ import annotations

from .config import KernelConfig
from .registers import has_room_for_weight
from .row_schedule import RowSchedule

# Blocks that may share a row: clusters of two run on all multiprocessors at once, larger ones do not. Of 264 blocks
# that an H200 has room for, 248 run at once in clusters of four, and the others would begin when these end.
_MOST_BLOCKS = 2


def why_not_resident(config: KernelConfig, schedule: RowSchedule) -> str:
    """Why blocks of a schedule cannot keep the parameters, as the end of a sentence; empty if they can."""
    several = (
        config.pair, config.batched, config.gathers, config.sinkhorn, config.prenorm, config.rope,
        config.weight_rows > 1, config.sandwich, config.all_reduce, config.backward, config.amax_parts,
    )  # fmt: skip
    if not config.normalizes or any(several):
        return "only norms of a single tensor, whose rows all have the same parameters, keep them"
    if config.quant is not None and config.quant.crosses_warps:
        return f"blocks of {config.quant.block_size} values take shared memory that is read while a row begins"
    if schedule.loads_ahead or not schedule.holds_row:
        return "blocks that keep the parameters hold rows in registers, into which they request the next"
    if schedule.blocks_per_row > _MOST_BLOCKS:
        return f"up to {_MOST_BLOCKS} blocks that keep the parameters share a row"
    if not schedule.copies_parameters and (reason := _why_not_in_registers(config, schedule)):
        return reason
    if not schedule.resident_blocks:
        return "blocks that keep the parameters are as many as run at once: say how many with o"
    return ""


def _why_not_in_registers(config: KernelConfig, schedule: RowSchedule) -> str:
    chunks = schedule.chunks_per_lane
    if not schedule.prefetches_weight:
        return "parameters that are kept are loaded early, or copied to shared memory: say so with w or c"
    if config.has_weight and not has_room_for_weight(config, chunks):
        return f"parameters in {config.weight} of {chunks} chunks are more than a lane has room for"
    return ""
