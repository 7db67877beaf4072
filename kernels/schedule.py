"""How a CUDA kernel divides a row among lanes, warps and blocks: a pure function of the configuration and the target.

No schedule changes the output bits; docs/numerics.md says why.
"""

from __future__ import annotations

from dataclasses import replace

from .all_reduce_schedule import for_ranks
from .backward import backward_schedule
from .config import KernelConfig
from .copied_parameters import why_not_copied
from .dtypes import DTYPES
from .early_activations import activating_early, may_activate_early
from .numerics import CHUNK_SIZE, ceil_div, round_up
from .packed_rows import why_not_packed
from .prenorm_rows import may_hold, prenorm_schedule
from .registers import (
    groups_of,
    has_room_for_weight,
    held_bytes,
    is_four_over_six,
    may_store_sum_late,
    most_held_chunks,
    residents,
    waits_for_row_amax,
)
from .resident_rows import why_not_resident
from .row_parts import has_separate_parts, of_long_row, of_rows_that_fill
from .row_schedule import WARP_LANES, RowSchedule
from .rows_ahead import MOST_SHARING_ROWS, sharing_rows, why_not_ahead
from .short_rows import SINGLE_WARP_GROUPS, short_row_schedule, why_not_rotated
from .skipped_chunks import why_not_skipped
from .split_chunks import why_not_split
from .tabulated_rows import why_not_tabulated
from .target import Target

# Measured on an H200, see docs/choices.md: rows that are not short are fastest with two chunks per lane, whose weight
# arrives with the row; above 16 warps, or 8 for many rows, lanes have more chunks, as many as their registers allow.
PREFERRED_CHUNKS = 2
PREFERRED_WARPS = 8
MAX_WARPS = 16
# Warps of a block that a schedule may name: more than 16 request all of a long row at once.
MOST_WARPS = 32
# Threads of a block of items, one item each unless they share one.
ITEM_THREADS = 256
# Threads of the blocks that find the largest magnitudes of parts of a tensor, two of which run at once: of elements as
# they are loaded, and of those that take more registers.
_AMAX_THREADS, _AMAX_THREADS_OF_COMPUTED = 1024, 512
# Blocks of a cluster that share a row.
CLUSTERS = (2, 4, 8)
CHUNKS_OF_MANY_ROWS = 4
# Two rows of up to so many groups fit in registers.
_MOST_SHARING_GROUPS = 10
# Longer rows of layer normalization do not share a block, which would hold only one or two of them.
_MOST_STAYING_GROUPS = 24
# Warps for rows whose elements take many instructions, and thus many registers.
_HEAVY_WARPS = 9
# The minimum number of threads for rows to share a block; below, other schedules are faster.
_LEAST_SHARING_THREADS = 512
# Threads of a launch whose rows are counted by a mask: as many as the largest GPUs run at once.
MASKED_THREADS = 1 << 18


def row_schedule(config: KernelConfig, target: Target) -> RowSchedule:
    """The schedule of a row-wise op: the one that the configuration names, or else that of the rules below.

    Raises:
        ValueError: the named schedule does not fit the row or the target.

    Example:
        >>> row_schedule(KernelConfig("rmsnorm", 4096), Target("sm_90a")).threads
        128
    """
    if config.schedule:
        schedule = _named_schedule(config, target)
    else:
        schedule = activating_early(config, _schedule_by_rules(config, target))
    if config.amax_parts and not config.schedule:
        return _amax_schedule(config, schedule)
    return for_ranks(config, target, schedule) if config.all_reduce else schedule


