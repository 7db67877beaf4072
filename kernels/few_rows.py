"""Schedules for calls with too few rows to fill a GPU, where the latency of a single row counts."""

from __future__ import annotations

from dataclasses import replace

from .config import KernelConfig
from .early_activations import activating_early
from .numerics import ceil_div, round_up
from .registers import (
    groups_of,
    has_room_for_weight,
    held_bytes,
    is_four_over_six,
    may_store_sum_late,
    residents,
    residents_of,
)
from .row_parts import has_separate_parts, of_few_rows, of_rows_that_fill
from .row_schedule import WARP_LANES, RowSchedule
from .schedule import MAX_WARPS, PREFERRED_CHUNKS, PREFERRED_WARPS, row_schedule, why_unfit
from .short_rows import SINGLE_WARP_GROUPS, scales_columns, usual_small_schedule
from .target import Target

# Warps of blocks with parts of a short row, in order of preference among those that leave the fewest idle; longer rows
# have blocks of four: with six, SwiGLU of 512 x 20864 took 1.18 times as long as the fastest.
_WARPS, _WARPS_OF_LONGER = (4, 5, 6, 7, 8, 3), (4,)
_LONGER_GROUPS = 12
# Warps of blocks that find an amax, of which there are at most 256: with four, 128 x 8704 to FP8 took 4.6 us, not 4.1.
_WARPS_OF_AMAX = (8, 9, 10, 7, 6)
# If elements take many instructions, half as many warps use twice the multiprocessors: four over six of 1 to 128 rows
# took 1.14 times as long as the fastest with four, 1.06 with two.
_WARPS_OF_FOUR_OVER_SIX = (2, *_WARPS)
# For 256 or more rows, longer ones are split: in one block, NVFP4 of 22144 columns took 1.07 times as long as the
# fastest.
_PARTED_GROUPS = 20
# Clusters of so many blocks share the fewest rows: on an H200, with one chunk in each lane, they take 1.04 to 1.09
# times as long as with the fastest schedule in the mean, whatever their length from 3072 columns on.
_BLOCKS = 8
_MOST_CHUNKS = 3
# Longer rows of norms, which take more than four chunks in each lane of a block, and the blocks that share them: on an
# H200, 72 calls of 33 to 1280 rows of 33280 to 65536 columns take 0.71 of the time, two more than 1.02, up to 1.23.
_LONG_GROUPS, _BLOCKS_OF_LONG_ROWS = 4 * MAX_WARPS, 4
# About how many threads a multiprocessor should have room for, by chunks per lane, of gated rows with a computed scale.
# With fewer registers, the activations of a second chunk wait for the first: SwiGLU to FP8 by token of 51 x 8704 takes
# 3.20 us with 9x2o3, 3.04 with 9x2o2.
GATED_THREADS = {1: 1024, 2: 512, 3: 512}
# Classes of calls that need up to three waves.
_WAVES = ("some", "several")
# Groups of the longest rows whose blocks signal dependents late, in general and to FP4.
_LATE_GROUPS, _LATE_GROUPS_OF_FP4 = 11, 8


def few_rows_schedule(config: KernelConfig, target: Target, row_class: str) -> str:
    """The schedule for too few rows to fill a GPU, as text; empty if the rules' is as fast.

    Example:
        >>> swiglu, hopper = KernelConfig("quantize", 11648, weight="none", gate_columns=11648), Target("sm_90a")
        >>> few_rows_schedule(swiglu, hopper, "few"), few_rows_schedule(swiglu, hopper, "usual")
        ('24x1b6o8', '')
        >>> few_rows_schedule(KernelConfig("rmsnorm", 5376), hopper, "few")
        '11x1wuqld'
        >>> few_rows_schedule(KernelConfig("rmsnorm", 18432), hopper, "fewest")
        '40x1wuqlb8'
    """
    found = _schedule_of_class(config, target, row_class)
    schedule = None if found is None else activating_early(config, found)
    return "" if schedule is None or why_unfit(config, target, schedule) else str(schedule)


def _schedule_of_class(config: KernelConfig, target: Target, row_class: str) -> RowSchedule | None:
    """The schedule of a class of rows, which may not fit; None for the rules'."""
    groups = groups_of(config)
    if config.all_reduce:
        return None
    if row_class == "usual":
        return usual_small_schedule(config) if groups == 1 else None
    if row_class not in ("fewest", "few", *_WAVES) or groups == 1 or config.backward:
        return None
    if row_class == "fewest":
        schedule = _in_cluster(config)
        if schedule is not None and not why_unfit(config, target, schedule):
            return schedule
        row_class = "few"
    if config.amax_parts and not config.normalizes:
        return of_few_rows(groups, _WARPS_OF_AMAX) if row_class == "few" else None
    if has_separate_parts(config):
        return _of_parts(config, row_class)
    if config.prenorm and row_class == "few" and groups <= MAX_WARPS:
        # Rows that share a block would leave multiprocessors idle: 16 x 640 would take 6 % longer.
        return RowSchedule(groups, 1)
    if config.normalizes:
        return _of_norm(config, target, row_class)
    return _of_gates(config) if config.gate_columns and row_class == "few" else None


