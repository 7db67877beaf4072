"""How the threads of a row meet: in the shared memory of a block, or of each block of a cluster."""

from __future__ import annotations

from typing import Any

import cutlass
from cutlass import cute
from cutlass._mlir.dialects import llvm, nvvm
from cutlass.cutlass_dsl import T

from .constants import Constants
from .intrinsics import assembly
from .values import UInt, Value, pointer, u32


class Sharing:
    """Facts that the threads of a row know of each other.

    Attributes:
        thread_of_block: the number of a thread in its block.
        thread: its number among those of a row.
        lane: its number among the lanes of its warp that share the row.
        warp: the number of the warp among those of the row.
        first_chunk: the number of the thread's first chunk.
        chunk_stride: what leads from one of its chunks to the next.
        rank: the number of the block in its cluster.
        block: the number of the block, or of the cluster of blocks, that has the row.
        blocks: how many there are.
        turn: of blocks that have one row after another, how many they had; memory that is shared takes turns, so that
            one barrier a row is enough.
    """

    def __init__(self, constants: Constants) -> None:
        schedule = constants.schedule
        self._blocks_per_row = schedule.blocks_per_row
        self.thread_of_block = UInt(nvvm.read_ptx_sreg_tid_x(T.i32()))
        self.block = UInt(nvvm.read_ptx_sreg_ctaid_x(T.i32()))
        self.blocks = UInt(nvvm.read_ptx_sreg_nctaid_x(T.i32()))
        self.rank = u32(0)
        self.turn: UInt | None = None
        if self._blocks_per_row == 1:
            self.thread = self.thread_of_block
            if schedule.rows_per_block > 1:
                self.thread = self.thread % schedule.threads_per_row
        else:
            self.rank = self.block % self._blocks_per_row
            self.thread = self.rank * schedule.threads + self.thread_of_block
            self.block = self.block // self._blocks_per_row
            self.blocks = self.blocks // self._blocks_per_row
        self.lane = self.thread_of_block % schedule.lanes_per_row
        self.warp = self.thread // schedule.lanes_per_row
        self.first_chunk, self.chunk_stride = self.thread, schedule.threads_per_row
        if constants.pipeline is not None and self._blocks_per_row > 1:
            # A block has a run of the row, which one copy brings.
            self.chunk_stride = schedule.threads
            self.first_chunk = self.rank * (schedule.threads * schedule.chunks_per_lane) + self.thread_of_block

    def allocate(self, count: int) -> UInt:
        """The address of that many floats in shared memory."""
        turns = 1 if self.turn is None else 2
        address: Any = cute.arch.alloc_smem(cutlass.Float32, count * turns).toint()
        start = UInt(address.ir_value())
        return start if self.turn is None else start + (self.turn & 1) * (4 * count)

    def begin(self) -> None:
        """The shared memory of a block that has not begun must not be written."""
        if self._blocks_per_row > 1:
            self.barrier()

    def barrier(self) -> None:
        """All threads of the row wait for each other."""
        if self._blocks_per_row == 1:
            nvvm.barrier()
            return
        text = "barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;"
        assembly(text, "~{memory}", has_effects=True)

    def share(self, address: UInt, value: Value) -> None:
        """Stores a value where all threads of the row will find it after the next barrier."""
        if self._blocks_per_row == 1:
            self.store(address, value)
            return
        for block in range(self._blocks_per_row):
            operands = (address.value, u32(block).value)
            remote = assembly("mapa.shared::cluster.u32 $0, $1, $2;", "=r,r,r", *operands, result=T.i32())
            assembly("st.shared::cluster.f32 [$0], $1;", "r,f,~{memory}", remote, value, has_effects=True)

    def store(self, address: UInt, value: Value) -> None:
        """Stores a value where the threads of the block will find it."""
        llvm.store(value, pointer(address), alignment=4)

    def shared(self, address: UInt) -> Value:
        """The float at an address in shared memory."""
        return llvm.load(T.f32(), pointer(address), alignment=4)
