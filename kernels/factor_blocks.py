"""The blocks that compute factors of streams (mHC) for after the layer: among those of rows, or after their rows."""

from __future__ import annotations

from .row_schedule import RowSchedule

# Threads of a launch that computes factors from the streams' squares, if the schedule does not say how many run at
# once: few enough that blocks have several rows, whose factors they compute together.
MIXING_THREADS = 1 << 20
# Threads of a block that have a row each: few, since the warps of a block take turns to issue the steps of such chains.
# With 32 or 128, `mhc_pre` takes as long, within 1 %.
_MOST_THREADS = 64


def factor_rows(schedule: RowSchedule) -> int:
    """Rows whose factors a block, or a cluster, computes: one per thread.

    Example:
        >>> factor_rows(RowSchedule.parse("8x1")), factor_rows(RowSchedule.parse("8x1b2"))
        (64, 128)
    """
    return min(_MOST_THREADS, schedule.threads) * schedule.blocks_per_row
