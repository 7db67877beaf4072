"""How rows of up to three groups are divided: those with few elements share a warp or a block."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from .config import KernelConfig
from .dtypes import DTYPES
from .numerics import CHUNK_SIZE, ceil_div, next_power_of_two
from .registers import (
    groups_of,
    has_room_for_weight,
    held_bytes,
    most_held_chunks,
    residents,
    waits_for_row_amax,
)
from .resident_rows import why_not_resident
from .row_parts import has_separate_parts
from .row_schedule import CHUNKS_AT_ONCE, WARP_LANES, RowSchedule
from .rows_ahead import sharing_rows, why_not_ahead
from .side_by_side import FOLDING_LANES, gains_side_by_side, meets_side_by_side, of_small_rows, side_by_side
from .target import Target

# Measured on an H200, see docs/choices.md: many rows of up to so many groups are fastest in one warp each, which waits
# for no other.
SINGLE_WARP_GROUPS = 3
# Rows that share a block fill blocks of this many threads.
_BLOCK_THREADS = 128
# So many of these leave a thread 128 registers, for the parameters of a row and two sets of rows.
_RESIDENT_BLOCKS = 4
# Blocks on a multiprocessor of heads that are only rotated. On its own, the compiler makes room for ten; with nine, it
# requests most of a head together with its angles, not before: on an H200, rope_quant of 8192 tokens x 4096 took 33.0
# us, not 35.7, but of 128 tokens 2.66, not 2.54.
_TURNING_BLOCKS = 9
# With two lanes per row, a warp's accesses are scattered: RMSNorm of 200000 x 64 fell from 1.01 of a copy to 0.82. Four
# chunks per lane leave too few threads: NVFP4 of 23111 x 912 fell from 0.97 to 0.83.
_LANES, _FEWEST_LANES, _MOST_CHUNKS = (16, 8, 4, 2, 1), 4, 3


def short_row_schedule(config: KernelConfig, target: Target) -> RowSchedule:
    """The schedule of rows of up to `SINGLE_WARP_GROUPS` groups."""
    if scales_columns(config):
        return _scaled_columns_schedule(config)
    resident = resident_schedule(config, target)
    if resident is not None:
        return resident
    if config.many_rows and _shares_parameters(config):
        sharing = sharing_rows(config, target, RowSchedule(1, 1, keeps_unpacked=held_bytes(config) == 2))
        if not why_not_ahead(config, target, sharing):
            return sharing
    packed = packed_schedule(config)
    if groups_of(config) > 1:
        return packed or _of_warps(config)
    row_class = "many" if config.many_rows else "few"
    return _beside(config, row_class, shares_warps=packed is not None) or packed or small_row_schedule(config)


def _beside(config: KernelConfig, row_class: str, *, shares_warps: bool = False) -> RowSchedule | None:
    """Rows of up to a group side by side, which may share warps otherwise; None if they gain nothing by it."""
    beside = of_small_rows(config)
    if beside is None or why_not_packed(config, beside):
        return None
    return beside if gains_side_by_side(config, row_class, shares_warps=shares_warps) else None


def chunks_of(config: KernelConfig) -> int:
    """Chunks of a row."""
    return ceil_div(config.encoded_size, CHUNK_SIZE)


def holds_halves(config: KernelConfig) -> bool:
    """Whether a lane has two chunks of a head, half a head apart, which it rotates with each other without shuffles."""
    size = config.hidden_size
    is_turned_in_halves = config.rope == "neox" and config.rotary_size == size and not config.head_size
    return is_turned_in_halves and size >= 4 * CHUNK_SIZE and size == next_power_of_two(size)


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


def packed_schedule(config: KernelConfig) -> RowSchedule | None:
    """Rows that share a warp, each of whose lanes has several chunks; None if many rows gain nothing by it.

    Fewer lanes are idle, and what a row takes besides its elements is divided among more of them: on an H100, NVFP4 by
    row of 53907 x 768 went from 0.86 of a copy to 0.98, four over six from 0.73 to 0.95, FP8 by token of 40960 x 272
    from 0.85 to 1.02; on an H200, NVFP4 alone of 768 elements takes 0.89 of the time.
    """
    is_left = config.residual or config.streams or config.weights > 1 or _shares_parameters(config)
    if not config.many_rows or is_left:
        return None
    found = [each for each in packings(config) if each.lanes_per_row >= _FEWEST_LANES]
    best = min(found, key=lambda each: (_capacity(each), each.chunks_per_lane != 2), default=None)
    groups, chunks = groups_of(config), chunks_of(config)
    usual = next_power_of_two(chunks) if groups == 1 else groups * WARP_LANES
    if best is None or _capacity(best) > usual or not _gains_by_packing(config, _capacity(best), usual):
        return None
    # Without idle lanes, activations to FP4 of 576 to 640 columns take 0.82 to 0.93 of the time on an H200.
    parted = side_by_side(config, 2, _BLOCK_THREADS) if groups > 1 and has_separate_parts(config) else None
    return best if parted is None or why_not_packed(config, parted) else parted


def _gains_by_packing(config: KernelConfig, capacity: int, usual: int) -> bool:
    """Whether rows gain from lanes with several chunks, with room for `capacity` chunks of a row instead of `usual`."""
    is_of_a_group, chunks, has_codes = groups_of(config) == 1, chunks_of(config), config.quant is not None
    is_alone = config.activation.startswith("gelu") and not (has_codes or config.gate_columns or config.normalizes)
    if is_alone and config.input == "bfloat16":
        return is_of_a_group  # GELU that is only rounded: in three chunks, 720 columns take 1.39 times as long
    if _is_bound_by_instructions(config):
        return is_of_a_group or capacity < usual
    # Others are bound by memory, and gain only where a third of the lanes would be idle, or for some a quarter.
    if capacity < usual and 3 * chunks < 2 * usual:
        return has_codes or config.activation != "" or config.op == "layernorm"
    is_slow = is_of_a_group if has_codes else config.op == "layernorm"
    return capacity < usual and 4 * chunks <= 3 * usual and (is_slow or config.gate != "")


def resident_schedule(config: KernelConfig, target: Target) -> RowSchedule | None:
    """Persistent blocks that keep the parameters of many rows of a group; None if that gains nothing.

    On an H200, 2^22 to 2^26 elements of 128 to 512 columns take 0.94 to 0.98 of the time as RMSNorm to NVFP4; as layer
    normalization with float32 parameters 0.91 to 0.99 to FP8, 0.85 to 0.98 to MXFP8, except where three chunks per lane
    leave no lane idle: of 192 columns, 1.03 and 1.07.
    """
    if not config.many_rows or groups_of(config) > 1 or chunks_of(config) <= _FEWEST_LANES:
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


def packings(config: KernelConfig) -> Iterator[RowSchedule]:
    """The divisions of a row among some lanes of a warp, those with the most lanes first."""
    for lanes in _LANES:
        chunks = ceil_div(chunks_of(config), lanes)
        packing = RowSchedule(
            1, chunks, prefetches_weight=has_room_for_weight(config, chunks), keeps_unpacked=_keeps_unpacked(config),
            takes_fast_path=config.op == "layernorm", rows_per_block=_BLOCK_THREADS // lanes, lanes_per_row=lanes,
        )  # fmt: skip
        if chunks <= _MOST_CHUNKS and not why_not_packed(config, packing):
            yield packing


def why_not_packed(config: KernelConfig, schedule: RowSchedule) -> str:
    """Why rows cannot share a warp as in a schedule, as the end of a sentence; empty if they can."""
    lanes, chunks, count = schedule.lanes_per_row, schedule.chunks_per_lane, chunks_of(config)
    most = min(CHUNKS_AT_ONCE, most_held_chunks(held_bytes(config)))
    if lanes not in _LANES and not has_separate_parts(config) and (reason := _why_not_side_by_side(config, schedule)):
        return reason
    if schedule.warps_per_row > 1 or schedule.blocks_per_row > 1 or schedule.loads_ahead:
        return "rows that share a warp have no other, and are not loaded ahead"
    if chunks != ceil_div(count, lanes):
        return f"the {count} chunks of a row are not {chunks} or one less for each of {lanes} lanes"
    if chunks * schedule.rows_at_once > most:
        return f"a lane holds {most} chunks"
    if lanes * schedule.rows_per_block % WARP_LANES or schedule.threads > 1024:
        return "blocks are up to 32 whole warps"
    if config.rope or config.all_reduce or config.backward or config.amax_parts:
        return "heads to rotate, rows of several ranks, gradients and threads that find an amax share no warp so"
    block = config.quant.block_columns if config.quant is not None and config.quant.has_blocks else CHUNK_SIZE
    if block > lanes * CHUNK_SIZE:
        return f"a block of {block} elements has more lanes than {lanes}"
    if lanes * CHUNK_SIZE % block:
        return f"{lanes} lanes are not those of whole blocks of {block} elements"
    return ""


def _why_not_side_by_side(config: KernelConfig, schedule: RowSchedule) -> str:
    """Why rows of which something is found cannot lie side by side so, as the end of a sentence; empty if they can."""
    lanes, allowed = schedule.lanes_per_row, ", ".join(map(str, _LANES))
    if not meets_side_by_side(config):
        return f"lanes that find something of a row together are {allowed}"
    if lanes % FOLDING_LANES or lanes * schedule.chunks_per_lane > groups_of(config) * WARP_LANES:
        return f"lanes that meet are {allowed}, or a multiple of {FOLDING_LANES} with room for no more than whole warps"
    if schedule.is_persistent or schedule.copies_parameters:
        return "blocks whose rows meet side by side do not stay, and copy no parameters, which takes whole warps"
    return ""


def _capacity(packing: RowSchedule) -> int:
    """Chunks for which a row has room."""
    return packing.lanes_per_row * packing.chunks_per_lane


def _is_bound_by_instructions(config: KernelConfig) -> bool:
    """Whether elements, or the sums of short rows, take longer than memory."""
    is_light_norm = config.op == "rmsnorm" and held_bytes(config) == 2
    if is_light_norm:
        # Most lanes of the shorter of two rows would be idle: on an H200, 87381 x 768 with 192 reaches 0.96 of a copy,
        # not 0.70.
        return config.quant is not None or config.activation != "" or config.second_size > 0
    has_codes = config.quant is not None and (config.gate != "" or config.quant.element == "e2m1")
    return config.op != "layernorm" and (has_codes or config.activation.startswith("gelu"))


def _keeps_unpacked(config: KernelConfig) -> bool:
    """Whether floats are kept from pass to pass: RMSNorm + SiLU to NVFP4 of 53907 x 768 went from 0.72 to 0.75."""
    is_light = config.normalizes and held_bytes(config) == 2 and config.op == "rmsnorm"
    return is_light and config.quant is not None and not waits_for_row_amax(config)


def _shares_parameters(config: KernelConfig) -> bool:
    """Whether many rows of a group share a persistent block for the parameters of layer normalization.

    On an H100, to FP8, 32262 x 384 went from 0.71 of a copy to 0.91, to MXFP8 from 0.67 to 0.85.
    """
    is_byte = config.quant is not None and config.quant.element != "e2m1" and not config.needs_row_amax
    is_of_a_warp = WARP_LANES // 2 < chunks_of(config) <= WARP_LANES
    return config.op == "layernorm" and config.has_weight and is_byte and is_of_a_warp


def _scaled_columns_schedule(config: KernelConfig) -> RowSchedule:
    """Rows that a thread works on together, for whose columns it finds reciprocals once.

    On an H100, 32262 x 384 went from 0.97 of a copy to 1.06, 17077 x 1200 from 0.92 to 1.02.
    """
    groups = groups_of(config)
    if groups > 1:
        return RowSchedule(groups, 1, rows_at_once=4)
    small = small_row_schedule(config)
    return replace(small, rows_at_once=2) if small.lanes_per_row == WARP_LANES else small


def packed_streams_schedule(config: KernelConfig) -> RowSchedule | None:
    """Two chunks of streams per lane, if many rows share warps: 30000 x 384 went from 0.81 of a copy to 0.87."""
    packed = RowSchedule(1, 2, rows_per_block=8, lanes_per_row=16)
    return None if not config.many_rows or why_not_packed(config, packed) else packed


def small_row_schedule(config: KernelConfig) -> RowSchedule:
    """Rows of up to a group, with a chunk per lane, or two that are rotated with each other."""
    if holds_halves(config):
        return _rotated_heads_schedule(config)
    lanes = next_power_of_two(chunks_of(config))
    if _is_small_norm(config):
        return RowSchedule(
            1, 1, prefetches_weight=True, keeps_unpacked=True, favours_latency=True,
            rows_per_block=_BLOCK_THREADS // 2 // lanes, lanes_per_row=lanes,
        )  # fmt: skip
    small = RowSchedule(1, 1, prefetches_weight=True, rows_per_block=_BLOCK_THREADS // lanes, lanes_per_row=lanes)
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

    On an H200, with the schedule of few, queries and keys of 1024 x 3072 took 6.5 us, not 5.5, and rotated ones to FP8
    up to 8 % longer.
    """
    few = _beside(config, "few") or small_row_schedule(config)
    found = _beside(config, "usual") or _usual_of_lanes(config)
    return None if found == few else found


