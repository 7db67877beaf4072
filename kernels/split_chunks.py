"""Rows of which each lane has halves of two chunks, half a group apart.

A lane with a whole chunk of 16-bit values loads 32 bytes in two instructions, each of which leaves out every second 16
bytes, so a warp's access takes the L1 cache twice as long as one without gaps. With halves, lanes 2k and 2k + 1 have
chunks k and k + 16 of a group, and each instruction of a warp moves 512 bytes in order. The sum over a chunk goes on
from the first half to the second, by one more exchange, so that all additions are those of whole chunks.
"""

from __future__ import annotations

from .config import KernelConfig
from .dtypes import DTYPES
from .numerics import CHUNK_SIZE
from .row_schedule import WARP_LANES, RowSchedule

# The bytes of half a chunk of 16-bit values, which are one access.
_ACCESS_BYTES = CHUNK_SIZE
# What a row may be loaded from: tensors as wide as the row, each of them by chunks.
_COMBINES = ("input", "add", "sandwich", "scaled", "beside", "branch")


def may_split(config: KernelConfig) -> bool:
    """Whether lanes may have halves of chunks: norms of 16-bit values to such values, or to FP8 or INT8 by one scale.

    Example:
        >>> may_split(KernelConfig("rmsnorm", 1168)), may_split(KernelConfig("rmsnorm", 1160))
        (True, False)
    """
    special = (
        config.second_size, config.weight_rows > 1, config.rope, config.amax_parts, config.backward, config.prenorm,
    )  # fmt: skip
    has_one_scale = config.quant is None or not (config.quant.has_blocks or config.quant.has_given_scales)
    is_whole = config.hidden_size % CHUNK_SIZE == 0 and config.encoded_size == config.hidden_size
    is_wide = DTYPES[config.input].bytes == 2 and config.vector_bytes >= _ACCESS_BYTES
    is_norm = config.normalizes and config.combine in _COMBINES
    return is_norm and has_one_scale and is_whole and is_wide and not any(special)


def why_not_split(config: KernelConfig, schedule: RowSchedule) -> str:
    """Why the lanes of a schedule cannot have halves of chunks, as the end of a sentence; empty if they can."""
    if not may_split(config):
        return "only norms of whole chunks of 16-bit values, to these or to codes with one scale, split chunks"
    if schedule.warps_per_row == 1 or schedule.lanes_per_row < WARP_LANES or schedule.loads_ahead:
        return "only rows of several warps that are not loaded ahead split chunks"
    return ""
