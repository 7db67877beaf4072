"""The gradients of norms: the arguments of their kernels, and how sums over rows are divided.

A parameter's gradient is a sum over all rows. Segments of the rows are summed separately, each to a row of `partials`,
which ``sum_rows`` adds up. The division into segments depends only on the number of rows and the hidden size, so that
the bits agree on every target; docs/numerics.md defines the tree.
"""

from __future__ import annotations

from dataclasses import replace

from .arguments import WIDEST_ACCESS, Argument, ScalarArgument, TensorArgument
from .config import KernelConfig
from .dtypes import DTYPES
from .extents import LEADING, ROWS, Extent, shape
from .numerics import CHUNK_SIZE, GROUP_CHUNKS, ceil_div, next_power_of_two, round_up
from .row_ops import first_tensor, row_statistic, strided_rows, weight_argument
from .row_schedule import WARP_LANES, RowSchedule
from .target import Target

# Part of the output bits, like those of kernels/numerics.py.
ACCUMULATORS = 256
_SEGMENTS_OF_SHORT_ROWS, _SEGMENTS_OF_LONG_ROWS, _MOST_CHUNKS_OF_SHORT_ROWS = 256, 128, 256
_PACKED_LANES = 256
# Not part of the output bits: the sums of these segments are added in any case, either before they are stored or by
# ``sum_rows``.
_FOLDED_SEGMENTS = {_SEGMENTS_OF_SHORT_ROWS: 1, _SEGMENTS_OF_LONG_ROWS: 2}
_MOST_PACKED_CHUNKS = 64
# Columns that a block of ``sum_rows`` adds up, and its threads.
SUMMED_COLUMNS, SUMMING_THREADS = 32, 256
# The most of a block's shared memory that sums for the first of two segments may take. With 3 / 8, blocks of layer
# normalization of 20864 to 22272 columns would have one segment each, and take 1.4 times as long.
_MOST_SHARE_OF_SUMS = 9 / 20
_MAX_WARPS = 16
_CLUSTERS = (1, 2, 4, 8)
# Bytes of rows and gradients in flight to a block. More are slower: with 96 KiB for each of the two blocks of a
# multiprocessor, 4096 columns fell from 0.93 of a copy to 0.85.
_BYTES_ON_THEIR_WAY = {_SEGMENTS_OF_SHORT_ROWS: 40 << 10, _SEGMENTS_OF_LONG_ROWS: 96 << 10}
_BLOCKS_OF_MULTIPROCESSOR = {_SEGMENTS_OF_SHORT_ROWS: 2, _SEGMENTS_OF_LONG_ROWS: 1}
_MOST_STAGES = 4
# Pairs of rows of 3685 x 5248, with 11 warps, went from 0.77 of a copy to 0.81; of 774 x 7808, with 16, they would fall
# from 0.57 to 0.53.
_MOST_WARPS_OF_PAIRS = 11
# Registers of a multiprocessor, and registers that a thread needs besides its row, its weight and its sums.
_REGISTERS, _OTHER_REGISTERS = 1 << 16, 28


def rows_of_pack(hidden_size: int) -> int:
    """How many rows of a segment have separate accumulators: the shorter the rows, the more."""
    chunks = ceil_div(hidden_size, CHUNK_SIZE)
    return _PACKED_LANES // next_power_of_two(chunks) if chunks <= _MOST_PACKED_CHUNKS else 1


def most_segments(hidden_size: int) -> int:
    """The maximum number of segments: the longer the rows, the fewer, because each segment stores sums."""
    is_short = ceil_div(hidden_size, CHUNK_SIZE) <= _MOST_CHUNKS_OF_SHORT_ROWS
    return _SEGMENTS_OF_SHORT_ROWS if is_short else _SEGMENTS_OF_LONG_ROWS


def segments(config: KernelConfig) -> Extent:
    """The number of segments that rows are divided into."""
    return ROWS.ceil_div(rows_of_pack(config.hidden_size)).at_most(most_segments(config.hidden_size))


