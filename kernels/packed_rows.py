"""Rows that share a warp: each has a part of its lanes, which may have several chunks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from .config import KernelConfig
from .numerics import CHUNK_SIZE, ceil_div, next_power_of_two
from .registers import groups_of, has_room_for_weight, held_bytes, most_held_chunks, waits_for_row_amax
from .row_parts import has_separate_parts
from .row_schedule import MOST_CHUNKS_AT_ONCE, WARP_LANES, RowSchedule
from .side_by_side import FOLDING_LANES, meets_side_by_side, side_by_side

# Rows that share a block fill blocks of this many threads.
BLOCK_THREADS = 128
# With two lanes per row, a warp's accesses are scattered: RMSNorm of 200000 x 64 fell from 1.01 of a copy to 0.82. Four
# chunks per lane leave too few threads: NVFP4 of 23111 x 912 fell from 0.97 to 0.83.
LANES, FEWEST_LANES, _MOST_CHUNKS = (16, 8, 4, 2, 1), 4, 3
# Lanes of a row that mixes two streams, with three chunks each.
_STREAM_LANES = 8


def packed_schedule(config: KernelConfig) -> RowSchedule | None:
    """Rows that share a warp, each of whose lanes has several chunks; None if many rows gain nothing by it.

    Fewer lanes are idle, and what a row takes besides its elements is divided among more of them: on an H100, NVFP4 by
    row of 53907 x 768 went from 0.86 of a copy to 0.98, four over six from 0.73 to 0.95, FP8 by token of 40960 x 272
    from 0.85 to 1.02; on an H200, NVFP4 alone of 768 elements takes 0.89 of the time.
    """
    is_left = config.residual or config.streams or config.weights > 1 or shares_parameters(config)
    if not config.many_rows or is_left:
        return None
    found = [each for each in packings(config) if each.lanes_per_row >= FEWEST_LANES]
    best = min(found, key=lambda each: (_capacity(each), each.chunks_per_lane != 2), default=None)
    groups, chunks = groups_of(config), chunks_of(config)
    usual = next_power_of_two(chunks) if groups == 1 else groups * WARP_LANES
    if best is None or _capacity(best) > usual or not _gains_by_packing(config, _capacity(best), usual):
        return None
    # Without idle lanes, activations to FP4 of 576 to 640 columns take 0.82 to 0.93 of the time on an H200.
    parted = side_by_side(config, 2, BLOCK_THREADS) if groups > 1 and has_separate_parts(config) else None
    return best if parted is None or why_not_packed(config, parted) else parted


def packings(config: KernelConfig) -> Iterator[RowSchedule]:
    """The divisions of a row among some lanes of a warp, those with the most lanes first."""
    for lanes in LANES:
        chunks = ceil_div(chunks_of(config), lanes)
        packing = RowSchedule(
            1, chunks, prefetches_weight=has_room_for_weight(config, chunks), keeps_unpacked=keeps_unpacked(config),
            takes_fast_path=config.op == "layernorm", rows_per_block=BLOCK_THREADS // lanes, lanes_per_row=lanes,
        )  # fmt: skip
        if chunks <= _MOST_CHUNKS and not why_not_packed(config, packing):
            yield packing


def why_not_packed(config: KernelConfig, schedule: RowSchedule) -> str:
    """Why rows cannot share a warp as in a schedule, as the end of a sentence; empty if they can."""
    lanes, chunks, count = schedule.lanes_per_row, schedule.chunks_per_lane, chunks_of(config)
    most = min(MOST_CHUNKS_AT_ONCE, most_held_chunks(held_bytes(config)))
    if lanes not in LANES and not has_separate_parts(config) and (reason := _why_not_side_by_side(config, schedule)):
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
    lanes, allowed = schedule.lanes_per_row, ", ".join(map(str, LANES))
    if not meets_side_by_side(config):
        return f"lanes that find something of a row together are {allowed}"
    if lanes % FOLDING_LANES or lanes * schedule.chunks_per_lane > groups_of(config) * WARP_LANES:
        return f"lanes that meet are {allowed}, or a multiple of {FOLDING_LANES} with room for no more than whole warps"
    if schedule.is_persistent or schedule.copies_parameters:
        return "blocks whose rows meet side by side do not stay, and copy no parameters, which takes whole warps"
    return ""


def packed_streams_schedule(config: KernelConfig) -> RowSchedule | None:
    """Two chunks of streams per lane, if many rows share warps: 30000 x 384 went from 0.81 of a copy to 0.87."""
    packed = RowSchedule(1, 2, rows_per_block=8, lanes_per_row=16)
    return None if not config.many_rows or why_not_packed(config, packed) else packed


def of_streams(config: KernelConfig, small: RowSchedule) -> RowSchedule:
    """Rows of up to a group that mix streams, unless they are few; `small`: with a chunk per lane.

    On an H200, many rows of 272 to 384 columns of two streams take 0.68 to 0.99 of the time with three chunks per lane,
    of 352 to 448 columns of four streams 0.84 to 0.95 with the fast path, usual ones 0.94 and 0.95.
    """
    if config.streams > 2:
        return replace(small, takes_fast_path=True)
    rows = BLOCK_THREADS // _STREAM_LANES // (2 if config.many_rows else 1)
    packed = replace(
        small, chunks_per_lane=_MOST_CHUNKS, prefetches_weight=False, takes_fast_path=config.many_rows,
        rows_per_block=rows, lanes_per_row=_STREAM_LANES,
    )  # fmt: skip
    if not why_not_packed(config, packed):
        return packed
    return small if config.many_rows else replace(small, prefetches_weight=False)


def chunks_of(config: KernelConfig) -> int:
    """Chunks of a row."""
    return ceil_div(config.encoded_size, CHUNK_SIZE)


def keeps_unpacked(config: KernelConfig) -> bool:
    """Whether floats are kept from pass to pass: RMSNorm + SiLU to NVFP4 of 53907 x 768 went from 0.72 to 0.75."""
    is_light = config.normalizes and held_bytes(config) == 2 and config.op == "rmsnorm"
    return is_light and config.quant is not None and not waits_for_row_amax(config)


def shares_parameters(config: KernelConfig) -> bool:
    """Whether many rows of a group share a persistent block for the parameters of layer normalization.

    On an H100, to FP8, 32262 x 384 went from 0.71 of a copy to 0.91, to MXFP8 from 0.67 to 0.85.
    """
    is_byte = config.quant is not None and config.quant.element != "e2m1" and not config.needs_row_amax
    is_of_a_warp = WARP_LANES // 2 < chunks_of(config) <= WARP_LANES
    return config.op == "layernorm" and config.has_weight and is_byte and is_of_a_warp


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
