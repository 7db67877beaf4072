"""The gradients of norms: what their kernels take, and how the sums over rows are divided.

A gradient of a parameter is a sum over all rows. Segments of the rows are summed by themselves, each to a row of
`partials`, which ``sum_rows`` adds up. Which rows make a segment depends on their number and the hidden size alone, so
that the bits agree on every target; docs/numerics.md defines the tree.
"""

from __future__ import annotations

from .arguments import WIDEST_ACCESS, Argument, ScalarArgument, TensorArgument
from .config import KernelConfig
from .dtypes import DTYPES
from .extents import LEADING, ROWS, Extent, shape
from .numerics import CHUNK_SIZE, GROUP_CHUNKS, ceil_div, next_power_of_two
from .row_ops import first_tensor, strided_rows, weight_argument
from .row_schedule import RowSchedule
from .target import Target

# Part of the output bits, like those of kernels/numerics.py.
ACCUMULATORS = 256
_SEGMENTS_OF_SHORT_ROWS, _SEGMENTS_OF_LONG_ROWS, _MOST_CHUNKS_OF_SHORT_ROWS = 256, 128, 256
_PACKED_LANES = 256
_MOST_PACKED_CHUNKS = 64
# Columns that a block of ``sum_rows`` adds up, and threads that share a column.
SUMMED_COLUMNS, SUMMING_THREADS = 32, 16
_MAX_WARPS = 16
_CLUSTERS = (1, 2, 4, 8)
# Rows and gradients on their way to a block. More come slower: with 96 KiB for each of the two blocks of a
# multiprocessor, 4096 columns fell from 0.93 of a copy to 0.85.
_BYTES_ON_THEIR_WAY = {_SEGMENTS_OF_SHORT_ROWS: 40 << 10, _SEGMENTS_OF_LONG_ROWS: 96 << 10}
_BLOCKS_OF_MULTIPROCESSOR = {_SEGMENTS_OF_SHORT_ROWS: 2, _SEGMENTS_OF_LONG_ROWS: 1}
_MOST_STAGES = 4
_MOST_WARPS_OF_PAIRS = 10


def rows_of_pack(hidden_size: int) -> int:
    """How many rows have accumulators of their own in a segment: the shorter they are, the more."""
    chunks = ceil_div(hidden_size, CHUNK_SIZE)
    return _PACKED_LANES // next_power_of_two(chunks) if chunks <= _MOST_PACKED_CHUNKS else 1


def most_segments(hidden_size: int) -> int:
    """The most segments that rows are divided into: the longer they are, the fewer, since each has sums to store."""
    is_short = ceil_div(hidden_size, CHUNK_SIZE) <= _MOST_CHUNKS_OF_SHORT_ROWS
    return _SEGMENTS_OF_SHORT_ROWS if is_short else _SEGMENTS_OF_LONG_ROWS


def segments(config: KernelConfig) -> Extent:
    """How many segments the rows are divided into."""
    return ROWS.ceil_div(rows_of_pack(config.hidden_size)).at_most(most_segments(config.hidden_size))


def backward_arguments(config: KernelConfig) -> tuple[Argument, ...]:
    """The arguments of a kernel that finds the gradients of a norm, in calling order."""
    parameters = 2 if config.has_bias else 1
    row_bytes = config.hidden_size * DTYPES["float32"].bytes
    chunk_bytes = CHUNK_SIZE * DTYPES["float32"].bytes
    partial_sums = shape(segments(config), parameters * config.hidden_size)
    return (
        first_tensor(config),
        strided_rows("grad", config.input, config),
        weight_argument(config),
        strided_rows("residual_grad", config.input, config, is_present=config.residual, field="residual"),
        strided_rows("input_grad", config.input, config, is_output=True, may_be="grad", field="out"),
        TensorArgument(
            "partials", ("float32",), partial_sums, chunk_bytes, is_output=True, run_bytes=row_bytes,
            is_present=config.has_weight,
        ),
        ScalarArgument("eps"),
    )  # fmt: skip


def sum_arguments(config: KernelConfig) -> tuple[Argument, ...]:
    """The arguments of ``sum_rows``, in calling order."""
    columns = config.rows_combined * config.hidden_size
    sums = shape(config.hidden_size)
    return (
        TensorArgument("input", (config.input,), shape(LEADING, columns), is_strided=True),
        TensorArgument("out", (config.weight,), sums, is_output=True),
        TensorArgument("bias_out", (config.weight,), sums, is_output=True, is_present=config.bias),
    )