def sums_gradients(config: KernelConfig) -> bool:
    """Whether a kernel sums gradients of parameters over rows."""
    return config.backward and config.has_weight and not config.frozen


def folded_segments(hidden_size: int, input: str, parameters: int, target: Target) -> int:
    """How many segments of such rows a cluster has: it folds their sums before it stores them.

    Two for long rows, where a multiprocessor has one block, because GPUs consist of pairs of multiprocessors. Where a
    multiprocessor has two blocks, clusters of four did not all run at once: 16384 x 4096 fell from 0.92 of a copy to
    0.64. Each block has one of the segments. Where two blocks share rows, they have one segment after the other: only
    half as many clusters run at once as there are segments.

    Args:
        hidden_size: the hidden size of the rows.
        input: their dtype.
        parameters: how many have gradients.
        target: the target; without clusters, nothing is folded.
    """
    groups = ceil_div(hidden_size, CHUNK_SIZE * GROUP_CHUNKS)
    blocks_of_row = ceil_div(groups, _MAX_WARPS * _most_chunks(input))
    if blocks_of_row == 1:
        has_room = _bytes_of_sums(hidden_size, parameters=2) <= target.shared_bytes
    else:
        most = _MOST_SHARE_OF_SUMS * target.shared_bytes
        has_room = blocks_of_row == 2 and _bytes_of_sums(hidden_size, parameters, blocks=2) <= most
    return _FOLDED_SEGMENTS[most_segments(hidden_size)] if target.has_clusters and has_room else 1


def segments_of_cluster(config: KernelConfig, target: Target) -> int:
    """How many segments a cluster has, one per block or one after the other; 1 if nothing is summed."""
    if not sums_gradients(config):
        return 1
    return folded_segments(config.hidden_size, config.input, _parameters(config), target)


def _parameters(config: KernelConfig) -> int:
    """How many parameters have gradients."""
    return 0 if config.frozen else 2 if config.has_bias else 1


def summed_rows(config: KernelConfig, target: Target) -> int:
    """The most rows of partial sums that ``sum_rows`` reads on a GPU; 0 for other matrices, which have any number."""
    if target.is_cpu or not config.sums_of:
        return 0
    folded = folded_segments(config.hidden_size, config.sums_of, 2 if config.bias else 1, target)
    return most_segments(config.hidden_size) // folded


def clusters(config: KernelConfig, target: Target) -> tuple[Extent, int]:
    """How many clusters compute gradients, and the blocks of each, which share a row or fold their sums."""
    folded = segments_of_cluster(config, target)
    most = most_segments(config.hidden_size) // folded
    return segments(config).at_most(most), max(folded, backward_schedule(config, target).blocks_per_row)


def backward_arguments(config: KernelConfig) -> tuple[Argument, ...]:
    """The arguments of a kernel that computes the gradients of a norm, in calling order."""
    row_bytes = config.hidden_size * DTYPES["float32"].bytes
    chunk_bytes = CHUNK_SIZE * DTYPES["float32"].bytes
    partial_sums = shape(segments(config), _parameters(config) * config.hidden_size)
    is_given = config.op == "layernorm"  # the statistic; RMSNorm's is one more sum, computed with the others
    statistics: tuple[Argument, ...] = (row_statistic("mean"), row_statistic("rstd"))
    return (
        first_tensor(config),
        strided_rows("grad", config.input, config),
        *(statistics if is_given else ()),
        weight_argument(config),
        strided_rows("residual_grad", config.input, config, is_present=config.residual, field="residual"),
        strided_rows("input_grad", config.input, config, is_output=True, may_be="grad", field="out"),
        TensorArgument(
            "partials", ("float32",), partial_sums, chunk_bytes, is_output=True, run_bytes=row_bytes,
            is_present=sums_gradients(config),
        ),
        *(() if is_given else (ScalarArgument("eps"),)),
    )  # fmt: skip


