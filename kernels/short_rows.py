"""How rows of up to three groups are divided: those with few elements share a warp or a block."""

from __future__ import annotations

from dataclasses import replace

from .config import KernelConfig
from .dtypes import DTYPES
from .numerics import CHUNK_SIZE, ceil_div, next_power_of_two
from .packed_rows import (
    BLOCK_THREADS,
    FEWEST_LANES,
    LANES,
    chunks_of,
    keeps_unpacked,
    of_streams,
    packed_schedule,
    shares_parameters,
    why_not_packed,
)
from .registers import groups_of, held_bytes, residents
from .resident_rows import why_not_resident
from .row_schedule import WARP_LANES, RowSchedule
from .rows_ahead import sharing_rows, why_not_ahead
from .side_by_side import gains_side_by_side, of_small_rows
from .target import Target

# Measured on an H200, see docs/choices.md: many rows of up to so many groups are fastest in one warp each, which waits
# for no other.
SINGLE_WARP_GROUPS = 3
# So many of these leave a thread 128 registers, for the parameters of a row and two sets of rows.
_RESIDENT_BLOCKS = 4
# Blocks on a multiprocessor of heads that are only rotated. On its own, the compiler makes room for ten; with nine, it
# requests most of a head together with its angles, not before: on an H200, rope_quant of 8192 tokens x 4096 took 33.0
# us, not 35.7, but of 128 tokens 2.66, not 2.54.
_TURNING_BLOCKS = 9


def short_row_schedule(config: KernelConfig, target: Target) -> RowSchedule:
    """The schedule of rows of up to `SINGLE_WARP_GROUPS` groups."""
    if scales_columns(config):
        return _scaled_columns_schedule(config)
    resident = resident_schedule(config, target)
    if resident is not None:
        return resident
    if config.many_rows and shares_parameters(config):
        sharing = sharing_rows(config, target, RowSchedule(1, 1, keeps_unpacked=held_bytes(config) == 2))
        if not why_not_ahead(config, target, sharing):
            return sharing
    packed = packed_schedule(config)
    if groups_of(config) > 1:
        return packed or _of_warps(config)
    if config.many_rows and config.streams and config.normalizes:
        return of_streams(config, small_row_schedule(config))
    row_class = "many" if config.many_rows else "few"
    return _beside(config, row_class, shares_warps=packed is not None) or packed or small_row_schedule(config)


def _beside(config: KernelConfig, row_class: str, *, shares_warps: bool = False) -> RowSchedule | None:
    """Rows of up to a group side by side, which may share warps otherwise; None if they gain nothing by it."""
    beside = of_small_rows(config)
    if beside is None or why_not_packed(config, beside):
        return None
    return beside if gains_side_by_side(config, row_class, shares_warps=shares_warps) else None


def holds_halves(config: KernelConfig) -> bool:
    """Whether a lane has two chunks of a head, which it rotates with each other without shuffles.

    On an H200, 2^24 elements or more with heads of 96, 160 and 192 take 0.62 to 0.94 of the time of one chunk per lane,
    16 tokens 0.90 to 1.15. Of heads that are rotated in part, in whole pairs of lanes, they take 0.74 to 0.89, but 16
    tokens up to 1.2.
    """
    size = config.hidden_size
    has_whole_chunks = size % CHUNK_SIZE == 0 and config.rotary_size % (2 * CHUNK_SIZE) == 0
    if config.rope != "neox" or config.head_size or not has_whole_chunks or size < 4 * CHUNK_SIZE:
        return False
    turned, others = pairs_of_chunks(config)
    return others == 0 or (config.many_rows and turned % 2 == others % 2 == 0)


def splits_heads(config: KernelConfig) -> bool:
    """Whether a lane has half a chunk of both halves of a head, which it rotates with each other without shuffles.

    On an H200, 5000 heads of 80 to 240 elements or more take 0.67 to 1.05 of the time of lanes with whole chunks, fewer
    0.78 to 1.08, but to FP8 without a norm 0.97 to 1.16.
    """
    is_whole = config.hidden_size == config.rotary_size and config.hidden_size % CHUNK_SIZE == 0
    is_wide = DTYPES[config.input].bytes == 2 and config.vector_bytes >= CHUNK_SIZE
    is_odd = chunks_of(config) % 2 == 1 and chunks_of(config) > 1
    return config.rope == "neox" and not config.head_size and is_whole and is_wide and is_odd


