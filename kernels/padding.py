"""The blocks that pad scales: behind those of the rows of a matrix or, for experts, among those of all rows."""

from __future__ import annotations

from .config import KernelConfig
from .numerics import ceil_div
from .row_schedule import RowSchedule

# Bytes of scales that a thread zeroes at once, and how often it does so before another block is worth its start.
_BYTES_AT_ONCE = 16
_STORES_PER_THREAD = 4
# With more blocks than these, rows would wait for room: with 1024, NVFP4 of 64 x 7168 for 64 experts took 1.11 of the
# time. But so would they if a thread stored more often than this.
_MOST_BLOCKS = 256
_MOST_STORES = 16


def pads_scales(config: KernelConfig) -> bool:
    """Whether a launch pads scales beside its rows.

    Blocks of their own do so, persistent blocks once they have no rows left, or on the CPU turns of their own. Ranks
    that divide the rows let all blocks pad first. What a mask leaves out is not padded.
    """
    return config.row_multiple > 1 and not config.masked and config.all_reduce in ("", "one_shot")


def padding_shares(config: KernelConfig, schedule: RowSchedule) -> int:
    """Blocks that share the padding of the scales of a matrix, or of an expert.

    Example:
        >>> config = KernelConfig.parse("quantize:hidden_size=7168,weight=none,quant=e2m1/16/e4m3/128x4,experts=8")
        >>> padding_shares(config, RowSchedule.parse("14x1"))
        2
    """
    stores = ceil_div(config.row_multiple * config.padded_scale_columns, _BYTES_AT_ONCE)
    wanted, least = (ceil_div(stores, times * schedule.threads) for times in (_STORES_PER_THREAD, _MOST_STORES))
    return max(least, min(wanted, _MOST_BLOCKS // max(1, config.experts)))


def padding_blocks(config: KernelConfig, schedule: RowSchedule) -> int:
    """Blocks, or the clusters that they make up, that pad the scales of a matrix, or of all experts."""
    if not pads_scales(config) or schedule.is_persistent:
        return 0
    return ceil_div(padding_turns(config) * padding_shares(config, schedule), schedule.blocks_per_row)


def padding_turns(config: KernelConfig) -> int:
    """How often the CPU pads scales: once for a matrix, or for each expert."""
    return max(1, config.experts) if pads_scales(config) else 0
