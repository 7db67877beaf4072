"""Schedules worth measuring in addition to the rules' choice: a pure function, like the rules."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain, product

from .config import KernelConfig
from .few_rows import GATED_THREADS
from .layer_norm_candidates import layer_norm_candidates, sharing_parameters
from .numerics import ceil_div, round_up
from .registers import (
    MOST_RESIDENT_THREADS,
    groups_of,
    have_room_for_row,
    held_bytes,
    may_store_sum_late,
    residents_of,
    with_room_for_weight,
)
from .row_parts import MOST_BLOCKS, has_separate_parts, side_by_side
from .row_schedule import WARP_LANES, RowSchedule
from .rows_ahead import loading_ahead
from .schedule import CLUSTERS, MAX_WARPS, MOST_WARPS, PREFERRED_WARPS, row_schedule, why_unfit
from .short_rows import packings, small_row_schedule
from .split_chunks import may_split
from .target import Target

MOST_CANDIDATES = 72
# With more chunks per lane, the floats of chunks leave room for too few threads.
_MOST_UNPACKED_CHUNKS = 2
# With more, a single row takes longer.
_MOST_SHORT_CHUNKS = 3
# Shorter rows lose by staying in shared memory: RMSNorm of 8192 columns, 13 %.
_SHARED_GROUPS = 32
# More chunks per lane leave too few threads; longer rows have no choice.
_MOST_CHUNKS = 4
# Clusters never win with shorter rows: the fewest rows of 5120 to 8192 columns take 12 to 70 % longer.
_UNSHARED_GROUPS = 16
# Warps of blocks only for rows that leave none of them idle: on an H200, SwiGLU to FP8 groups of 192 and 384 rows takes
# up to 9 % less, in the mean of 41 lengths 1.2 %.
_EXACT_WARPS = (5, 6, 7, 3)
# The parameters of longer rows leave too little of the L1 cache, in which others would find them.
_MOST_COPIED_GROUPS = 8
# Rows that gain when warps of several blocks share them.
_CLUSTERED_GROUPS = 4 * PREFERRED_WARPS
# About how many threads a multiprocessor should have room for, by chunks per lane: 40 registers are enough for one
# chunk, 64 for more. On its own, the compiler uses 66 for some kernels, which costs a block.
_RESIDENT_THREADS = {1: (1536, 1024), 2: (1024,), 3: (1024,)}
_THREADS_OF_MORE_CHUNKS = 768


def candidates(config: KernelConfig, target: Target, row_class: str = "usual") -> list[RowSchedule]:
    """The schedules that are legal, give other code than the rules' schedule, and may be faster.

    Args:
        config: the configuration of a row-wise op for a GPU; its own schedule is ignored.
        target: what it is built for.
        row_class: the class of the calls' rows; few rows have additional candidates, which shorten a single row's
            latency.

    Example:
        >>> [str(each) for each in candidates(KernelConfig("rmsnorm", 1536), Target("sm_90a"))][:4]
        ['3x1wuh', '3x1wuqh', '3x1wuqlh', '2x2wuh']
    """
    config = replace(config, schedule="")
    is_small = groups_of(config) == 1
    if target.is_cpu or not config.is_row_wise or config.backward or (is_small and row_class != "many"):
        return []
    of_rule = row_schedule(config, target)
    by_rule = of_rule if of_rule.holds_row else None
    known = {by_rule and with_room_for_weight(config, by_rule)}
    found = []
    own: Iterable[RowSchedule]
    common: Iterable[RowSchedule]
    if is_small:
        own, common = _sharing_warps(config), sharing_parameters(config, target, RowSchedule(1, 1))
    elif config.op == "layernorm":
        own = layer_norm_candidates(config, target, row_class)
        clusters = chain(_sharing_clusters(config, row_class), _clustered(groups_of(config)))
        common = chain(clusters, _loading_ahead(config, target))
    elif has_separate_parts(config):
        own, common = chain(_divided(config), _splitting_parts(config)), _variants(config)
    elif row_class in ("fewest", "few"):
        own = chain(
            _sharing_clusters(config, row_class), _widest(config), _splitting_chunks(config, row_class),
            _shortening(config, by_rule),
        )  # fmt: skip
        common = (each for each in _variants(config) if each.rows_at_once == 1)  # others leave multiprocessors idle
    else:
        waves = _in_waves(config, row_class) if row_class in ("some", "several") else ()
        last = _signalling_last(config) if row_class != "many" else ()
        halves = _splitting_chunks(config, row_class)
        own = chain(_widest(config), halves, waves, last, _keeping_unpacked(config))
        common = chain(_variants(config), _loading_ahead(config, target))
    copying = () if is_small or config.op == "layernorm" else _copying_parameters(config, row_class)
    for schedule in chain(_storing_early(config, by_rule), copying, own, common):
        if schedule not in known and schedule == with_room_for_weight(config, schedule):
            known.add(schedule)
            if not why_unfit(config, target, schedule) and have_room_for_row(config, schedule):
                found.append(schedule)
    return found[:MOST_CANDIDATES]


def _variants(config: KernelConfig) -> Iterator[RowSchedule]:
    splits = _splits(groups_of(config))
    for split in splits:
        yield split
        yield replace(split, prefetches_weight=True)
    if config.normalizes:
        for chunks in (1, 2):
            yield from (replace(split, rows_at_once=2) for split in splits if split.chunks_per_lane == chunks)
    for split in splits:
        if split.warps_per_row == 1:
            for rows in (2, 4):
                yield with_room_for_weight(config, replace(split, prefetches_weight=True, rows_per_block=rows))
    for split in splits:
        for threads in _RESIDENT_THREADS.get(split.chunks_per_lane, ()):
            residents = residents_of(threads, WARP_LANES * split.warps_per_row)
            yield replace(split, resident_blocks=residents)
            yield replace(split, prefetches_weight=True, resident_blocks=residents)
    yield from _clustered(groups_of(config))


def _copying_parameters(config: KernelConfig, row_class: str) -> Iterator[RowSchedule]:
    """Parameters in shared memory.

    On an H200, mHC of two streams of 515 to 913 x 3808 takes 0.85 of the time, of 8193 x 8192 0.92.
    """
    groups, is_small = groups_of(config), held_bytes(config) == 2
    if config.weight != "float32" or (groups > _MOST_COPIED_GROUPS and not config.streams):
        return
    for split in _splits(groups):
        if split.chunks_per_lane > (_MOST_UNPACKED_CHUNKS if is_small else _MOST_CHUNKS):
            continue
        fast = replace(split, takes_fast_path=True, copies_parameters=True)
        kept = replace(fast, keeps_unpacked=is_small)
        yield kept
        if row_class in ("fewest", "few", "some"):
            yield from (replace(each, favours_latency=True) for each in (kept, fast))
            continue
        yield fast
        if row_class == "many":
            yield replace(fast, takes_fast_path=False)
        elif config.pdl:
            yield replace(kept, signals_late=True)


def _divided(config: KernelConfig) -> Iterator[RowSchedule]:
    """Blocks of few warps with separate parts of a row, which do not wait for each other and leave few lanes idle."""
    groups = groups_of(config)
    filled = (side_by_side(config, chunks, threads) for chunks, threads in product((1, 2), (128, 256)))
    for each in filter(None, filled):
        yield each
        yield replace(each, resident_blocks=MOST_RESIDENT_THREADS // each.threads)
    exact = (each for each in product((1, 2), _EXACT_WARPS) if groups % math.prod(each) == 0)
    for chunks, warps in chain(product((1, 2), (4, 8, 2)), exact):
        blocks = ceil_div(groups, chunks * warps)
        if 1 < blocks <= MOST_BLOCKS:
            schedule = RowSchedule(warps * blocks, chunks, blocks_per_row=blocks)
            yield schedule
            yield replace(schedule, resident_blocks=MOST_RESIDENT_THREADS // schedule.threads)


def _sharing_warps(config: KernelConfig) -> Iterator[RowSchedule]:
    """Rows of up to a group, several of which share a warp."""
    small = small_row_schedule(config)
    for each in (small, *packings(config)):
        yield each
        yield replace(each, rows_per_block=2 * each.rows_per_block)
        yield replace(each, rows_at_once=2)


def _storing_early(config: KernelConfig, by_rule: RowSchedule | None) -> list[RowSchedule]:
    """The rules' schedule and the widest one, storing the sum with the residual early if that is possible."""
    if by_rule is None or not may_store_sum_late(config):
        return []
    widest = replace(_splits(groups_of(config))[0], prefetches_weight=True)
    return [with_room_for_weight(config, replace(each, stores_sum_early=True)) for each in (by_rule, widest)]