def pairs_of_chunks(config: KernelConfig) -> tuple[int, int]:
    """How many lanes have two chunks of a head that are rotated, and two others."""
    turned = config.rotary_size // (2 * CHUNK_SIZE)
    return turned, ceil_div(chunks_of(config), 2) - turned


def awaits_positions(config: KernelConfig) -> bool:
    """Whether the rows of heads are requested only once the positions of their tokens have arrived.

    Where heads go to a cache, the positions and angles would otherwise wait behind the rows: on an H200,
    qk_rmsnorm_rope_cache of 8192 tokens x 4096 took 54.6 us, not 57.9, but of 16 tokens 2.15, not 2.08; without a norm
    and to FP8, 48.6, not 50.8, and 2.07, not 2.17. Without a cache, it gains 2 % or loses up to 6 %.
    """
    return config.paged and holds_halves(config) and (config.many_rows or not config.normalizes)


def scales_columns(config: KernelConfig) -> bool:
    """Whether a quantization has a given scale for each column, whose reciprocals a thread's rows can share."""
    if config.quant is None or not config.quant.has_given_scales or config.quant.given_block != (None, 1):
        return False
    return not (config.normalizes or config.all_reduce) and held_bytes(config) == 2


def resident_schedule(config: KernelConfig, target: Target) -> RowSchedule | None:
    """Persistent blocks that keep the parameters of many rows of a group; None if that gains nothing.

    On an H200, 2^22 to 2^26 elements of 128 to 512 columns take 0.94 to 0.98 of the time as RMSNorm to NVFP4; as layer
    normalization with float32 parameters 0.91 to 0.99 to FP8, 0.85 to 0.98 to MXFP8, except where three chunks per lane
    leave no lane idle: of 192 columns, 1.03 and 1.07.
    """
    if not config.many_rows or groups_of(config) > 1 or chunks_of(config) <= FEWEST_LANES:
        return None
    packed = packed_schedule(config)
    if not _keeps_parameters(config, target) or (config.op == "layernorm" and packed is not None):
        return None
    resident = replace(
        packed or small_row_schedule(config), prefetches_weight=True, keeps_unpacked=config.op == "layernorm",
        takes_fast_path=True, stays_resident=True, resident_blocks=_RESIDENT_BLOCKS,
    )  # fmt: skip
    return None if why_not_resident(config, resident) else resident


def _keeps_parameters(config: KernelConfig, target: Target) -> bool:
    """Whether a norm gains by that; layer normalization alone takes 0.98 to 1.03 of the time, RMSNorm + SiLU to 1.08.

    Where E2M1 is not emulated, instructions do not bind RMSNorm to NVFP4, and three chunks per lane spill registers.
    """
    quant = config.quant
    if quant is None or config.keep_norm or config.needs_row_amax or held_bytes(config) > 2 or not _hurries(config):
        return False
    if config.op == "layernorm":
        return config.weight == "float32" and quant.element != "e2m1"
    is_nvfp4 = quant.element == "e2m1" and quant.scale_format == "e4m3" and not quant.four_over_six
    return is_nvfp4 and config.has_weight and not (config.activation or target.has_native_e2m1)


def _scaled_columns_schedule(config: KernelConfig) -> RowSchedule:
    """Rows that a thread works on together, for whose columns it finds reciprocals once.

    On an H100, 32262 x 384 went from 0.97 of a copy to 1.06, 17077 x 1200 from 0.92 to 1.02.
    """
    groups = groups_of(config)
    if groups > 1:
        return RowSchedule(groups, 1, rows_at_once=4)
    small = small_row_schedule(config)
    return replace(small, rows_at_once=2) if small.lanes_per_row == WARP_LANES else small


