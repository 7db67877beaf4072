"""Schedules worth measuring in addition to the rules' choice: a pure function, like the rules."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, product

from .config import KernelConfig
from .early_activations import early_variants
from .few_rows import GATED_THREADS
from .layer_norm_candidates import layer_norm_candidates, sharing_parameters
from .norm_candidates import clustered_norms, in_cluster, norm_candidates
from .numerics import ceil_div
from .packed_rows import packings
from .registers import (
    MOST_RESIDENT_THREADS,
    groups_of,
    have_room_for_row,
    residents_of,
    with_room_for_weight,
)
from .row_parts import MOST_BLOCKS, has_separate_parts
from .row_schedule import WARP_LANES, RowSchedule
from .rows_ahead import loading_ahead
from .schedule import CLUSTERS, MAX_WARPS, PREFERRED_WARPS, row_schedule, why_unfit
from .schedule_form import ScheduleForm
from .short_rows import small_row_schedule
from .side_by_side import meets_side_by_side, side_by_side
from .split_chunks import may_split
from .tabulated_rows import tabulated
from .target import Target

MOST_CANDIDATES = 96
# Rows that meet side by side: forms that were the fastest somewhere, for norms of several groups and for other rows.
_MEETING = "1f64wuq 1f64wq 2f64wuq 2f64wq 3f64wuq 3f64q 1f64q 2f64q 1f128wuq 1f128wq 3f128q 1f64 2f64"
# With more chunks per lane, the floats of chunks leave room for too few threads.
_MOST_UNPACKED_CHUNKS = 2
# More chunks per lane leave too few threads; longer rows have no choice.
_MOST_CHUNKS = 4
# Chunks per lane of many rows, which so many threads are enough for: fewer warps leave fewer lanes idle, and have fewer
# sums to exchange.
_MANY_CHUNKS = (5, 6, 7)
# Warps of blocks only for rows that leave none of them idle: on an H200, SwiGLU to FP8 groups of 192 and 384 rows takes
# up to 9 % less, in the mean of 41 lengths 1.2 %.
_EXACT_WARPS = (5, 6, 7, 3)
# Rows that gain when warps of several blocks share them.
_CLUSTERED_GROUPS = 4 * PREFERRED_WARPS
# About how many threads a multiprocessor should have room for, by chunks per lane: 40 registers are enough for one
# chunk, 64 for more. On its own, the compiler uses 66 for some kernels, which costs a block.
_RESIDENT_THREADS = {1: (1536, 1024), 2: (1024,), 3: (1024,)}


def candidates(config: KernelConfig, target: Target, row_class: str = "usual") -> list[RowSchedule]:
    """The schedules that are legal, give other code than the rules' schedule, and may be faster.

    Args:
        config: the configuration of a row-wise op for a GPU; its own schedule is ignored.
        target: what it is built for.
        row_class: the class of the calls' rows, each of which has candidates of its own.

    Example:
        >>> [str(each) for each in candidates(KernelConfig("rmsnorm", 1536), Target("sm_90a"))][:4]
        ['2x2wqgo16', '2x2wqg', '2x2qg', '2x2uqgo16']
    """
    config = replace(config, schedule="")
    is_head = config.rope and groups_of(config) == 1  # whose schedule is the rules'
    if target.is_cpu or not config.is_row_wise or config.backward or is_head:
        return []
    of_rule = row_schedule(config, target)
    known = {with_room_for_weight(config, of_rule) if of_rule.holds_row else None}
    found = []
    proposed = (early_variants(config, each) for each in _proposed(config, target, row_class))
    for schedule in chain.from_iterable(proposed):
        if schedule not in known and schedule == with_room_for_weight(config, schedule):
            known.add(schedule)
            if not why_unfit(config, target, schedule) and have_room_for_row(config, schedule):
                found.append(schedule)
    return found[:MOST_CANDIDATES]


def _proposed(config: KernelConfig, target: Target, row_class: str) -> Iterator[RowSchedule]:
    """Schedules, some of which may not fit; those that gain most first."""
    yield from _meeting(config, target, row_class)
    yield from (tabulated(config, chunks) for chunks in (1, 2))
    if groups_of(config) == 1:
        yield from _sharing_warps(config)
        if row_class == "many":
            yield from sharing_parameters(config, target, RowSchedule(1, 1))
        else:
            yield from _beside_or_late(config)
        return
    if row_class == "many":
        yield from _with_many_chunks(config, target)
    yield from _sharing_clusters(config, row_class)
    if config.op == "layernorm":
        yield from layer_norm_candidates(config, target, row_class)
    elif config.normalizes:
        yield from norm_candidates(config, row_class)
    elif has_separate_parts(config):
        yield from chain(_divided(config), _splitting_parts(config), _variants(config))
    else:
        yield from chain(_of_gates(config) if row_class in ("fewest", "few") else (), _variants(config))
    yield from _clustered(groups_of(config))
    if config.normalizes and row_class not in ("fewest", "few"):
        yield from _loading_ahead(config, target)


def _meeting(config: KernelConfig, target: Target, row_class: str) -> Iterator[RowSchedule]:
    """Rows side by side of which something is found; norms signal dependents late, unless rows are many."""
    is_late = config.normalizes and config.pdl and row_class != "many"
    for form in _MEETING.split() if meets_side_by_side(config) else ():
        schedule = ScheduleForm.parse(form).schedule(config, target)
        if schedule is not None:
            yield replace(schedule, signals_late=is_late)


def _with_many_chunks(config: KernelConfig, target: Target) -> Iterator[RowSchedule]:
    """Divisions of a row among few warps, or some lanes of one; norms take the fast path."""
    forms = product(_MANY_CHUNKS, ("uql", "q", "qd", "qdg") if config.normalizes else ("",))
    packed = product(_MANY_CHUNKS[-1:], ("uq", "q") if config.normalizes else ("",), ("p16n8", "p8n16"))
    for parts in chain(forms, packed):
        schedule = ScheduleForm.parse("".join(map(str, parts))).schedule(config, target)
        if schedule is not None and schedule.chunks_per_lane in _MANY_CHUNKS:
            yield schedule


def _variants(config: KernelConfig) -> Iterator[RowSchedule]:
    """Divisions of a row without a statistic, with more or fewer registers."""
    splits = _splits(groups_of(config))
    yield from splits
    for split in splits:
        if split.warps_per_row == 1:
            yield from (replace(split, rows_per_block=rows) for rows in (2, 4))
    for split in splits:
        for threads in _RESIDENT_THREADS.get(split.chunks_per_lane, ()):
            yield replace(split, resident_blocks=residents_of(threads, WARP_LANES * split.warps_per_row))


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


def _beside_or_late(config: KernelConfig) -> Iterator[RowSchedule]:
    """The same for fewer rows: side by side if nothing is found of them; norms take the fast path and signal late."""
    if has_separate_parts(config):
        yield from filter(None, (side_by_side(config, *each) for each in product((1, 2), (128, 256))))
    for each in (small_row_schedule(config), *packings(config)) if config.normalizes else ():
        for threads, (is_early, is_unpacked) in product((128, 256), product((True, False), repeat=2)):
            yield replace(
                each, prefetches_weight=is_early, keeps_unpacked=is_unpacked, takes_fast_path=True,
                favours_latency=False, signals_late=config.pdl, rows_per_block=threads // each.lanes_per_row,
            )  # fmt: skip


def _sharing_clusters(config: KernelConfig, row_class: str) -> Iterator[RowSchedule]:
    """Clusters whose blocks share a row, if they need something of each other."""
    if config.normalizes:
        yield from clustered_norms(config, row_class)
    elif config.needs_row_amax or config.sums_first:
        for blocks, chunks in product((8, 4, 2), (1, 2, 4)):
            shared = in_cluster(groups_of(config), blocks, chunks)
            yield from (shared, replace(shared, favours_latency=True))


def _splitting_parts(config: KernelConfig) -> Iterator[RowSchedule]:
    """The same for rows with separate parts."""
    small = (each for each in _splits(groups_of(config)) if each.chunks_per_lane <= _MOST_UNPACKED_CHUNKS)
    for each in chain(_divided(config), small) if may_split(config) else ():
        if each.lanes_per_row == WARP_LANES and each.warps_per_row > 1:
            yield replace(each, splits_chunks=True)


def _of_gates(config: KernelConfig) -> Iterator[RowSchedule]:
    """Gated rows with a computed scale: signalling dependents at once hides their start behind the activations.

    On an H100, SwiGLU to FP8 by token of 51 x 8704 takes 2.86 us with 9x2lo2, 3.02 with 9x2o2, 3.47 with 9x2o4.
    """
    for split in _splits(groups_of(config)) if config.gate_columns else ():
        threads = GATED_THREADS.get(split.chunks_per_lane)
        if threads:
            found = replace(split, resident_blocks=residents_of(threads, WARP_LANES * split.warps_per_row))
            yield from (found, replace(found, favours_latency=True))


def _loading_ahead(config: KernelConfig, target: Target) -> Iterator[RowSchedule]:
    """Persistent blocks that load a row ahead."""
    for split in _splits(groups_of(config)):
        yield with_room_for_weight(config, loading_ahead(config, target, replace(split, prefetches_weight=True)))


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
