"""Persistent blocks that load rows ahead: when a schedule may have them, and what their shared memory holds."""

from __future__ import annotations

from dataclasses import replace

from .config import KernelConfig
from .dtypes import DTYPES
from .numerics import CHUNK_SIZE
from .registers import held_bytes
from .row_schedule import WARP_LANES, RowSchedule
from .target import Target

# Bytes of an asynchronous copy to shared memory.
AHEAD_BYTES = 16
# How many rows may share a block, each of which takes a named barrier, and for how many threads there are registers.
MOST_SHARING_ROWS = 15
# Rows of one group have a single warp, which needs no barrier: with 15 of them, layer normalization to FP8 of 37814 x
# 496 reaches 0.69 of a copy, with 24 0.87, with 32 0.86.
_SHARING_ROWS_OF_A_GROUP = 24
_SHARING_THREADS = 1024
# About how many threads of other blocks a multiprocessor should have room for, by the registers that a row takes in
# each.
_STAYING_THREADS, _HEAVY_REGISTERS, _HEAVY_THREADS = 1024, 32, 512


def shares_parameters(config: KernelConfig, schedule: RowSchedule) -> bool:
    """Whether the rows of a block share the parameters of a norm in its shared memory.

    Otherwise each thread would load them for each row from the L1 cache, and sort them.
    """
    return schedule.loads_ahead and not schedule.prefetches_weight and config.op == "layernorm" and config.has_weight


def sharing_rows(config: KernelConfig, target: Target, split: RowSchedule) -> RowSchedule:
    """A block with as many rows, divided as in `split`, as a multiprocessor has room for, which share parameters."""
    one = replace(split, prefetches_weight=False, loads_ahead=True, rows_per_block=1, resident_blocks=1)
    room = 1 + (target.shared_bytes - staged_bytes(config, one)) // staged_row_bytes(config)
    rows = min(_SHARING_THREADS // (WARP_LANES * split.warps_per_row), room, _most_sharing_rows(split))
    return replace(one, rows_per_block=max(1, rows))


def _most_sharing_rows(schedule: RowSchedule) -> int:
    is_group = schedule.warps_per_row == schedule.chunks_per_lane == 1
    return _SHARING_ROWS_OF_A_GROUP if is_group else MOST_SHARING_ROWS


def loading_ahead(config: KernelConfig, target: Target, split: RowSchedule) -> RowSchedule:
    """Persistent blocks of rows divided as in `split`, as many as fit in registers and shared memory."""
    ahead = replace(split, loads_ahead=True)
    if shares_parameters(config, ahead):
        return sharing_rows(config, target, ahead)
    is_heavy = split.chunks_per_lane * CHUNK_SIZE * held_bytes(config) > 4 * _HEAVY_REGISTERS
    threads = _HEAVY_THREADS if is_heavy else _STAYING_THREADS
    blocks = min(threads // (WARP_LANES * split.warps_per_row), target.shared_bytes // staged_row_bytes(config))
    return replace(ahead, resident_blocks=blocks)


def shared_chunks(schedule: RowSchedule) -> int:
    """Chunks of a parameter in shared memory: all that threads visit, even past the row."""
    return schedule.threads_per_row * schedule.chunks_per_lane


def staged_row_bytes(config: KernelConfig) -> int:
    """Bytes of a row, over all tensors that it is loaded from."""
    return config.hidden_size * DTYPES[config.input].bytes * (2 if config.residual else 1)


def staged_bytes(config: KernelConfig, schedule: RowSchedule) -> int:
    """Shared memory of a block, for rows in flight and for parameters."""
    of_rows = schedule.rows_per_block * staged_row_bytes(config)
    if not shares_parameters(config, schedule):
        return of_rows
    return of_rows + 2 * shared_chunks(schedule) * CHUNK_SIZE * DTYPES[config.weight].bytes


def why_not_ahead(config: KernelConfig, target: Target, schedule: RowSchedule) -> str:
    """Why blocks of a schedule cannot load a row ahead, as the end of a sentence; empty if they can."""
    several = (
        config.pair, config.batched, config.masked, config.streams, config.activation, config.weight_rows > 1,
        config.sandwich, config.weights > 1, config.combine == "branch", config.all_reduce,
    )  # fmt: skip
    if not config.normalizes or any(several):
        return "only norms of one tensor, or of one and its residual, load a row ahead"
    if config.quant is not None and config.quant.crosses_warps:
        return f"blocks of {config.quant.block_size} values take the shared memory of rows that are loaded ahead"
    is_whole = config.encoded_size == config.hidden_size and config.hidden_size % CHUNK_SIZE == 0
    if config.vector_bytes < AHEAD_BYTES or not is_whole:
        return f"rows that are loaded ahead are whole chunks in accesses of {AHEAD_BYTES} bytes"
    shares = shares_parameters(config, schedule) and schedule.rows_per_block <= _most_sharing_rows(schedule)
    if schedule.rows_at_once > 1 or (schedule.rows_per_block > 1 and not shares) or schedule.blocks_per_row > 1:
        return "a block that loads a row ahead has one row"
    if not schedule.resident_blocks:
        return "blocks that load a row ahead are as many as run at once: say how many with o"
    of_block = staged_bytes(config, schedule)
    if schedule.resident_blocks * of_block > target.shared_bytes:
        return f"a multiprocessor has shared memory for {target.shared_bytes // of_block} rows"
    return ""