def _of_parts(config: KernelConfig, row_class: str) -> RowSchedule | None:
    """Small blocks, each with a part of a row.

    Blocks of four warps with one chunk per lane were within 1 to 5 % of the fastest of 24 schedules from 2048 to 26880
    columns, in the mean over 1, 16 and 128 rows. One block per row took 1.19 to 1.24 times as long for quantization,
    1.29 to 1.42 for SwiGLU, and 1.13 for 256 to 1024 rows of SwiGLU.
    """
    groups = groups_of(config)
    if is_four_over_six(config):
        if row_class == "few":
            return of_few_rows(groups, _WARPS_OF_FOUR_OVER_SIX)
        chunks = ceil_div(groups, MAX_WARPS)
        return RowSchedule(ceil_div(groups, chunks), chunks)
    if row_class in _WAVES and scales_columns(config) and groups <= SINGLE_WARP_GROUPS:
        return RowSchedule(groups, 1)  # rows that threads work on together would leave multiprocessors idle
    if row_class in _WAVES and not config.gate_columns and groups < _PARTED_GROUPS:
        return None
    if row_class in _WAVES and groups >= _LONGER_GROUPS:
        return of_rows_that_fill(groups)
    schedule = of_few_rows(groups, _WARPS if groups < _LONGER_GROUPS else _WARPS_OF_LONGER)
    return schedule and replace(schedule, resident_blocks=residents(config, schedule.threads // WARP_LANES, 1))


def _of_norm(config: KernelConfig, target: Target, row_class: str) -> RowSchedule | None:
    """One chunk per lane, up to a block's warps, and everything else that shortens a row's latency.

    For seven ops at seven lengths, 1 to 128 rows took 1.02 times as long as the fastest of 24 schedules in the mean;
    with the schedules of usual calls, 1.21.
    """
    groups = groups_of(config)
    if _LONG_GROUPS < groups <= 2 * _LONG_GROUPS and held_bytes(config) == 2 and _gains_by_blocks(config, row_class):
        warps = round_up(ceil_div(groups, PREFERRED_CHUNKS), _BLOCKS_OF_LONG_ROWS)
        return RowSchedule(
            warps, ceil_div(groups, warps), takes_fast_path=True, signals_late=True,
            blocks_per_row=_BLOCKS_OF_LONG_ROWS,
        )  # fmt: skip
    if row_class in _WAVES:
        if not row_schedule(config, target).is_persistent:
            return None
        # Few rows need not share a persistent block: layer normalization to FP8 took 1.20 times as long as the fastest.
        return _shortest(config, ceil_div(groups, PREFERRED_WARPS))
    if config.prenorm:
        return None
    return _shortest(config, ceil_div(groups, MAX_WARPS), is_fast=True)


def _gains_by_blocks(config: KernelConfig, row_class: str) -> bool:
    """Whether long rows of a class gain if blocks share them, although the magnitudes of a row wait for all of them."""
    return row_class != "several" or (config.op == "rmsnorm" and not config.needs_row_amax)


def _in_cluster(config: KernelConfig) -> RowSchedule | None:
    """A chunk per lane in blocks of a cluster; None for rows whose blocks need no more than the row."""
    groups = groups_of(config)
    if has_separate_parts(config) or config.prenorm or config.amax_parts:
        return None
    warps = round_up(groups, _BLOCKS)
    chunks = ceil_div(groups, warps)
    return RowSchedule(
        warps,
        chunks,
        prefetches_weight=has_room_for_weight(config, chunks),
        keeps_unpacked=config.normalizes and held_bytes(config) == 2,
        takes_fast_path=config.normalizes,
        favours_latency=True,
        blocks_per_row=_BLOCKS,
    )


def _of_gates(config: KernelConfig) -> RowSchedule | None:
    """The schedule of gated rows with a computed scale: as many warps as fit a block, with registers for activations.

    Signalled at once, dependents start while longer rows compute these: on an H100, SwiGLU to FP8 by token of 1 x 5760
    went from 1.72 us to 1.64, of 128 x 8704 from 4.21 to 3.72; of 1 x 4096 it would go from 1.42 to 1.56.
    """
    groups = groups_of(config)
    chunks = ceil_div(groups, MAX_WARPS)
    if chunks not in GATED_THREADS:
        return None
    warps = ceil_div(groups, chunks)
    blocks = residents_of(GATED_THREADS[chunks], WARP_LANES * warps)
    return RowSchedule(warps, ceil_div(groups, warps), favours_latency=groups > PREFERRED_WARPS, resident_blocks=blocks)


def _shortest(config: KernelConfig, chunks: int, is_fast: bool = False) -> RowSchedule | None:
    groups = groups_of(config)
    if chunks > (_MOST_CHUNKS if is_fast and held_bytes(config) == 2 else PREFERRED_CHUNKS):
        return None
    warps = ceil_div(groups, chunks)
    is_active = config.activation != "" and chunks == 1
    # The blocks of a sum with a residual, encoded early, take the place of what latency gains.
    is_plain = config.op == "rmsnorm" and config.combine in ("input", "add") and not config.activation
    is_hurried = is_fast and is_plain and not may_store_sum_late(config) and 4 < groups <= MAX_WARPS
    return RowSchedule(
        warps,
        ceil_div(groups, warps),
        prefetches_weight=has_room_for_weight(config, chunks),
        stores_sum_early=may_store_sum_late(config),
        keeps_unpacked=held_bytes(config) == 2 and chunks <= PREFERRED_CHUNKS and not is_active,
        takes_fast_path=is_fast and not is_active,
        favours_latency=is_hurried,
        signals_late=is_hurried and _gains_by_late_signals(config),
        resident_blocks=residents(config, warps, chunks) if is_active else 0,
    )


def _gains_by_late_signals(config: KernelConfig) -> bool:
    """Whether a kernel for few rows is so short that dependents should be signalled late; see kernels/signals.py.

    Signalled at the statistic, dependents of longer ones would lose up to 20 %: NVFP4 of 9 groups, and NVFP4 by row;
    kernels with a residual gain nothing.
    """
    is_fp4 = config.quant is not None and config.quant.element == "e2m1"
    is_long = groups_of(config) > (_LATE_GROUPS_OF_FP4 if is_fp4 else _LATE_GROUPS)
    return not (is_long or config.residual or (is_fp4 and config.needs_row_amax))
