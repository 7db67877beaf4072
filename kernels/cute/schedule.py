"""How a kernel in CuTe-DSL divides its rows, and how it is launched: pure functions of configuration and target.

There are two schedules. `rows` is that of CUDA C++: threads load their part of a row, blocks have one row and end.
`rows_pipelined` is for long rows, and for very many where it pays: blocks stay, and the copy engine brings their next
rows into shared memory while they work on one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..config import KernelConfig
from ..dtypes import DTYPES
from ..numerics import CHUNK_SIZE, ceil_div, round_up
from ..registers import groups_of, held_bytes, most_held_chunks, waits_for_row_amax
from ..row_parts import has_separate_parts
from ..row_schedule import WARP_LANES, RowSchedule
from ..schedule import CHUNKS_OF_MANY_ROWS, CLUSTERS, MAX_WARPS, PREFERRED_WARPS, row_schedule
from ..short_rows import SINGLE_WARP_GROUPS, small_row_schedule
from ..target import Target

ENTRY = "jitnorm_kernel_0"  # the DSL numbers the kernels of a module
# Threads of a multiprocessor that have the registers for so many chunks each, and beyond that.
_THREADS_BY_CHUNKS = {1: 1024, 2: 768}
_THREADS_OF_LONG_ROWS = 512
_COPY_BYTES = 16  # bulk copies are of whole units, and so are their addresses
# Wider rows with a residual are faster by the pipeline: 0.875 of the roofline against 0.782 at 8192 x 16384.
_WIDEST_OF_ENDING_BLOCKS = 8192
BARRIER_BYTES = 128  # of the barriers before the stages
MAX_STAGES = 4


@dataclass(frozen=True)
class Pipeline:
    """How rows go through the shared memory of blocks that stay.

    Args:
        stages: rows, or parts of them, that a block has room for.
        tensor_bytes: of a tensor in a stage.
        tensors: that are combined into a row.
        blocks: that run at once on a multiprocessor.
        clusters: how many blocks, or clusters of blocks, there are at most in all.
    """

    stages: int
    tensor_bytes: int
    tensors: int
    blocks: int
    clusters: int

    @property
    def stage_bytes(self) -> int:
        """Bytes of a stage."""
        return self.tensor_bytes * self.tensors

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a block."""
        return BARRIER_BYTES + self.stages * self.stage_bytes


def cute_schedule(config: KernelConfig, target: Target) -> tuple[RowSchedule, Pipeline | None]:
    """How rows are divided among threads, and their pipeline if they have one; whatever `config.schedule` says."""
    schedule = replace(row_schedule(replace(config, schedule=""), target), rows_at_once=1)
    if schedule.lanes_per_row < WARP_LANES and schedule.chunks_per_lane > 1:  # here, a lane of those has one chunk
        schedule = row_schedule(replace(config, schedule="", many_rows=False), target)
    if WARP_LANES % schedule.lanes_per_row:  # no warp has parts of rows
        schedule = small_row_schedule(replace(config, schedule="", many_rows=False))
    if schedule.blocks_per_row > 1 and has_separate_parts(config):  # its blocks are clusters
        chunks = ceil_div(groups_of(config), MAX_WARPS)
        schedule = _divide(config, 1) or RowSchedule(MAX_WARPS, chunks, prefetches_weight=True, holds_row=False)
    if not _is_pipelined(config, target, schedule):
        return schedule, None
    for blocks in (1, *CLUSTERS):
        divided = _divide(config, blocks)
        if divided is None:
            continue
        pipeline = _pipeline(config, target, divided)
        if pipeline.stages >= 2:
            return divided, pipeline
    return schedule, None


def for_many_rows(config: KernelConfig, target: Target) -> KernelConfig:
    """`jitnorm.kernels.schedule.for_many_rows` for kernels in CuTe-DSL, which pipeline other rows."""
    many = replace(config, many_rows=True)
    return config if cute_schedule(many, target) == cute_schedule(config, target) else many


def _is_pipelined(config: KernelConfig, target: Target, schedule: RowSchedule) -> bool:
    row_bytes = config.hidden_size * DTYPES[config.input].bytes
    can_copy = target.has_clusters and config.vector_bytes == _COPY_BYTES and row_bytes % _COPY_BYTES == 0
    is_long = groups_of(config) > SINGLE_WARP_GROUPS
    return can_copy and is_long and (schedule.blocks_per_row > 1 or (config.many_rows and pays(config)))


def pays(config: KernelConfig) -> bool:
    """Whether the pipeline was measured to be faster in calls of very many elements: see docs/backends.md."""
    return config.residual and config.quant is None and config.hidden_size > _WIDEST_OF_ENDING_BLOCKS


def _divide(config: KernelConfig, blocks: int) -> RowSchedule | None:
    """A row held by the registers of so many blocks, each with a run of its chunks; None if they are too few."""
    groups = groups_of(config)
    chunks = min(ceil_div(groups, PREFERRED_WARPS * blocks), most_held_chunks(held_bytes(config)))
    chunks = round_up(chunks, min(chunks, CHUNKS_OF_MANY_ROWS))
    warps = ceil_div(groups, chunks * blocks)
    if warps > MAX_WARPS or chunks > most_held_chunks(held_bytes(config)):
        return None
    return RowSchedule(warps * blocks, chunks, prefetches_weight=True, blocks_per_row=blocks)


def _pipeline(config: KernelConfig, target: Target, schedule: RowSchedule) -> Pipeline:
    """The pipeline of as many stages as shared memory has room for, and of as many blocks as run at once."""
    tensors = 2 if config.residual else 1
    chunk_bytes = CHUNK_SIZE * DTYPES[config.input].bytes
    tensor_bytes = schedule.threads * schedule.chunks_per_lane * chunk_bytes
    room = target.shared_bytes
    held_chunks = schedule.chunks_per_lane * (2 if config.residual and waits_for_row_amax(config) else 1)
    threads = _THREADS_BY_CHUNKS.get(held_chunks, _THREADS_OF_LONG_ROWS)
    blocks = max(1, min(threads // schedule.threads, room // (2 * tensors * tensor_bytes)))
    stages = min(MAX_STAGES, room // blocks // (tensors * tensor_bytes))
    clusters = blocks * target.multiprocessors // schedule.blocks_per_row
    return Pipeline(stages, tensor_bytes, tensors, blocks, clusters)
