"""The constants of a source that say how threads share rows."""

from __future__ import annotations

from collections.abc import Iterator

from .config import KernelConfig
from .constant import Constant, boolean, integer
from .factor_blocks import factor_rows
from .padding import padding_blocks, padding_shares, pads_scales
from .registers import MAX_PREFETCHED_BYTES
from .reordered_values import reorders_values
from .row_parts import has_separate_parts
from .rows_ahead import shared_chunks, shares_parameters, staged_row_bytes
from .schedule import row_schedule
from .short_rows import splits_heads
from .signals import awaits_stores, awaits_values, late_blocks
from .stores import shifts_stores, stores_sum_early, stores_together
from .tabulated_rows import limits_gates, settles_in_table, tabulated_bits
from .target import Target


def schedule_constants(config: KernelConfig, target: Target) -> Iterator[Constant]:
    """The constants of a row-wise op for a GPU that its schedule determines."""
    schedule = row_schedule(config, target)
    yield integer("kLanesPerRow", schedule.lanes_per_row)
    yield integer("kWarpsPerRow", schedule.warps_per_row)
    yield integer("kThreadsPerRow", schedule.threads_per_row)
    yield integer("kChunksPerLane", schedule.chunks_per_lane)
    yield integer("kChunksAtOnce", schedule.chunks_at_once)
    yield integer("kMaxPrefetchedBytes", MAX_PREFETCHED_BYTES)
    yield integer("kRowsPerBlock", schedule.rows_per_block)
    yield integer("kRowsAtOnce", schedule.rows_at_once)
    yield integer("kBlocksPerRow", schedule.blocks_per_row)
    yield integer("kThreads", schedule.threads)
    yield integer("kLateBlocks", late_blocks(config, schedule))
    yield boolean("kLateSignalsAwaitValues", awaits_values(config, schedule))
    yield boolean("kLateSignalsAwaitStores", awaits_stores(schedule))
    yield boolean("kInClusters", schedule.blocks_per_row > 1 and not has_separate_parts(config))
    yield boolean("kHoldsRow", schedule.holds_row)
    yield boolean("kStaysShared", schedule.stays_shared)
    yield boolean("kStaysResident", schedule.stays_resident)
    yield boolean("kSkipsChunks", schedule.skips_chunks)
    yield boolean("kKeepsUnpacked", schedule.keeps_unpacked)
    yield boolean("kTakesFastPath", schedule.takes_fast_path)
    yield boolean("kFavoursLatency", schedule.favours_latency)
    yield boolean("kMayPrefetchWeight", schedule.prefetches_weight)
    yield integer("kStagedBytes", staged_row_bytes(config))
    if config.experts:
        yield integer("kPaddingShares", padding_shares(config, schedule))
    if config.experts or pads_scales(config):
        yield integer("kPaddingBlocks", padding_blocks(config, schedule))
    if config.sinkhorn:
        yield integer("kFactorRows", factor_rows(schedule))
    if shares_parameters(config, schedule):
        yield integer("kSharedChunks", shared_chunks(schedule))
    if schedule.copies_parameters:
        yield boolean("kCopiesParameters", True)
    if schedule.activates_early:
        yield boolean("kActivatesEarly", True)
    if schedule.tabulates:
        least, end = tabulated_bits()
        yield integer("kLeastTabulated", least)
        yield integer("kEndTabulated", end)
        yield boolean("kSettlesInTable", settles_in_table(config.activation))
        yield boolean("kLimitsGates", limits_gates(config.activation))
    if reorders_values(config, schedule):
        yield boolean("kReordersValues", True)
    if schedule.splits_chunks or splits_heads(config):
        yield boolean("kSplitsChunks", True)
    yield boolean("kStoresTogether", stores_together(config, schedule))
    yield boolean("kShiftsStores", shifts_stores(config))
    yield boolean("kStoresSumEarly", stores_sum_early(config, schedule))