def _amax_schedule(config: KernelConfig, schedule: RowSchedule) -> RowSchedule:
    """Persistent blocks whose threads divide rows as in a schedule; as many rows share one as fit."""
    is_light = not config.normalizes and held_bytes(config) == 2
    if schedule.blocks_per_row > 1 and not config.normalizes:  # a single pass need not hold the row
        schedule = RowSchedule(MAX_WARPS, ceil_div(groups_of(config), MAX_WARPS), holds_row=False)
    threads = _AMAX_THREADS if is_light else _AMAX_THREADS_OF_COMPUTED
    rows = schedule.rows_per_block
    if config.amax_parts > 1 and schedule.blocks_per_row == 1:
        rows = max(1, threads // schedule.threads_per_row)
    if schedule.warps_per_row > 1:  # they meet at barriers of their own
        rows = min(rows, MOST_SHARING_ROWS)
    return RowSchedule(
        schedule.warps_per_row, schedule.chunks_per_lane, prefetches_weight=schedule.prefetches_weight,
        keeps_unpacked=schedule.keeps_unpacked, rows_per_block=rows, blocks_per_row=schedule.blocks_per_row,
        lanes_per_row=schedule.lanes_per_row, holds_row=schedule.holds_row,
    )  # fmt: skip


def _schedule_by_rules(config: KernelConfig, target: Target) -> RowSchedule:
    if config.backward:
        return backward_schedule(config, target)
    groups = groups_of(config)
    if config.prenorm and may_hold(config, MAX_WARPS):
        return prenorm_schedule(config)
    if groups <= SINGLE_WARP_GROUPS:
        return short_row_schedule(config, target)
    most_chunks = most_held_chunks(held_bytes(config))
    if groups > MAX_WARPS * most_chunks:
        return of_long_row(config, groups) or _long_row_schedule(groups, most_chunks, target)
    if config.op == "layernorm":
        return _layernorm_schedule(config, groups, target)
    warps = PREFERRED_WARPS if config.many_rows and config.rows_combined == 1 else MAX_WARPS
    fewest = max(ceil_div(groups, MAX_WARPS), min(ceil_div(groups, warps), CHUNKS_OF_MANY_ROWS))
    chunks_per_lane = min(max(_least_chunks(config), fewest), most_chunks)
    if config.combine == "sandwich" and groups <= MAX_WARPS * PREFERRED_CHUNKS:
        return _sandwich_schedule(config, groups)
    if is_four_over_six(config) and not config.normalizes:
        return _heavy_schedule(config, groups, chunks_per_lane)
    if config.rows_combined > 1:
        return _combining_schedule(config, groups, chunks_per_lane, target)
    if config.many_rows and groups >= 2 * CHUNKS_OF_MANY_ROWS > 2 * chunks_per_lane and _gains_by_more_chunks(config):
        return _many_rows_schedule(groups)
    is_kept = chunks_per_lane <= PREFERRED_CHUNKS and groups <= 12 * chunks_per_lane and _gains_by_floats(config)
    return RowSchedule(
        ceil_div(groups, chunks_per_lane), chunks_per_lane, prefetches_weight=True, keeps_unpacked=is_kept
    )


def why_unfit(config: KernelConfig, target: Target, schedule: RowSchedule) -> str:
    """Why a schedule does not fit a configuration and a target, as the end of a sentence; empty if it does."""
    if target.is_cpu:
        return "the CPU divides no rows"
    if groups_of(config) == 1 and config.rope:
        return why_not_rotated(config, schedule)
    packed = schedule.lanes_per_row != WARP_LANES
    reason = why_not_packed(config, schedule) if packed else _why_not_divided(config, schedule)
    return reason or _why_no_options(config, schedule) or _why_no_memory(config, target, schedule)


def _why_not_divided(config: KernelConfig, schedule: RowSchedule) -> str:
    """Why a row is not divided so among whole warps, as the end of a sentence; empty if it is."""
    groups, most_chunks = groups_of(config), most_held_chunks(held_bytes(config))
    warps, chunks = schedule.warps_per_row, schedule.chunks_per_lane
    if chunks != ceil_div(groups, warps) or warps > _most_warps(config, schedule):
        return f"the {groups} groups of a row are not {chunks} or one less for each of {warps} warps"
    if chunks * schedule.rows_at_once > most_chunks:
        return f"a lane holds {most_chunks} chunks"
    if warps % schedule.blocks_per_row or schedule.threads > MOST_WARPS * WARP_LANES:
        return f"a block has up to {MOST_WARPS} warps, as many as the others of its cluster"
    if schedule.rows_per_block > 1 and warps > 1 and not (schedule.loads_ahead or schedule.tabulates):
        return "only rows of one warp share a block"
    return ""


def _why_no_options(config: KernelConfig, schedule: RowSchedule) -> str:
    """Why rows are not processed as a schedule's options say, as the end of a sentence; empty if they are."""
    if schedule.stores_sum_early and not may_store_sum_late(config):
        return "no sum with a residual is stored late, after blocks are encoded"
    if schedule.keeps_unpacked and (held_bytes(config) > 2 or not config.normalizes):
        return "only norms of 16-bit values without a residual unpack them in each pass"
    if schedule.takes_fast_path and not config.normalizes:
        return "only norms have a statistic to find by the fast path"
    if schedule.favours_latency and (has_separate_parts(config) or schedule.is_persistent):
        return "only rows with a statistic or a scale of their own, one to a block, favour latency"
    if schedule.signals_late and (not config.normalizes or schedule.is_persistent):
        return "only norms signal dependents late, unless blocks are persistent"
    if schedule.signals_late and schedule.favours_latency and config.residual:
        return "with a residual, a schedule that favours latency signals dependents at once"
    if schedule.activates_early and not may_activate_early(config):
        return "only norms with gates in a tensor of their own compute activations early"
    if schedule.stays_shared and not config.backward:
        return "only rows of which gradients are computed stay in shared memory"
    if config.amax_parts and (schedule.rows_at_once > 1 or schedule.is_persistent):
        return "threads that find an amax load one row after another"
    if schedule.rows_at_once > 1 and config.experts:
        return "each row of experts has its own scale"
    if schedule.rows_at_once > 1 and config.weight_rows > 1:
        return "rows that take turns at a weight do not share it"
    if schedule.skips_chunks and (reason := why_not_skipped(config, schedule)):
        return reason
    return why_not_split(config, schedule) if schedule.splits_chunks else ""


def _why_no_memory(config: KernelConfig, target: Target, schedule: RowSchedule) -> str:
    """Why blocks do not use shared memory as a schedule says, as the end of a sentence; empty if they do."""
    if schedule.copies_parameters and (reason := why_not_copied(config, target, schedule)):
        return reason
    if schedule.tabulates:
        return why_not_tabulated(config, target, schedule)
    if schedule.stays_resident:
        return why_not_resident(config, schedule) or _why_no_cluster(config, target, schedule)
    if schedule.loads_ahead:
        return why_not_ahead(config, target, schedule)
    return _why_no_cluster(config, target, schedule)


def _most_warps(config: KernelConfig, schedule: RowSchedule) -> int:
    """The maximum number of warps for a row: one per group; if several blocks share it, the last may have idle ones."""
    return round_up(groups_of(config), schedule.blocks_per_row)


def _why_no_cluster(config: KernelConfig, target: Target, schedule: RowSchedule) -> str:
    """Why the blocks of a row cannot exchange what they must, as the end of a sentence; empty if they can."""
    if schedule.blocks_per_row == 1 or has_separate_parts(config):
        return ""
    if schedule.blocks_per_row not in CLUSTERS:
        return f"blocks that share a row's statistic are {', '.join(map(str, CLUSTERS))}"
    return "" if target.has_clusters else f"{target} has no clusters, which begin with sm_90a"


def shared_amax_bytes(config: KernelConfig, schedule: RowSchedule) -> int:
    """Bytes of shared memory for the largest magnitudes of chunks, if blocks have chunks in two warps."""
    if config.quant is None or not config.quant.crosses_warps:
        return 0
    rows = schedule.rows_per_block * schedule.rows_at_once
    return rows * ceil_div(config.encoded_size, CHUNK_SIZE) * DTYPES["float32"].bytes


def _named_schedule(config: KernelConfig, target: Target) -> RowSchedule:
    schedule = RowSchedule.parse(config.schedule)
    reason = why_unfit(config, target, schedule)
    if reason:
        raise ValueError(f"schedule: is {config.schedule!r} at {config.hidden_size} elements per row, but {reason}")
    return schedule


def _long_row_schedule(groups: int, most_chunks: int, target: Target) -> RowSchedule:
    """For rows longer than a block can hold: a cluster, if possible; else each pass loads the row again."""
    if not target.has_clusters or groups > CLUSTERS[-1] * MAX_WARPS * most_chunks:
        return RowSchedule(MAX_WARPS, ceil_div(groups, MAX_WARPS), prefetches_weight=True, holds_row=False)
    fitting = (blocks for blocks in CLUSTERS if groups <= blocks * PREFERRED_WARPS * most_chunks)
    blocks = next(fitting, CLUSTERS[-1])
    warps = round_up(ceil_div(groups, most_chunks), blocks)
    return RowSchedule(warps, most_chunks, prefetches_weight=True, blocks_per_row=blocks)


def _gains_by_more_chunks(config: KernelConfig) -> bool:
    """Whether many rows are faster with few warps each.

    Block formats gain: NVFP4 of 16384 x 8192 goes from 95.2 to 87.3 us, but FP8 by tensor from 93.7 to 95.1. Formats
    whose blocks cross warps do not.
    """
    is_blocked = config.quant is not None and config.quant.has_blocks and not config.quant.crosses_warps
    is_light = not (waits_for_row_amax(config) or config.activation) and held_bytes(config) == 2
    return is_blocked and is_light and not _is_uneven(config)


def _gains_by_floats(config: KernelConfig) -> bool:
    """Whether rows with two or more passes keep their floats: NVFP4 by row at 8 lengths takes 0.97 of the time."""
    is_long = waits_for_row_amax(config) or (config.activation != "" and config.quant is not None)
    return config.normalizes and held_bytes(config) == 2 and is_long and not config.many_rows


def _is_uneven(config: KernelConfig) -> bool:
    """Whether four chunks per lane would leave idle lanes that still cost instructions.

    Four over six of 16384 x 5120 takes 0.63 of the time with two, of 7168 columns 0.71.
    """
    return is_four_over_six(config) and groups_of(config) % CHUNKS_OF_MANY_ROWS > 0


def _many_rows_schedule(groups: int) -> RowSchedule:
    warps = ceil_div(groups, CHUNKS_OF_MANY_ROWS)
    return RowSchedule(warps, ceil_div(groups, warps))


def _layernorm_schedule(config: KernelConfig, groups: int, target: Target) -> RowSchedule:
    """Two float32 parameters, which are loaded late, because they take registers; two short rows share them.

    At 4096 x 7168, loading them early reaches 0.63 of a copy, late 0.79. Rows with one-byte codes share them in a
    persistent block: to FP8, 16384 x 4096 went from 0.86 to 0.95, 4096 x 7168 from 0.66 to 0.80.
    """
    if config.quant is not None and config.quant.element != "e2m1" and not config.needs_row_amax:
        warps = ceil_div(groups, PREFERRED_CHUNKS)
        sharing = sharing_rows(config, target, RowSchedule(warps, ceil_div(groups, warps), keeps_unpacked=True))
        is_short = groups <= _MOST_STAYING_GROUPS
        if is_short and sharing.threads >= _LEAST_SHARING_THREADS and not why_unfit(config, target, sharing):
            return sharing
    return _ending_layernorm_schedule(config, groups)


def _ending_layernorm_schedule(config: KernelConfig, groups: int) -> RowSchedule:
    chunks = CHUNKS_OF_MANY_ROWS if config.many_rows and groups >= 4 * CHUNKS_OF_MANY_ROWS else PREFERRED_CHUNKS
    chunks = max(min(chunks, most_held_chunks(held_bytes(config))), ceil_div(groups, MAX_WARPS))
    warps = ceil_div(groups, chunks)
    if groups <= _MOST_SHARING_GROUPS and held_bytes(config) == 2:
        # With two rows and chunks that some lanes lack, the compiler uses up to 128 registers per thread, not 72.
        chunks = PREFERRED_CHUNKS if groups % PREFERRED_CHUNKS == 0 else 1
        return RowSchedule(ceil_div(groups, chunks), chunks, rows_at_once=2)
    # Blocks of more than 12 warps are alone anyway: FP8 of 3000 x 29568 takes 0.81 of the time with two rows.
    at_once = 2 if groups > 12 * CHUNKS_OF_MANY_ROWS and held_bytes(config) == 2 else 1
    blocks = residents(config, warps, chunks)
    return RowSchedule(warps, ceil_div(groups, warps), rows_at_once=at_once, resident_blocks=blocks)


def _combining_schedule(config: KernelConfig, groups: int, chunks: int, target: Target) -> RowSchedule:
    """Gated rows, or mixed streams, which lanes hold as floats; a cluster shares those that are too long for a block.

    SwiGLU to MXFP8 of 1024 x 28672 went from 0.70 to 0.84 of the roofline; to FP8 groups, 7036 x 19072 reaches 0.90 in
    a block and 0.69 in a cluster. With two chunks of mixed streams, the weight is loaded late: 6000 x 9216 went from
    0.79 to 0.95.
    """
    if config.gate_columns and groups > MAX_WARPS * PREFERRED_CHUNKS and has_separate_parts(config):
        return of_rows_that_fill(groups) or of_long_row(config, groups) or RowSchedule(ceil_div(groups, chunks), chunks)
    if chunks >= CHUNKS_OF_MANY_ROWS and target.has_clusters and config.gate_columns:
        return RowSchedule(round_up(groups, CLUSTERS[-1]), 1, blocks_per_row=CLUSTERS[-1])
    warps = ceil_div(groups, chunks)
    # Gates with one chunk have enough registers: with room for fewer blocks, SwiGLU of 3328 columns took 5 to 10 %
    # more.
    blocks = residents(config, warps, chunks) if (chunks > 1) == (config.gate_columns > 0) else 0
    return RowSchedule(warps, chunks, prefetches_weight=chunks == 1, resident_blocks=blocks)


def _heavy_schedule(config: KernelConfig, groups: int, chunks: int) -> RowSchedule:
    """Blocks of up to nine warps, two of which fit on a multiprocessor regardless of a lane's registers.

    Four over six of 10000 x 13184 takes 0.70 of its time with 13 warps; of 3000 x 32000, 0.92 in parts.
    """
    if groups > CHUNKS_OF_MANY_ROWS * _HEAVY_WARPS and (parted := of_long_row(config, groups)):
        return parted
    least = 1 if groups <= _HEAVY_WARPS and groups % PREFERRED_CHUNKS else chunks  # an idle lane takes as long
    chunks = max(least, min(CHUNKS_OF_MANY_ROWS, ceil_div(groups, _HEAVY_WARPS)))
    warps = ceil_div(groups, chunks)
    return RowSchedule(warps, ceil_div(groups, warps))


def _sandwich_schedule(config: KernelConfig, groups: int) -> RowSchedule:
    """Two rows of 16-bit values per chunk: to NVFP4, 9200 x 14592 takes 0.90 of its time with four chunks.

    Short rows have one chunk: 512 x 2304 takes 0.83 of the time. If the amax of a row is needed, the sum is stored
    before, so that the norm can take its place: NVFP4 by row of 5000 x 4096 takes 0.73 of the time, 8000 x 7168 0.62.
    """
    if config.needs_row_amax:
        warps = groups if groups <= _MOST_SHARING_GROUPS else ceil_div(groups, PREFERRED_CHUNKS)
        return RowSchedule(
            warps, ceil_div(groups, warps), prefetches_weight=True, stores_sum_early=may_store_sum_late(config)
        )
    warps = groups if groups <= 6 else ceil_div(groups, PREFERRED_CHUNKS)
    chunks = ceil_div(groups, warps)
    return RowSchedule(warps, chunks, prefetches_weight=True, resident_blocks=residents(config, warps, chunks))


def _least_chunks(config: KernelConfig) -> int:
    """The minimum number of chunks per lane: two if their weight can be loaded with them, or if they have gates.

    If a mask counts rows, threads first search for theirs, which pays off with more chunks: NVFP4 of rows of 4096
    columns reaches 0.86 of a copy with four, 0.80 with two; SwiGLU to MXFP4, 0.71 with two and 0.61 with one.
    """
    if config.all_reduce:
        return 1  # all ranks' shares of a chunk are in flight at once
    if config.masked and not config.normalizes and held_bytes(config) == 2:
        return CHUNKS_OF_MANY_ROWS
    if config.gate_columns:
        return least_idle_chunks(config, PREFERRED_CHUNKS)
    has_two = has_room_for_weight(config, PREFERRED_CHUNKS) or (is_four_over_six(config) and not config.normalizes)
    return PREFERRED_CHUNKS if has_two else 1


def least_idle_chunks(config: KernelConfig, chunks: int) -> int:
    """The given number of chunks per lane, or one if an eighth of the lanes would be idle in the last chunk.

    SwiGLU of 3328 columns, 7 groups, went from 0.82 to 0.91 of the fastest with 7 warps instead of 4 times 2 chunks.
    """
    groups = groups_of(config)
    is_idle = 8 * (round_up(groups, chunks) - groups) > groups
    return 1 if config.gate_columns and groups <= MAX_WARPS and is_idle else chunks


def for_many_rows(config: KernelConfig, target: Target) -> KernelConfig:
    """The configuration for calls of the class "many"; unchanged if the schedule is the same, so one kernel serves."""
    if not config.is_row_wise:
        return config
    many = replace(config, many_rows=True)
    return config if row_schedule(many, target) == row_schedule(config, target) else many
