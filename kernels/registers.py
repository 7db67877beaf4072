"""Registers: what a lane can hold in them, and how many blocks then fit on a multiprocessor."""

from __future__ import annotations

from dataclasses import replace

from .config import KernelConfig
from .dtypes import DTYPES
from .numerics import CHUNK_SIZE, GROUP_CHUNKS, ceil_div
from .row_schedule import WARP_LANES, RowSchedule

# Bytes of a row that a lane can hold in registers, besides those that it computes with.
MAX_HELD_BYTES = 256
# The same including the weight, if that is loaded with the row; if they take more, it is loaded late.
MAX_PREFETCHED_BYTES = 192
# Registers of a multiprocessor, their bytes, and how many of them a thread gets at a time.
_REGISTERS, _REGISTER_BYTES, _GRANTED_REGISTERS = 65536, 4, 8
# Registers of a thread that do not hold its row, at least: of 2905 schedules with fewer that were measured on H100s and
# H200s, 25 are within 1 % of the fastest; the median takes 1.4 times as long. Gated norms and sums with norms, which
# hold two rows, need more: of 266 with 16 on an H200, three are; of 481 with 24, a quarter.
_LEAST_WORKING, _LEAST_WORKING_OF_TWO = 16, 24
# Not every target can have more threads or blocks resident.
MOST_RESIDENT_THREADS, _MOST_RESIDENTS = 1536, 32
# About how many threads a multiprocessor should have room for.
_RESIDENT_THREADS = 1024
# Chunks for which that many threads leave a lane enough registers, by bytes per held element.
_MOST_RESIDENT_CHUNKS = {2: 3, 4: 2, 8: 1}


def groups_of(config: KernelConfig) -> int:
    """Groups of a row, each consisting of one chunk from every lane of a warp."""
    return ceil_div(config.encoded_size, CHUNK_SIZE * GROUP_CHUNKS)


def has_room_for_weight(config: KernelConfig, chunks_per_lane: int, activates_early: bool = False) -> bool:
    """Whether a lane has room for so many chunks and their weight."""
    if not config.normalizes:
        return False
    of_parameters = config.weights * DTYPES[config.weight].bytes + 8 * config.modulation_bias
    held = DTYPES[config.input].bytes + DTYPES["float32"].bytes if activates_early else held_bytes(config)
    return chunks_per_lane * CHUNK_SIZE * (of_parameters + held) <= MAX_PREFETCHED_BYTES


def with_room_for_weight(config: KernelConfig, schedule: RowSchedule) -> RowSchedule:
    """The effective schedule: without a weight, or room for it, none is loaded early."""
    has_room = has_room_for_weight(config, schedule.chunks_per_lane, schedule.activates_early)
    if schedule.prefetches_weight and not has_room:
        return replace(schedule, prefetches_weight=False)
    return schedule


def with_room_for_floats(config: KernelConfig, schedule: RowSchedule) -> RowSchedule:
    """The effective schedule: persistent blocks that keep parameters unpack a row of float16 again.

    The compiler does not repeat conversions of float16, as it does those of bfloat16, and spills rows that are kept
    unpacked. On an H200, 23 calls of layer normalization to FP8, INT8 and MXFP8 take 0.91 of the time, 0.58 to 1.07.
    """
    if config.input == "float16" and schedule.stays_resident and schedule.keeps_unpacked:
        return replace(schedule, keeps_unpacked=False)
    return schedule


def with_room_for_bias(config: KernelConfig, schedule: RowSchedule) -> RowSchedule:
    """The effective schedule: a bias gets the registers of one of several resident blocks.

    Forms are fitted to RMSNorm without one. On an H200, nine drawn calls with a bias take 0.90 of the time, 0.58 to
    1.01: gated norms to FP8 of 6277 x 5280 51 us, not 88. With one resident block instead of two, 1460 x 21408 would
    take 1.28 times as long.
    """
    if config.bias and schedule.resident_blocks > 2 and not schedule.is_persistent:
        return replace(schedule, resident_blocks=schedule.resident_blocks - 1)
    return schedule


