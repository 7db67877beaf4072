"""Gates of a norm whose activations are computed before its statistic is known: when a schedule may, and when by rule.

Activations wait only for the gates, which are loaded first, and hide behind the rest of the row and its sums. They take
twice the registers of 16-bit gates until the row is encoded. On an H200, gated norms to FP8 by token of 16 shapes take
0.95 of the time, 0.83 to 1.07, and with the fastest divisions for them 0.90. With one chunk per lane, 340 x 4864 takes
0.84 of the time to NVFP4 and to FP8, 0.97 in bfloat16.
"""

from __future__ import annotations

from dataclasses import replace

from .config import KernelConfig
from .registers import with_room_for_weight
from .row_schedule import RowSchedule


def may_activate_early(config: KernelConfig) -> bool:
    """Whether a norm has gates in a tensor of their own that wait for its statistic.

    Example:
        >>> [may_activate_early(KernelConfig("rmsnorm", 4096, gate=gate)) for gate in ("", "input", "norm")]
        [False, False, True]
    """
    return config.combine == "beside"


def activating_early(config: KernelConfig, schedule: RowSchedule) -> RowSchedule:
    """The schedule by rule: norms that wait for the largest magnitude of their row activate early, and many short rows.

    Example:
        >>> gated = KernelConfig.parse("rmsnorm:hidden_size=4096,gate=norm,quant=e4m3/row/f32")
        >>> [str(activating_early(gated, RowSchedule.parse(text))) for text in ("8x1w", "4x2w")]
        ['8x1wz', '4x2z']
    """
    gains = config.needs_row_amax or (config.many_rows and schedule.chunks_per_lane == 1)
    may = may_activate_early(config) and schedule.holds_row and not config.amax_parts
    return with_room_for_weight(config, replace(schedule, activates_early=True)) if may and gains else schedule


def early_variants(config: KernelConfig, schedule: RowSchedule) -> tuple[RowSchedule, ...]:
    """The schedule without early activations, with them, or both, whichever may be the fastest.

    Norms that are kept until the largest magnitude of the row is known take the place of the activations; otherwise, a
    second chunk in a lane wants the registers.

    Example:
        >>> gated = KernelConfig("rmsnorm", 4096, gate="norm")
        >>> [list(map(str, early_variants(gated, RowSchedule.parse(text)))) for text in ("8x1wq", "4x2wq")]
        [['8x1wq', '8x1wqz'], ['4x2wq']]
    """
    if not may_activate_early(config):
        return (schedule,)
    early = with_room_for_weight(config, replace(schedule, activates_early=True))
    if config.needs_row_amax:
        return (early,)
    return (schedule, early) if schedule.chunks_per_lane == 1 else (schedule,)
