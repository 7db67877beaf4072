"""How a row is stored: by which lanes together, and whether its sum with a residual precedes the rest."""

from __future__ import annotations

from .config import KernelConfig
from .dtypes import DTYPES
from .numerics import CHUNK_SIZE
from .registers import may_store_sum_late
from .row_schedule import RowSchedule
from .short_rows import holds_halves, pairs_of_chunks, splits_heads


def stores_together(config: KernelConfig, schedule: RowSchedule) -> bool:
    """Whether as many lanes of a row as a chunk takes accesses store their chunks together.

    Two lanes do not in layer normalization: it is bound by the L1 cache, and fell from 0.816 to 0.781 of the roofline.
    In its gradients, they do if threads work on one row at a time: 16384 x 8192 went from 238 to 206 us; with two rows
    at once, 16384 x 5120 would go from 132 to 148.
    """
    lanes = CHUNK_SIZE * max(2, DTYPES[config.input].bytes) // config.vector_bytes
    if schedule.splits_chunks or splits_heads(config) or schedule.lanes_per_row % lanes:
        return False
    if holds_halves(config) and any(pairs % lanes for pairs in pairs_of_chunks(config)):
        return False
    sizes = (config.encoded_size, config.hidden_size, config.second_size)
    is_even = all(size % (lanes * CHUNK_SIZE) == 0 for size in sizes)
    if lanes > 2:
        return is_even or not config.second_size
    if config.op == "layernorm" and not (config.backward and schedule.rows_at_once == 1):
        return False
    return is_even and not schedule.favours_latency


def shifts_stores(config: KernelConfig) -> bool:
    """Whether lanes shift chunks and codes that are not aligned, and store them in accesses that are.

    All lanes of a warp must take part, which ops on heads, streams and ranks do not ensure. In accesses as narrow as
    addresses allow, each lane would write a part of a sector at a time: add + RMSNorm to NVFP4 of 45536 x 128 reached
    0.19 of a copy.
    """
    return not (config.rope or config.second_size or config.streams or config.all_reduce)


def stores_sum_early(config: KernelConfig, schedule: RowSchedule) -> bool:
    """Whether a row's sum with the residual is stored while its statistic, for which few rows wait, is in flight.

    Add + FP8 of 16 x 7168 went from 2.23 to 1.98 us. Block formats do so only if the schedule says so: NVFP4 of 1024 x
    4096 went from 8.28 to 8.57.
    """
    is_kept = schedule.holds_row and not schedule.stays_shared
    if config.divides_rows:
        return config.residual  # a row is encoded again for each rank
    return config.residual and is_kept and (schedule.stores_sum_early or not may_store_sum_late(config))