def _shortening(config: KernelConfig, by_rule: RowSchedule | None) -> Iterator[RowSchedule]:
    """Schedules that speed up a single row: the fast path, also with options that would slow down many rows.

    With a residual, a weight loaded late leaves the row more of a multiprocessor's bandwidth: on an H100, add + RMSNorm
    of 1 x 8192 takes 1.95 us with 16x1ql, 2.10 with 16x1wql. Without, a lane may have three chunks: RMSNorm of 1 x 8704
    takes 1.62 us with 6x3wql, 1.72 with 9x2wq.
    """
    if not config.normalizes:
        yield from _of_gates(config)
        return
    splits = _splits(groups_of(config))
    is_early, is_small = may_store_sum_late(config), held_bytes(config) == 2
    is_plain = config.op == "rmsnorm" and config.combine == "input" and not config.finish
    for split in dict.fromkeys([*([by_rule] if by_rule else []), *splits]):
        chunks = split.chunks_per_lane
        if chunks > (_MOST_SHORT_CHUNKS if is_small else _MOST_UNPACKED_CHUNKS):
            continue
        fast = replace(split, prefetches_weight=True, stores_sum_early=is_early, takes_fast_path=True)
        for kept in [False, True] if is_small and chunks <= _MOST_UNPACKED_CHUNKS else [False]:
            each = with_room_for_weight(config, replace(fast, keeps_unpacked=kept))
            hurried = replace(each, favours_latency=True)
            yield from (each, hurried)
            if config.pdl and is_plain:
                yield replace(hurried, signals_late=True)
        if config.residual:
            yield replace(fast, prefetches_weight=False, favours_latency=True)