def most_held_chunks(element_bytes: int) -> int:
    """The number of chunks of elements of this size that a lane can hold."""
    return MAX_HELD_BYTES // (element_bytes * CHUNK_SIZE)


def held_bytes(config: KernelConfig) -> int:
    """Bytes of a held element: values computed from the input, and float32 inputs, are floats."""
    if config.combine in ("beside", "sandwich"):
        return 2 * DTYPES[config.input].bytes
    if config.prenorm:
        return config.streams * DTYPES[config.input].bytes
    if config.modulated:
        return 4 + 2 * DTYPES[config.input].bytes
    is_combined = config.combine not in ("input", "rescaled")
    return 4 if is_combined or config.input == "float32" else 2


def waits_for_row_amax(config: KernelConfig) -> bool:
    """Whether encoding blocks needs the row's amax first, so that a lane keeps the normalized row as floats."""
    return config.quant is not None and config.quant.has_blocks and config.quant.needs_row_amax


def may_store_sum_late(config: KernelConfig) -> bool:
    """Whether a row's sum with the residual can be stored while its blocks are encoded."""
    return config.residual and config.quant is not None and config.quant.has_blocks


def is_four_over_six(config: KernelConfig) -> bool:
    """Whether each block is encoded with two scales, which takes instructions rather than bandwidth."""
    return config.quant is not None and bool(config.quant.four_over_six)


def residents_of(threads: int, of_block: int) -> int:
    """The number of blocks of `of_block` threads that have about `threads` in all.

    Example:
        >>> residents_of(1024, 128), residents_of(1024, 320), residents_of(1536, 32)
        (8, 3, 32)
    """
    return max(1, min(_MOST_RESIDENTS, round(threads / of_block), MOST_RESIDENT_THREADS // of_block))


def have_room_for_row(config: KernelConfig, schedule: RowSchedule) -> bool:
    """Whether a schedule's resident blocks leave its threads enough registers to hold their rows."""
    if not schedule.resident_blocks or schedule.loads_ahead:
        return True
    element_bytes = schedule.rows_at_once * held_bytes(config)
    if schedule.stays_resident:  # with the next rows and, unless shared memory has them, the parameters
        element_bytes *= 2
        if not schedule.copies_parameters:
            element_bytes += (config.weights + config.has_bias) * DTYPES[config.weight].bytes
    held = schedule.chunks_per_lane * CHUNK_SIZE * element_bytes // _REGISTER_BYTES
    granted = _REGISTERS // (schedule.resident_blocks * schedule.threads) // _GRANTED_REGISTERS * _GRANTED_REGISTERS
    holds_two = config.combine in ("beside", "sandwich") and not schedule.stays_resident
    return granted - held >= (_LEAST_WORKING_OF_TWO if holds_two else _LEAST_WORKING)


def residents(config: KernelConfig, warps: int, chunks: int) -> int:
    """The number of blocks that a multiprocessor should have room for; 0 if their registers would not fit.

    SwiGLU to NVFP4 of 512 x 10240 went from 0.80 to 0.86 of the roofline, mHC of 4096 x 10240 from 0.74 to 0.85, layer
    normalization of 2048 x 18432 from 0.69 to 0.77. With four chunks a lane, 16384 x 8192 fell from 0.95 to 0.88.
    """
    if config.all_reduce:
        return 0  # the inputs of all ranks take registers
    is_heavy = config.op == "layernorm" and (config.needs_row_amax or config.combine == "branch")
    if is_heavy or chunks > _MOST_RESIDENT_CHUNKS.get(held_bytes(config), 0):
        return 0
    threads = WARP_LANES * warps
    # With one more block, threads would have 56 registers: too few for two parameters, for GELU, or to search for rows.
    if config.op == "layernorm" or config.activation == "gelu" or config.counts_rows:
        return max(1, _RESIDENT_THREADS // threads)
    return residents_of(_RESIDENT_THREADS, threads)
