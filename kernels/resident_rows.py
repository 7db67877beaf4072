"""Persistent blocks that keep the parameters of a norm in registers: when a schedule may have them."""

from __future__ import annotations

from .config import KernelConfig
from .registers import has_room_for_weight
from .row_schedule import RowSchedule


def why_not_resident(config: KernelConfig, schedule: RowSchedule) -> str:
    """Why blocks of a schedule cannot keep the parameters in registers, as the end of a sentence; empty if they can."""
    several = (
        config.pair, config.batched, config.gathers, config.sinkhorn, config.prenorm, config.rope,
        config.weight_rows > 1, config.sandwich, config.all_reduce, config.backward, config.amax_parts,
    )  # fmt: skip
    if not config.normalizes or any(several):
        return "only norms of a single tensor, whose rows all have the same parameters, keep them"
    if config.quant is not None and config.quant.crosses_warps:
        return f"blocks of {config.quant.block_size} values take shared memory that is read while a row begins"
    if schedule.loads_ahead or schedule.copies_parameters or schedule.blocks_per_row > 1 or not schedule.holds_row:
        return "blocks that keep the parameters hold whole rows, and load both into registers alone"
    if not schedule.prefetches_weight:
        return "parameters that are kept are loaded early: say so with w"
    chunks = schedule.chunks_per_lane
    if config.has_weight and not has_room_for_weight(config, chunks):
        return f"parameters in {config.weight} of {chunks} chunks are more than a lane has room for"
    if not schedule.resident_blocks:
        return "blocks that keep the parameters are as many as run at once: say how many with o"
    return ""