def _sharing_clusters(config: KernelConfig, row_class: str) -> Iterator[RowSchedule]:
    """Clusters for long rows, in classes where these leave multiprocessors idle."""
    if row_class == "fewest" and groups_of(config) > _UNSHARED_GROUPS:
        yield from _sharing_few(config)
    elif row_class in ("some", "several") and config.normalizes and groups_of(config) >= _SHARED_GROUPS:
        yield from (each for each in _sharing_few(config) if not each.keeps_unpacked)


def _sharing_few(config: KernelConfig) -> Iterator[RowSchedule]:
    """Clusters for rows so few that each has several multiprocessors.

    On an H100, RMSNorm + SiLU of 1 x 15104 takes 2.51 us with 32x1wuqlb8, 3.04 with 15x2wuql; on an H200, adaptive
    layer normalization of 16 x 31152 6.62 us with 32x2qhb8, 8.33 with 32x2qb8.
    """
    groups, is_norm = groups_of(config), config.normalizes
    for blocks, chunks in product((8, 4), (1, 2)):
        warps = round_up(ceil_div(groups, chunks), blocks)
        shared = RowSchedule(warps, ceil_div(groups, warps), blocks_per_row=blocks)
        if not is_norm:
            yield from (shared, replace(shared, favours_latency=True))
            continue
        fast = with_room_for_weight(config, replace(shared, prefetches_weight=True, takes_fast_path=True))
        hurried = replace(fast, favours_latency=True)
        yield from (fast, hurried)
        if may_split(config):
            yield replace(fast, splits_chunks=True)
        if held_bytes(config) == 2:
            yield replace(hurried, keeps_unpacked=True)


