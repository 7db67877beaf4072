"""Rows side by side: the next row begins in the same warp, so that short rows leave few lanes idle.

Where something is found of a row, such as its statistic, the lanes of a block meet in shared memory
(`cuda/side_by_side.cuh`).
"""

from __future__ import annotations

import math

from .config import KernelConfig
from .numerics import CHUNK_SIZE, GROUP_CHUNKS, ceil_div, next_power_of_two, round_up
from .registers import held_bytes, is_four_over_six, waits_for_row_amax
from .row_parts import has_separate_parts
from .row_schedule import WARP_LANES, RowSchedule

# Threads of the largest blocks in which rows lie side by side, and of the smallest ones by rule: rows of a block that
# meet wait for each other.
MOST_SIDE_BY_SIDE = 512
_LEAST_OF_PARTS, _LEAST_THAT_MEET = 128, 64
# Neighbouring lanes that fold what the lanes of a row have left in shared memory, each a part of it.
FOLDING_LANES = 4


def meets_side_by_side(config: KernelConfig) -> bool:
    """Whether lanes of rows side by side may find something of these together: of rows of one length, in one block.

    Example:
        >>> [meets_side_by_side(KernelConfig("rmsnorm", 640, pair=pair)) for pair in (False, True)]
        [True, False]
    """
    several = (config.pair, config.streams, config.rope, config.all_reduce, config.backward, config.amax_parts)
    crosses_warps = config.quant is not None and config.quant.crosses_warps
    return (config.normalizes or config.needs_row_amax) and not any(several) and not crosses_warps


def side_by_side(
    config: KernelConfig, chunks: int, threads: int, *, where_others_idle: bool = False
) -> RowSchedule | None:
    """Rows side by side, in blocks of at least so many threads; None if those are too large, or little is gained.

    Args:
        config: the configuration of a row-wise op.
        chunks: chunks per lane.
        threads: the least number of threads in a block.
        where_others_idle: only where a quarter of the lanes would be idle otherwise, which is always so for rows that
            meet, and for those of up to a group.

    Example:
        >>> swiglu = [KernelConfig("quantize", size, gate_columns=size) for size in (1152, 1168, 5760)]
        >>> [str(side_by_side(each, 1, 128)) for each in swiglu]
        ['1x1p4n72', 'None', 'None']
        >>> [str(side_by_side(KernelConfig("rmsnorm", size), 1, 64)) for size in (80, 320, 640, 720, 896)]
        ['None', '1x1p8n20', '1x1p4n40', '1x1p2n48', 'None']
    """
    count = ceil_div(config.encoded_size, CHUNK_SIZE)
    lanes, meets = ceil_div(count, chunks), meets_side_by_side(config)
    if where_others_idle or meets or count <= GROUP_CHUNKS:
        others = min(next_power_of_two(count), round_up(count, GROUP_CHUNKS))
        if 4 * count > 3 * others:
            return None
        if meets or count <= GROUP_CHUNKS or lanes * rows_that_fill(lanes) > MOST_SIDE_BY_SIDE:
            lanes = _in_few_rows(config, lanes)
        if lanes * chunks >= others:
            return None
    rows = rows_that_fill(lanes) * ceil_div(threads, lanes * rows_that_fill(lanes))
    if rows == 1 or lanes * rows > MOST_SIDE_BY_SIDE:
        return None
    return RowSchedule(1, chunks, rows_per_block=rows, lanes_per_row=lanes)


def rows_that_fill(lanes: int) -> int:
    """The fewest rows of so many lanes that fill warps."""
    return WARP_LANES // math.gcd(lanes, WARP_LANES)


def lanes_of_block(config: KernelConfig) -> int:
    """The lanes that share a block of values, with one chunk in each."""
    has_blocks = config.quant is not None and config.quant.has_blocks
    return ceil_div(config.block_size, CHUNK_SIZE) if has_blocks else 1


def _in_few_rows(config: KernelConfig, least: int) -> int:
    """The lanes of a row that needs so many at least: whole blocks of values, in as few rows as fill warps.

    On an H200, four rows of a norm with 40 lanes each take 0.93 to 0.98 of the time of eight with 36.
    """
    found = [round_up(least, max(WARP_LANES // rows, lanes_of_block(config))) for rows in (2, 4, 8)]
    return next((lanes for lanes in found if 5 * lanes < 6 * least), found[-1])


def of_small_rows(config: KernelConfig) -> RowSchedule | None:
    """Rows of up to a group side by side, with the options of norms; None if little is gained.

    The parameters of a sum with a branch are loaded late, because they take registers: on an H200, eight calls of
    `gated_add_layernorm` with many rows take 0.95 of the time.

    Example:
        >>> str(of_small_rows(KernelConfig("rmsnorm", 320)))
        '1x1wqp8n20'
    """
    beside = side_by_side(config, 1, _LEAST_OF_PARTS if has_separate_parts(config) else _LEAST_THAT_MEET)
    if beside is None or not config.normalizes:
        return beside
    is_light = config.op == "rmsnorm" and held_bytes(config) == 2 and not waits_for_row_amax(config)
    return RowSchedule(
        1, 1, prefetches_weight=config.combine != "branch", takes_fast_path=True,
        keeps_unpacked=is_light and (config.quant is not None or config.activates_norm),
        rows_per_block=beside.rows_per_block, lanes_per_row=beside.lanes_per_row,
    )  # fmt: skip


def gains_side_by_side(config: KernelConfig, row_class: str, *, shares_warps: bool) -> bool:
    """Whether rows of up to a group gain by that; docs/choices.md has figures.

    Args:
        config: the configuration of a kernel whose rows may lie side by side.
        row_class: the class of the call's rows, ``few``, ``usual`` or ``many``.
        shares_warps: whether rows would share warps otherwise, with several chunks per lane.
    """
    quant = config.quant
    is_fp4 = quant is not None and quant.element == "e2m1"
    has_given_scale = quant is not None and not (quant.has_blocks or config.needs_row_amax)
    if has_separate_parts(config):
        is_heavy = is_four_over_six(config) or (is_fp4 and config.activation.startswith("gelu"))
        return row_class == "usual" or (row_class == "many" and not is_heavy)
    if config.weights > 1 or (config.sandwich and quant is None and row_class != "many"):
        return False
    if row_class == "many":
        is_without_weight = config.op == "layernorm" and not config.has_weight
        return not (shares_warps and config.normalizes) or config.gate != "" or is_without_weight
    is_plain = config.combine == "input" and config.normalizes and not waits_for_row_amax(config)
    if row_class == "usual":
        return not (config.modulated or config.combine == "branch" or (is_plain and config.needs_row_amax))
    return config.op != "layernorm" and not waits_for_row_amax(config) and not (is_plain and has_given_scale)
