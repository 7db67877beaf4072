"""When a kernel signals its dependents, by programmatic dependent launch: the next kernel then begins while it runs.

A dependent begins 0.5 us after the signal. If the previous kernel is then about to complete, the dependent waits up to
0.4 us longer than if it had completed, so kernels of few rows should not signal 0.4 to 0.7 us before they end. With
more rows, blocks of a dependent, which only wait, take the place of blocks that work.
"""

from __future__ import annotations

from .config import KernelConfig
from .registers import groups_of
from .row_parts import has_separate_parts
from .row_schedule import RowSchedule

# Up to so many blocks of a schedule that favours latency signal dependents late if asked to; of others, any number.
_FEW, _ANY = 64, (1 << 31) - 1
# Threads of blocks that compute activations, of which nearly any number signals late. Smaller ones are so many that it
# takes long to start them: with 64 threads, SwiGLU of 211 x 4096 would take 3.23 us, not 3.08.
_THREADS, _NEARLY_ANY = 96, 1 << 20
# Longer rows take too long to encode: dependents that were signalled before would begin as the row ends.
_GROUPS_SOON_ENCODED = 7


def late_blocks(config: KernelConfig, schedule: RowSchedule) -> int:
    """Up to how many blocks signal dependents late; 0 if any signal as soon as their rows are found or requested.

    Example:
        >>> norm = KernelConfig("rmsnorm", 4096)
        >>> [late_blocks(norm, RowSchedule.parse(text)) for text in ("8x1wuq", "8x1wuqld", "8x1wuqd")]
        [0, 64, 2147483647]
    """
    if config.activation and has_separate_parts(config):
        return _NEARLY_ANY if schedule.threads >= _THREADS else _FEW
    return 0 if not schedule.signals_late else _FEW if schedule.favours_latency else _ANY


def awaits_values(config: KernelConfig, schedule: RowSchedule) -> bool:
    """Whether late signals of few rows await the values of a row, not only its statistic.

    Activations do: on an H100, SwiGLU to FP8 groups of 1 x 1536 takes 1.10 us, not 1.38, of 128 x 6784 2.97, not 3.25.
    So do longer rows: RMSNorm of 1 x 5120 takes 1.33 us with 10x1wuqld, and 1.56 in a program that has used many
    streams; if it signalled at the statistic, 5x2wuqld would take 1.71 and 1.42.

    Example:
        >>> [awaits_values(KernelConfig("rmsnorm", size), RowSchedule.parse("8x1wuqld")) for size in (3584, 4096)]
        [False, True]
    """
    return not config.normalizes or (schedule.favours_latency and groups_of(config) > _GROUPS_SOON_ENCODED)


def awaits_stores(schedule: RowSchedule) -> bool:
    """Whether late signals await the stores of a row: on an H200, RMSNorm of 256 x 8192 takes 3.87 us, not 4.35.

    Example:
        >>> [awaits_stores(RowSchedule.parse(text)) for text in ("8x1wuqld", "8x1wuqd")]
        [False, True]
    """
    return schedule.signals_late and not schedule.favours_latency
