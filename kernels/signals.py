"""When a kernel signals its dependents, by programmatic dependent launch: the next kernel then begins while it runs.

A dependent begins 0.5 us after the signal. If it finds that the previous kernel is about to complete, it waits up to
0.4 us longer than if that had completed, so kernels should not signal 0.4 to 0.7 us before they end.
"""

from __future__ import annotations

from .config import KernelConfig
from .registers import groups_of
from .row_parts import has_separate_parts
from .row_schedule import RowSchedule

# Groups of the longest rows whose blocks signal dependents late, in general and to FP4, and up to how many blocks do.
_LATE_GROUPS, _LATE_GROUPS_OF_FP4, _LATE_BLOCKS = 11, 8, 64
# Threads of blocks that compute activations, of which nearly any number signals late. Smaller ones are so many that it
# takes long to start them: with 64 threads, SwiGLU of 211 x 4096 would take 3.23 us, not 3.08.
_THREADS, _NEARLY_ANY = 96, 1 << 20


def late_blocks(config: KernelConfig, schedule: RowSchedule) -> int:
    """Up to how many blocks signal dependents late; 0 if any signal as soon as their rows are found or requested.

    Blocks with activations do once these are computed, other blocks of few short rows once their rows' statistics are
    known. On an H100, SwiGLU to FP8 groups of 1 x 1536 takes 1.17 us, not 1.45, of 128 x 5120 2.87, not 3.05, RMSNorm
    to FP8 groups of 1 x 4096 1.12, not 1.40, of 64 x 4096 1.29, not 1.40. Norms of more than 0.7 us would lose up to
    20 %: layer normalization, NVFP4 of 9 groups, and by row; those with a residual gain nothing.

    Example:
        >>> late_blocks(KernelConfig("rmsnorm", 4096), RowSchedule.parse("8x1wuql"))
        64
    """
    if config.activation and has_separate_parts(config):
        return _NEARLY_ANY if schedule.threads >= _THREADS else _LATE_BLOCKS
    is_fp4 = config.quant is not None and config.quant.element == "e2m1"
    is_long = groups_of(config) > (_LATE_GROUPS_OF_FP4 if is_fp4 else _LATE_GROUPS)
    is_plain = config.op == "rmsnorm" and config.combine == "input" and not config.finish
    is_hurried = schedule.favours_latency and schedule.warps_per_row > 1 and schedule.blocks_per_row == 1
    return _LATE_BLOCKS if is_plain and is_hurried and not (is_long or (is_fp4 and config.needs_row_amax)) else 0