def sum_arguments(config: KernelConfig) -> tuple[Argument, ...]:
    """The arguments of ``sum_rows``, in calling order."""
    columns = config.rows_combined * config.hidden_size
    chunk_bytes = CHUNK_SIZE * DTYPES[config.input].bytes
    sums = shape(config.hidden_size)
    return (
        TensorArgument("input", (config.input,), shape(LEADING, columns), chunk_bytes, is_strided=True),
        TensorArgument("out", (config.weight,), sums, is_output=True),
        TensorArgument("bias_out", (config.weight,), sums, is_output=True, is_present=config.bias),
    )


def backward_schedule(config: KernelConfig, target: Target) -> RowSchedule:
    """How threads share a row to compute its gradient; each thread keeps the sums of its columns from row to row."""
    chunks = ceil_div(config.hidden_size, CHUNK_SIZE)
    packed = rows_of_pack(config.hidden_size)
    if packed > 1:
        lanes = min(GROUP_CHUNKS, next_power_of_two(chunks))
        return RowSchedule(1, ceil_div(chunks, lanes), rows_per_block=packed, lanes_per_row=lanes)
    groups = ceil_div(chunks, GROUP_CHUNKS)
    if groups <= _MAX_WARPS:
        return _schedule_of_block(config, groups)
    for blocks in _CLUSTERS if target.has_clusters else _CLUSTERS[:1]:
        for chunks_per_lane in range(1, _most_chunks(config.input) + 1):
            warps = blocks * ceil_div(ceil_div(groups, chunks_per_lane), blocks)
            if warps <= blocks * _MAX_WARPS:
                return _with_room(config, target, RowSchedule(warps, chunks_per_lane, blocks_per_row=blocks))
    return RowSchedule(_MAX_WARPS, ceil_div(groups, _MAX_WARPS), holds_row=False)


def _most_chunks(input: str) -> int:
    """Chunks per lane: each takes 16 registers per sum, and 16 for the row and its gradient, 32 in float32."""
    return 1 if input == "float32" else 2


def _schedule_of_block(config: KernelConfig, groups: int) -> RowSchedule:
    """The schedule of rows that a block can hold with one chunk a lane."""
    most = most_segments(config.hidden_size)
    pair = RowSchedule(groups, 1, rows_at_once=2)
    if 2 * _bytes_of_rows(config, pair) <= _BYTES_ON_THEIR_WAY[most] and groups <= _MOST_WARPS_OF_PAIRS:
        return pair
    # For short rows, the compiler would use a few registers too many for two blocks.
    return RowSchedule(groups, 1, resident_blocks=2 if most == _SEGMENTS_OF_SHORT_ROWS else 0)


def _with_room(config: KernelConfig, target: Target, schedule: RowSchedule) -> RowSchedule:
    """The schedule with rows and weight in shared memory, if registers do not suffice and two blocks have room."""
    shared = replace(schedule, stays_shared=True)
    is_better = _takes_too_many_registers(config, schedule) and _stages(config, target, shared) > 1
    return shared if is_better else schedule


def _takes_too_many_registers(config: KernelConfig, schedule: RowSchedule) -> bool:
    """Whether the compiler would spill a row, its gradients, the weight and the sums.

    Each quarter of a multiprocessor has a quarter of the registers, for whole warps: 13 warps get as many as 16. Layer
    normalization of 323 x 25984, whose blocks have 13, went from 0.23 of a copy to 0.27.
    """
    sums = _parameters(config) * DTYPES["float32"].bytes
    tensors = 3 if config.residual else 2
    element_bytes = tensors * DTYPES[config.input].bytes + DTYPES[config.weight].bytes + sums
    held = schedule.chunks_per_lane * CHUNK_SIZE * element_bytes // 4
    return (held + _OTHER_REGISTERS) * round_up(schedule.threads, 4 * WARP_LANES) > _REGISTERS


def _bytes_of_rows(config: KernelConfig, schedule: RowSchedule) -> int:
    """Bytes of the rows that a block works on at once, and of the gradients of their norms."""
    return 2 * schedule.rows_at_once * _bytes_of_chunks(config, schedule, config.input)


