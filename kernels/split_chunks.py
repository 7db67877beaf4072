"""Rows of which each lane has halves of two chunks, half a group apart.

A lane with a whole chunk of 16-bit values loads 32 bytes in two instructions, each of which leaves out every second 16
bytes, so a warp's access takes the L1 cache twice as long as one without gaps. With halves, lanes 2k and 2k + 1 have
chunks k and k + 16 of a group, and each instruction of a warp moves 512 bytes in order. The sum over a chunk continues
from the first half to the second, by one more exchange, so that all additions are those of whole chunks.
"""

from __future__ import annotations

from .config import KernelConfig
from .dtypes import DTYPES
from .numerics import CHUNK_SIZE
from .quant_spec import QuantSpec
from .row_schedule import WARP_LANES, RowSchedule

# The bytes of half a chunk of 16-bit values, which are one access.
_ACCESS_BYTES = CHUNK_SIZE
# What rows of norms, and others, may be loaded from: tensors as wide as the row, each of them by chunks. Quantization
# alone and gated rows gain nothing.
_COMBINES = {True: ("input", "add", "sandwich", "scaled", "beside", "branch"), False: ("activated",)}


def may_split(config: KernelConfig) -> bool:
    """Whether lanes may have halves of chunks: in norms and activations of 16-bit values to these or to bytes.

    Example:
        >>> may_split(KernelConfig("rmsnorm", 1168)), may_split(KernelConfig("rmsnorm", 1160))
        (True, False)
    """
    if not config.is_row_wise or config.combine not in _COMBINES[config.normalizes]:
        return False
    special = (
        config.second_size, config.weight_rows > 1, config.rope, config.amax_parts, config.backward, config.prenorm,
        config.counts_rows,
    )  # fmt: skip
    is_whole = config.hidden_size % CHUNK_SIZE == 0 and config.encoded_size == config.hidden_size
    is_wide = DTYPES[config.input].bytes == 2 and config.vector_bytes >= _ACCESS_BYTES
    return is_whole and is_wide and _has_bytes(config.quant) and not any(special)


def _has_bytes(quant: QuantSpec | None) -> bool:
    """Whether values are stored, or codes of a byte, by scales of blocks in which halves of chunks have lanes."""
    if quant is None:
        return True
    return quant.element != "e2m1" and not (quant.has_given_scales or quant.crosses_warps)


def why_not_split(config: KernelConfig, schedule: RowSchedule) -> str:
    """Why the lanes of a schedule cannot have halves of chunks, as the end of a sentence; empty if they can."""
    if not may_split(config):
        return "only norms and activations of whole chunks of 16-bit values, to these or to bytes, split chunks"
    if schedule.warps_per_row == 1 or schedule.lanes_per_row != WARP_LANES or schedule.loads_ahead:
        return "only rows of several warps that are not loaded ahead split chunks"
    return ""
