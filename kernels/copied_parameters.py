"""Parameters of a norm that are copied to shared memory while the row is loaded.

In registers, a chunk of a float32 parameter takes 16, and lanes that loaded it without conflicts of banks have to sort
it. In shared memory, it takes none: layer normalization of 2432 columns needs 34, not 63. The threads of a warp copy
adjacent pieces for each other, and read their own. Persistent blocks copy them once, see kernels/resident_rows.py.
"""

from __future__ import annotations

from .config import KernelConfig
from .dtypes import DTYPES
from .numerics import CHUNK_SIZE
from .row_schedule import WARP_LANES, RowSchedule
from .rows_ahead import AHEAD_BYTES
from .target import Target

# Shared memory that a block takes besides: some for the driver and, at most, so much for the sums and magnitudes of
# each row that it processes at once.
_BLOCK_BYTES, _ROW_BYTES = 1 << 10, 1 << 10


def copied_bytes(config: KernelConfig, schedule: RowSchedule) -> int:
    """Shared memory of a block for the chunks of parameters that its threads visit, even past the row."""
    chunks = schedule.threads * schedule.chunks_per_lane
    return (1 + config.has_bias) * chunks * CHUNK_SIZE * DTYPES[config.weight].bytes


def most_copies(config: KernelConfig, target: Target, schedule: RowSchedule) -> int:
    """How many blocks with copies of their own a multiprocessor has shared memory for."""
    others = _BLOCK_BYTES + schedule.rows_at_once * _ROW_BYTES
    return target.all_shared_bytes // (copied_bytes(config, schedule) + others)


def why_not_copied(config: KernelConfig, target: Target, schedule: RowSchedule) -> str:
    """Why parameters cannot be copied to shared memory, as the end of a sentence; empty if they can.

    Those of 16 bits gain nothing: on an H200, RMSNorm to NVFP4 takes 1.04 to 1.08 times as long, layer normalization
    1.00 to 1.08.
    """
    several = (
        config.second_size, config.weights > 1, config.weight_rows > 1, config.modulated, config.amax_parts,
        config.all_reduce, config.backward, config.rope, config.prenorm,
    )  # fmt: skip
    if not config.normalizes or config.weight != "float32" or any(several):
        return "only norms with one weight, in float32, copy it to shared memory"
    if config.quant is not None and config.quant.crosses_warps:
        return f"blocks of {config.quant.block_size} values take the shared memory of parameters"
    is_whole = config.encoded_size == config.hidden_size and config.hidden_size % CHUNK_SIZE == 0
    if config.vector_bytes < AHEAD_BYTES or not is_whole:
        return f"parameters that are copied are whole chunks in accesses of {AHEAD_BYTES} bytes"
    if schedule.prefetches_weight or schedule.loads_ahead or schedule.splits_chunks or not schedule.holds_row:
        return "parameters are copied neither early, nor in halves, nor for rows that are loaded ahead or again"
    if schedule.lanes_per_row != WARP_LANES or config.hidden_size < WARP_LANES * CHUNK_SIZE:
        return "rows of less than a warp do not copy their parameters"
    if copied_bytes(config, schedule) > target.shared_bytes:
        return f"a multiprocessor has shared memory for {target.shared_bytes} bytes of parameters"
    most = most_copies(config, target, schedule)
    if schedule.stays_resident and schedule.resident_blocks > most:
        return f"copies of the parameters leave a multiprocessor room for fewer blocks: say so with o{most}"
    return ""