def backward_schedule(config: KernelConfig, target: Target) -> RowSchedule:
    """How threads share a row whose gradient they find; each keeps its columns' sums from row to row."""
    chunks = ceil_div(config.hidden_size, CHUNK_SIZE)
    packed = rows_of_pack(config.hidden_size)
    if packed > 1:
        lanes = min(GROUP_CHUNKS, next_power_of_two(chunks))
        return RowSchedule(1, ceil_div(chunks, lanes), rows_per_block=packed, lanes_per_row=lanes)
    groups = ceil_div(chunks, GROUP_CHUNKS)
    if groups <= _MAX_WARPS:
        return _schedule_of_block(config, groups)
    # A chunk takes 16 registers for each sum and 16 more for the row and its gradient, twice as many in float32.
    most_chunks = 2 if config.input != "float32" else 1
    for blocks in _CLUSTERS if target.has_clusters else _CLUSTERS[:1]:
        for chunks_per_lane in range(1, most_chunks + 1):
            warps = blocks * ceil_div(ceil_div(groups, chunks_per_lane), blocks)
            if warps <= blocks * _MAX_WARPS:
                return RowSchedule(warps, chunks_per_lane, blocks_per_row=blocks)
    return RowSchedule(_MAX_WARPS, ceil_div(groups, _MAX_WARPS), holds_row=False)


def _schedule_of_block(config: KernelConfig, groups: int) -> RowSchedule:
    """The schedule of rows that a block can hold with one chunk a lane."""
    if config.op == "layernorm" and groups >= _MAX_WARPS // 2:
        # Its two barriers cost more the more warps wait: 8192 columns took 0.77 of a copy, 0.69 with a chunk a lane. Up
        # to 10 warps without others on their multiprocessor gain by one: 5120 columns took 0.74, 0.67 with two.
        chunks_per_lane = 1 if _MAX_WARPS // 2 < groups <= _MOST_WARPS_OF_PAIRS else 2
        return RowSchedule(ceil_div(groups, chunks_per_lane), chunks_per_lane, rows_at_once=2)
    pair = RowSchedule(groups, 1, rows_at_once=2)
    has_room = 2 * _bytes_of_rows(config, pair) <= _BYTES_ON_THEIR_WAY[most_segments(config.hidden_size)]
    return pair if has_room and groups <= _MOST_WARPS_OF_PAIRS else RowSchedule(groups, 1)


def _bytes_of_rows(config: KernelConfig, schedule: RowSchedule) -> int:
    """Bytes of the rows that a block works on at once, and of the gradients of their norms."""
    chunks = schedule.rows_at_once * schedule.chunks_per_lane * schedule.threads
    return 2 * chunks * CHUNK_SIZE * DTYPES[config.input].bytes


def _stage_bytes(config: KernelConfig, schedule: RowSchedule) -> int:
    """Shared memory that these take, and the gradients that are added to the rows'."""
    return _bytes_of_rows(config, schedule) * (3 if config.residual else 2) // 2


def stages(config: KernelConfig, target: Target) -> int:
    """How often a thread's rows are on their way to it by way of shared memory; never where they cannot be."""
    is_whole = config.hidden_size % CHUNK_SIZE == 0 and config.vector_bytes == WIDEST_ACCESS
    if target.is_cpu or not config.backward or not is_whole:
        return 0
    schedule = backward_schedule(config, target)
    if not schedule.holds_row:
        return 0
    wanted = _BYTES_ON_THEIR_WAY[most_segments(config.hidden_size)] // _bytes_of_rows(config, schedule)
    return min(max(1, wanted), _MOST_STAGES, target.shared_bytes // _stage_bytes(config, schedule))


def staged_bytes(config: KernelConfig, target: Target) -> int:
    """Shared memory that a block takes for them.

    No less than leaves room for as many blocks as a multiprocessor shall have: blocks of the next call, which come
    early by programmatic dependent launch, would gather where room is left, and others have none: 16384 x 5120 took
    1.5 times as long.
    """
    count = stages(config, target)
    if not count:
        return 0
    blocks = _BLOCKS_OF_MULTIPROCESSOR[most_segments(config.hidden_size)]
    return max(count * _stage_bytes(config, backward_schedule(config, target)), target.all_shared_bytes // (blocks + 1))