def _widest(config: KernelConfig) -> Iterator[RowSchedule]:
    """Blocks of more than 16 warps, which request all of a long row at once.

    On an H200, add + RMSNorm of 1 x 9216 takes 2.26 us with 18x1q, 2.43 with 9x2ql, of 153 x 9216 4.79, 5.18 with
    9x2wqd, RMSNorm of 64 x 27136 4.37 with 27x2w, 4.68 with 14x4q.
    """
    groups = groups_of(config)
    chunks = ceil_div(groups, MOST_WARPS)
    warps = ceil_div(groups, chunks)
    if warps <= MAX_WARPS or not config.normalizes:
        return
    halves = [False, True] if may_split(config) else [False]
    for each in (RowSchedule(warps, chunks, takes_fast_path=True, splits_chunks=held) for held in halves):
        early = with_room_for_weight(config, replace(each, prefetches_weight=True))
        yield from (each, early, replace(each, favours_latency=True), replace(early, favours_latency=True))
        if config.pdl:
            yield replace(each, signals_late=True)


def _splitting_chunks(config: KernelConfig, row_class: str) -> Iterator[RowSchedule]:
    """Halves of chunks, whose loads and stores leave no gaps.

    On an H200, add + RMSNorm of 1 x 8192 takes 1.84 us with 16x1wqh, 2.03 with 16x1ql, of 256 x 4096 3.34 with 8x1wqlh,
    3.50 with 4x2ql, RMSNorm of 128 x 8192 2.77 with 8x2wqldh, 3.00 with 6x3wq.
    """
    if not may_split(config):
        return
    for split in _splits(groups_of(config)):
        if split.chunks_per_lane > _MOST_UNPACKED_CHUNKS:
            if row_class == "many":
                yield replace(split, splits_chunks=True, takes_fast_path=True)
            continue
        late = replace(split, splits_chunks=True, keeps_unpacked=held_bytes(config) == 2)
        early = with_room_for_weight(config, replace(late, prefetches_weight=True))
        fast = replace(early, takes_fast_path=True)
        if row_class == "many":
            yield from (late, early)
            continue
        hurried = replace(fast, favours_latency=True)
        yield from (early, fast, hurried)
        if config.pdl:
            yield replace(fast if config.residual else hurried, signals_late=True)
            yield replace(fast, signals_late=True)


def _splitting_parts(config: KernelConfig) -> Iterator[RowSchedule]:
    """The same for rows with separate parts."""
    small = (each for each in _splits(groups_of(config)) if each.chunks_per_lane <= _MOST_UNPACKED_CHUNKS)
    for each in chain(_divided(config), small) if may_split(config) else ():
        if each.lanes_per_row == WARP_LANES and each.warps_per_row > 1:
            yield replace(each, splits_chunks=True)


def _in_waves(config: KernelConfig, row_class: str) -> Iterator[RowSchedule]:
    """Rows in up to three waves, whose latency still counts.

    On an H100, RMSNorm to FP8 groups of 1024 x 1920 takes 3.51 us with 4x1wuq, 3.66 with 4x1wu; add + RMSNorm of 211 x
    8448 takes 13 % less with 9x2ql than with 9x2wq, a gated norm of 140 x 29312 17 % less with 32x2wqlb8 than in two
    waves of blocks, a sandwich of norms of 146 x 20480 16 % less with 10x4wqo2 than with 14x3q.
    """
    is_long = groups_of(config) >= _SHARED_GROUPS
    for split in _splits(groups_of(config)) if config.normalizes else ():
        chunks = split.chunks_per_lane
        is_kept = held_bytes(config) == 2 and chunks <= _MOST_UNPACKED_CHUNKS
        fast = replace(split, prefetches_weight=True, keeps_unpacked=is_kept, takes_fast_path=True)
        fast = with_room_for_weight(config, fast)
        if chunks > _MOST_UNPACKED_CHUNKS:
            if is_long and chunks <= _MOST_CHUNKS:
                yield from (fast, replace(fast, resident_blocks=residents_of(_THREADS_OF_MORE_CHUNKS, fast.threads)))
            continue
        yield from (fast, replace(fast, favours_latency=True))
        if config.residual:
            yield replace(fast, prefetches_weight=False, favours_latency=True)
    yield from _sharing_clusters(config, row_class)


