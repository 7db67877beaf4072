"""The schedule of long rows and of very many: blocks stay, and copies of their next rows are under way all the time.

A block, or each block of a cluster, has room for some rows in its shared memory, which a barrier each belongs to. One
thread begins the copies; all threads take their chunks of a row into registers, and as soon as the reduction has shown
that all have done so, the next row may take its place.
"""

from __future__ import annotations

from typing import Any

from cutlass._mlir.dialects import nvvm

from ..dtypes import DTYPES
from . import bulk_copy
from .arguments import Arguments
from .constants import Constants
from .rows import RowKernel
from .schedule import BARRIER_BYTES, Pipeline
from .values import UInt, Value, loop, select, u32, when


class PipelinedRowKernel(RowKernel):
    """The kernel of a row-wise op, traced by `process`."""

    def __init__(self, constants: Constants, arguments: Arguments) -> None:
        super().__init__(constants, arguments)
        assert constants.pipeline
        self._pipeline: Pipeline = constants.pipeline
        self._barriers = bulk_copy.shared_memory()
        self._stages = self._barriers + BARRIER_BYTES
        element_bytes = DTYPES[constants.config.input].bytes
        # The part of a row that this block copies.
        self._first_byte = self._sharing.rank * self._pipeline.tensor_bytes
        self._bytes = self._bytes_of_block(constants.row_size * element_bytes)

    def process(self) -> None:
        """Traces the kernel."""
        sharing, rows = self._sharing, self._arguments.rows
        first_chunk = sharing.first_chunk
        with when(sharing.thread_of_block.equals(0)):
            for stage in range(self._pipeline.stages):
                bulk_copy.begin_barrier(self._barriers + 8 * stage)
            bulk_copy.show_barriers()
        nvvm.barrier()
        sharing.begin()
        self._wait_for_kernel_before()
        first, stride = sharing.block.wide(), sharing.blocks.wide()
        for stage in range(self._pipeline.stages):
            self._begin_copy(first + stride * stage, u32(stage))
        parameters = self._prefetch_parameters(first_chunk)

        def body(row: UInt, carried: list[Value]) -> list[Value]:
            turn, stage, parity = map(UInt, carried)
            sharing.turn = turn
            bulk_copy.wait(self._barriers + stage * 8, parity)
            held = self._load_row(self._staged(stage), first_chunk)
            statistic, held = self._find_statistic(None, held, first_chunk)
            if not self._normalize.normalizes:
                nvvm.barrier()  # a statistic has one
            self._begin_copy(row + stride * self._pipeline.stages, stage)
            source = self._combine.source_of(self._arguments, row)
            self._finish_row(row, source, held, parameters, first_chunk, statistic, None)
            is_last = stage.equals(self._pipeline.stages - 1)
            next_stage = select(is_last, u32(0), stage + 1)
            return [(turn + 1).value, next_stage.value, (parity ^ is_last.as_u32()).value]

        zero = u32(0).value
        loop(first, rows, stride, [zero, zero, zero], body)
        self._launch_dependents()
        if self._constants.row_multiple > 1:
            self._pad_rows(first, stride)

    def _begin_copy(self, row: UInt, stage: UInt) -> None:
        """One thread begins to copy a row, if there is one, into a stage."""
        with when(self._sharing.thread_of_block.equals(0) & (row < self._arguments.rows)):
            barrier = self._barriers + stage * 8
            bulk_copy.announce(barrier, self._bytes * self._pipeline.tensors)
            source = self._combine.source_of(self._arguments, row)
            with when(self._bytes.differs(0)):
                for tensor, address in enumerate(self._combine.loaded(source)):
                    to = self._stage(stage) + tensor * self._pipeline.tensor_bytes
                    bulk_copy.copy(to, address + self._first_byte.wide(), self._bytes, barrier)

    def _staged(self, stage: UInt) -> Any:
        """Where a row in a stage would begin if the block had all of it."""
        starts = self._stage(stage) - self._first_byte
        tensors = [starts + tensor * self._pipeline.tensor_bytes for tensor in range(self._pipeline.tensors)]
        return self._combine.staged(*tensors)

    def _stage(self, stage: UInt) -> UInt:
        return self._stages + stage * self._pipeline.stage_bytes

    def _bytes_of_block(self, row_bytes: int) -> UInt:
        """Bytes of a block's part of each tensor; none of a block behind the row's end."""
        if self._constants.schedule.blocks_per_row == 1:
            return u32(row_bytes)
        size = self._pipeline.tensor_bytes
        left = select(self._first_byte < row_bytes, u32(row_bytes) - self._first_byte, u32(0))
        return select(left < size, left, u32(size))