def small_row_schedule(config: KernelConfig) -> RowSchedule:
    """Rows of up to a group, with a chunk per lane, or two that are rotated with each other."""
    if holds_halves(config):
        return _rotated_heads_schedule(config)
    if splits_heads(config):
        return _split_heads_schedule(config)
    lanes = next_power_of_two(chunks_of(config))
    if _is_small_norm(config):
        return RowSchedule(
            1, 1, prefetches_weight=True, keeps_unpacked=True, favours_latency=True,
            rows_per_block=BLOCK_THREADS // 2 // lanes, lanes_per_row=lanes,
        )  # fmt: skip
    small = RowSchedule(1, 1, prefetches_weight=True, rows_per_block=BLOCK_THREADS // lanes, lanes_per_row=lanes)
    return _hurried(config, small) if _hurries(config) else small


def _hurries(config: KernelConfig) -> bool:
    """Whether rows of up to a group take the fast path of their statistic: layer normalization's, and encoded ones.

    On an H200, in the mean of rows of 128 to 512 elements, 1 and 2.7 million elements of layer normalization take 0.88
    and 0.91 of the time with the schedules below, to FP8 0.88 and 0.92, of RMSNorm to FP8 by token 0.94 and 0.94, to
    FP8 groups 0.92 and 0.99, to NVFP4 0.92 and 1.00. Left out are modulated norms, which would take 1.02 and 1.05 of
    it, and few rows to NVFP4 with a scale of each row: 1.04.
    """
    is_alone = config.normalizes and config.combine == "input" and config.weights == config.weight_rows == 1
    is_special = config.rope or config.backward or config.modulated or config.activates_norm
    is_few_by_row = not config.many_rows and config.quant is not None and config.quant.global_scale == "row"
    has_more = config.op == "layernorm" or config.quant is not None
    return bool(is_alone and has_more and not (is_special or is_few_by_row))


def _hurried(config: KernelConfig, small: RowSchedule) -> RowSchedule:
    """The same with the fast path, in blocks of half as many threads, unless rows have a given scale, or are many.

    Many rows of layer normalization are taken in pairs, which share parameters.
    """
    fast = replace(small, takes_fast_path=True)
    if config.many_rows:
        return replace(fast, rows_at_once=2) if config.op == "layernorm" else fast
    is_found = config.quant is not None and (config.quant.has_blocks or config.needs_row_amax)
    gains = config.op == "layernorm" or is_found
    return replace(fast, rows_per_block=small.rows_per_block // 2) if gains else fast


def usual_small_schedule(config: KernelConfig) -> RowSchedule | None:
    """The schedule of rows of up to a group that are not few, but not many either; None if that of few is as fast.

    On an H200, with the schedule of few, queries and keys of 1024 x 3072 took 6.5 us, not 5.5, rotated ones to FP8 up
    to 8 % longer, and those of 144 elements with a norm to FP8 1.23 times as long.
    """
    few = _beside(config, "few") or small_row_schedule(config)
    found = _beside(config, "usual") or _usual_of_lanes(config)
    found = _signalling_late(config, found) if _signals_late(config) else found
    return None if found == few else found


def _signals_late(config: KernelConfig) -> bool:
    """Whether norms that are neither few nor many signal dependents late.

    On an H200, norms of 64 to 512 elements, 1 to 4 million in a call, take 0.78 to 0.98 of the time: RMSNorm 0.91, to
    MXFP8, NVFP4 and MXFP4 0.91, 0.89, 0.83, layer normalization 0.94, to MXFP8 0.91, gated norms to NVFP4 0.92. Fewer
    elements would take 1.0 to 1.2 times as long; RMSNorm with a given scale 1.01 to 1.05, without a weight 1.01,
    modulated norms 1.05.
    """
    quant = config.quant
    if config.op == "rmsnorm" and config.combine in ("input", "add") and not config.gate:
        has_given_scale = quant is not None and not (quant.has_blocks or config.needs_row_amax)
        if has_given_scale or not (config.has_weight or quant):
            return False
    is_other = config.rope or config.pair or config.backward or config.all_reduce or config.modulated
    return config.normalizes and not is_other and chunks_of(config) >= FEWEST_LANES


def _signalling_late(config: KernelConfig, usual: RowSchedule) -> RowSchedule:
    """The schedule of norms that signal dependents late: side by side in blocks that are not too small, else in warps.

    Where a quarter of a warp would be idle otherwise, rows in small blocks stay as they are: they gain nothing, unless
    they have activations. On an H200, 1.4 to 1.9 million elements of 368 and 384 columns of gated norms then take 0.88
    of the time, of RMSNorm + SiLU 0.87.
    """
    if config.streams:
        return of_streams(config, replace(small_row_schedule(config), signals_late=True))
    late = replace(usual, takes_fast_path=True, signals_late=True)
    if usual.lanes_per_row not in (*LANES, WARP_LANES):
        if usual.threads >= BLOCK_THREADS:
            return late
        if 2 * usual.lanes_per_row > WARP_LANES:
            return late if config.activation or config.gate else usual
    lanes = next_power_of_two(chunks_of(config))
    return replace(
        late, prefetches_weight=config.combine != "branch", keeps_unpacked=keeps_unpacked(config), rows_at_once=1,
        rows_per_block=BLOCK_THREADS // lanes, lanes_per_row=lanes, favours_latency=False,
    )  # fmt: skip


def _usual_of_lanes(config: KernelConfig) -> RowSchedule:
    """The schedule of rows that do not lie side by side: that of many, without several chunks per lane, or of few."""
    usual = replace(config, many_rows=True)
    gains_as_heads = splits_heads(config) or (holds_halves(config) and config.quant is not None and not config.paged)
    gains = _is_small_norm(config) or _hurries(usual) or gains_as_heads
    return small_row_schedule(usual if gains and chunks_of(config) > 1 else config)


def _rotated_heads_schedule(config: KernelConfig) -> RowSchedule:
    """Heads of which a lane has two chunks.

    With a norm, in blocks of 64 threads: on an H200, 16 tokens x 4096 took 1.65 us, not 1.73, of 8192 46.1, not 46.9.
    The weight is loaded late: for FP8, it would take 71 registers instead of 64, which costs a block.
    """
    lanes = next_power_of_two(sum(pairs_of_chunks(config)))
    is_small = config.normalizes and not awaits_positions(config)
    threads = BLOCK_THREADS // 2 if is_small else BLOCK_THREADS
    is_light = not (config.normalizes or config.paged) and DTYPES[config.angles].bytes == 2
    blocks = _TURNING_BLOCKS if is_light and (config.many_rows or config.quant is None) else 0
    return RowSchedule(1, 2, rows_per_block=threads // lanes, lanes_per_row=lanes, resident_blocks=blocks)


def _split_heads_schedule(config: KernelConfig) -> RowSchedule:
    """Heads of which a lane has parts of both halves: few with a norm in small blocks, many others in large ones.

    On an H200, in the mean of heads of 80 and 144 and 2^23 elements or more, rotating them to FP8 takes 0.68 of the
    time of lanes with whole chunks, with blocks of 128 threads 0.76.
    """
    lanes = next_power_of_two(chunks_of(config))
    threads = BLOCK_THREADS
    if config.normalizes != config.many_rows:
        threads = BLOCK_THREADS // 2 if config.normalizes else 2 * BLOCK_THREADS
    return RowSchedule(1, 1, prefetches_weight=True, rows_per_block=threads // lanes, lanes_per_row=lanes)


def why_not_rotated(config: KernelConfig, schedule: RowSchedule) -> str:
    """Why a schedule does not fit heads to rotate, as the end of a sentence; empty if it does."""
    own = small_row_schedule(config)
    likewise = replace(
        schedule, prefetches_weight=own.prefetches_weight, rows_per_block=own.rows_per_block,
        resident_blocks=own.resident_blocks,
    )  # fmt: skip
    if likewise != own:
        return f"heads to rotate have as many lanes as they need, as in {own}"
    is_whole = schedule.threads % WARP_LANES == 0 and schedule.threads <= 1024
    return "" if is_whole else "blocks are up to 32 whole warps"


def _is_small_norm(config: KernelConfig) -> bool:
    """Whether few rows of a plain norm, such as heads, share smaller blocks, whose lanes store separately.

    On an H100, 9 x 1536 queries and keys with heads of 128 went from 1.37 us to 1.17, 64 x 4096 from 1.68 to 1.33.
    """
    is_plain = config.op == "rmsnorm" and config.combine == "input" and not (config.finish or config.rope)
    is_light = config.quant is None and held_bytes(config) == 2 and not config.many_rows
    is_usual = config.weights == config.weight_rows == 1 and not config.backward
    return is_plain and is_light and is_usual


def _of_warps(config: KernelConfig) -> RowSchedule:
    """One warp per row for many rows without a residual, else one warp per group.

    SwiGLU of 1536 columns takes half the time up to 128 rows, and 0.83 to 0.92 of it for many.
    """
    groups = groups_of(config)
    if config.all_reduce or (config.normalizes and (config.residual or not config.many_rows)):
        return RowSchedule(groups, 1, prefetches_weight=True)
    if config.gate_columns or not (config.normalizes or config.many_rows or config.amax_parts):
        return RowSchedule(groups, 1, resident_blocks=residents(config, groups, 1))
    # A multiprocessor holds 32 blocks, which is too few warps if none waits for the row: NVFP4 alone of 65536 x 1536
    # went from 0.780 to 0.974 of the roofline.
    # Of two lengths, 52428 x 1280 with 320 reaches 0.92 of a copy, not 0.86.
    rows_per_block = 2 if config.normalizes and not config.second_size else BLOCK_THREADS // WARP_LANES
    return RowSchedule(1, groups, prefetches_weight=True, rows_per_block=rows_per_block)