def _signalling_last(config: KernelConfig) -> Iterator[RowSchedule]:
    """Blocks that keep their place on a multiprocessor, which the next kernel's would take, until they have stored
    their rows.

    On an H200, RMSNorm of 256 x 8192 takes 3.87 us with 16x1wuqd, 4.53 with 8x2wuq.
    """
    if not (config.normalizes and config.pdl):
        return
    for split in _splits(groups_of(config)):
        chunks = split.chunks_per_lane
        if chunks <= _MOST_SHORT_CHUNKS:
            is_kept = held_bytes(config) == 2 and chunks <= _MOST_UNPACKED_CHUNKS
            late = replace(split, keeps_unpacked=is_kept, takes_fast_path=True, signals_late=True)
            yield with_room_for_weight(config, replace(late, prefetches_weight=True))
            if config.residual:
                yield late


def _of_gates(config: KernelConfig) -> Iterator[RowSchedule]:
    """Gated rows with a computed scale: signalling dependents at once hides their start behind the activations.

    On an H100, SwiGLU to FP8 by token of 51 x 8704 takes 2.86 us with 9x2lo2, 3.02 with 9x2o2, 3.47 with 9x2o4.
    """
    for split in _splits(groups_of(config)) if config.gate_columns else ():
        threads = GATED_THREADS.get(split.chunks_per_lane)
        if threads:
            found = replace(split, resident_blocks=residents_of(threads, WARP_LANES * split.warps_per_row))
            yield from (found, replace(found, favours_latency=True))


def _keeping_unpacked(config: KernelConfig) -> Iterator[RowSchedule]:
    """Few chunks per lane, whose floats fit in the registers that so many threads leave."""
    for split in _splits(groups_of(config)):
        if split.chunks_per_lane <= _MOST_UNPACKED_CHUNKS:
            yield with_room_for_weight(config, replace(split, prefetches_weight=True, keeps_unpacked=True))


def _loading_ahead(config: KernelConfig, target: Target) -> Iterator[RowSchedule]:
    """Persistent blocks that load a row ahead; long rows may stay in shared memory."""
    for split in _splits(groups_of(config)):
        early = replace(split, prefetches_weight=True)
        yield with_room_for_weight(config, loading_ahead(config, target, early))
        if groups_of(config) >= _SHARED_GROUPS and held_bytes(config) == 2:
            yield with_room_for_weight(config, loading_ahead(config, target, replace(early, stays_shared=True)))


def _splits(groups: int) -> list[RowSchedule]:
    """The divisions of a block's row into warps and chunks, those with the fewest chunks per lane first."""
    least = ceil_div(groups, MAX_WARPS)
    found = [RowSchedule(ceil_div(groups, chunks), chunks) for chunks in range(least, max(_MOST_CHUNKS, 2 * least) + 1)]
    even = [each for each in found if each.chunks_per_lane == ceil_div(groups, each.warps_per_row)]
    return even if len(even) <= _MOST_CHUNKS else [*even[:3], even[-1]]


def _clustered(groups: int) -> Iterator[RowSchedule]:
    if groups < _CLUSTERED_GROUPS:
        return
    for blocks in CLUSTERS:
        warps = PREFERRED_WARPS * blocks
        schedule = RowSchedule(warps, ceil_div(groups, warps), blocks_per_row=blocks)
        yield schedule
        yield replace(schedule, prefetches_weight=True)