def _usual_of_lanes(config: KernelConfig) -> RowSchedule:
    """The schedule of rows that do not lie side by side: that of many, without several chunks per lane, or of few."""
    usual = replace(config, many_rows=True)
    gains = _is_small_norm(config) or _hurries(usual) or (holds_halves(config) and config.quant is not None)
    return small_row_schedule(usual if gains and chunks_of(config) > 1 else config)


def _rotated_heads_schedule(config: KernelConfig) -> RowSchedule:
    """Heads of which a lane has two chunks, half a head apart.

    With a norm, in blocks of 64 threads: on an H200, 16 tokens x 4096 took 1.65 us, not 1.73, of 8192 46.1, not 46.9.
    The weight is loaded late: for FP8, it would take 71 registers instead of 64, which costs a block.
    """
    lanes = chunks_of(config) // 2
    is_small = config.normalizes and not awaits_positions(config)
    threads = _BLOCK_THREADS // 2 if is_small else _BLOCK_THREADS
    is_light = not (config.normalizes or config.paged) and DTYPES[config.angles].bytes == 2
    blocks = _TURNING_BLOCKS if is_light and (config.many_rows or config.quant is None) else 0
    return RowSchedule(1, 2, rows_per_block=threads // lanes, lanes_per_row=lanes, resident_blocks=blocks)


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
    rows_per_block = 2 if config.normalizes and not config.second_size else _BLOCK_THREADS // WARP_LANES
    return RowSchedule(1, groups, prefetches_weight=True, rows_per_block=rows_per_block)