def _bytes_of_chunks(config: KernelConfig, schedule: RowSchedule, dtype: str) -> int:
    """Bytes of a row's chunks in the threads of a block; unaligned ones end in another access."""
    accesses = schedule.threads * CHUNK_SIZE * DTYPES[dtype].bytes // WIDEST_ACCESS
    if config.vector_bytes < WIDEST_ACCESS:
        accesses += schedule.threads // schedule.lanes_per_row
    return schedule.chunks_per_lane * accesses * WIDEST_ACCESS


def _stage_bytes(config: KernelConfig, schedule: RowSchedule) -> int:
    """Shared memory that these take, and the gradients that are added to the rows'."""
    return _bytes_of_rows(config, schedule) * (3 if config.residual else 2) // 2


def _weight_bytes(config: KernelConfig, schedule: RowSchedule) -> int:
    """Shared memory that the weight takes."""
    return _bytes_of_chunks(config, schedule, config.weight) if schedule.stays_shared else 0


def stages(config: KernelConfig, target: Target) -> int:
    """How many rows a thread has in flight through shared memory; 0 if that is impossible."""
    if target.is_cpu or not config.backward:
        return 0
    return _stages(config, target, backward_schedule(config, target))


def _stages(config: KernelConfig, target: Target, schedule: RowSchedule) -> int:
    if not schedule.holds_row:
        return 0
    wanted = _BYTES_ON_THEIR_WAY[most_segments(config.hidden_size)] // _bytes_of_rows(config, schedule)
    if schedule.stays_shared:
        wanted += 1  # the row that threads work on
    # Blocks that share rows wait for each other meanwhile: RMSNorm of 323 x 25984 went from 0.40 of a copy to 0.42.
    least = 2 if schedule.blocks_per_row > 1 else 1
    room = target.shared_bytes - _weight_bytes(config, schedule) - _kept_sum_bytes(config, target, schedule)
    return min(max(least, wanted), _MOST_STAGES, room // _stage_bytes(config, schedule))


def staged_bytes(config: KernelConfig, target: Target) -> int:
    """Shared memory of a block for rows in flight.

    It is large enough that a multiprocessor has room only for its intended number of blocks. Otherwise, blocks of the
    next call, which start early by programmatic dependent launch, pile up on some multiprocessors: 16384 x 5120 took
    1.5 times as long.
    """
    count, of_sums = stages(config, target), shared_sum_bytes(config, target)
    if not count:
        return of_sums
    blocks = _BLOCKS_OF_MULTIPROCESSOR[most_segments(config.hidden_size)]
    schedule = backward_schedule(config, target)
    taken = count * _stage_bytes(config, schedule) + _weight_bytes(config, schedule)
    taken += _kept_sum_bytes(config, target, schedule)
    return max(taken, of_sums, target.all_shared_bytes // (blocks + 1))


def shared_sum_bytes(config: KernelConfig, target: Target) -> int:
    """Shared memory for the sums of a segment if its threads store them together; 0 if each stores its own."""
    if target.is_cpu or not sums_gradients(config):
        return 0
    schedule = backward_schedule(config, target)
    if not schedule.holds_row:
        return 0
    taken = _bytes_of_sums(config.hidden_size, _parameters(config), schedule.blocks_per_row)
    return taken if taken <= target.shared_bytes else 0


def _kept_sum_bytes(config: KernelConfig, target: Target, schedule: RowSchedule) -> int:
    """Shared memory for the sums of the first of two segments, while a block goes through the second."""
    has_two = schedule.blocks_per_row > 1 and segments_of_cluster(config, target) > 1
    return _bytes_of_sums(config.hidden_size, _parameters(config), schedule.blocks_per_row) if has_two else 0


def _bytes_of_sums(hidden_size: int, parameters: int, blocks: int = 1) -> int:
    """Bytes of a block's sums for a segment, for each row of a pack; of whole chunks of whole lanes."""
    chunks, packed = ceil_div(hidden_size, CHUNK_SIZE), rows_of_pack(hidden_size)
    lanes = _PACKED_LANES if packed > 1 else round_up(chunks, 2 * blocks * GROUP_CHUNKS) // blocks
    return parameters * lanes * CHUNK_SIZE * DTYPES["float32"].bytes
