"""Copies from global to shared memory that the hardware makes by itself, and the barriers that tell when they end."""

from __future__ import annotations

from typing import Any

import cutlass
from cutlass import cute

from .intrinsics import assembly
from .values import UInt, u32

_WAIT = """{
.reg .pred done;
WAIT:
mbarrier.try_wait.parity.shared::cta.b64 done, [$0], $1;
@done bra DONE;
bra WAIT;
DONE:
}"""


def shared_memory() -> UInt:
    """The address of the dynamic shared memory."""
    address: Any = cute.arch.get_dyn_smem(cutlass.Uint8, alignment=128).toint()
    return UInt(address.ir_value())


def begin_barrier(barrier: UInt) -> None:
    """Makes a barrier of 8 bytes, each of whose phases ends with one announcement and the bytes that it announced."""
    assembly("mbarrier.init.shared::cta.b64 [$0], $1;", "r,r,~{memory}", barrier.value, u32(1).value, has_effects=True)


def show_barriers() -> None:
    """Shows the barriers that the thread has begun to the hardware."""
    assembly("fence.mbarrier_init.release.cluster;", "~{memory}", has_effects=True)


def announce(barrier: UInt, size: UInt) -> None:
    """Says how many bytes will come."""
    text = "mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;"
    assembly(text, "r,r,~{memory}", barrier.value, size.value, has_effects=True)


def copy(to: UInt, source: UInt, size: UInt, barrier: UInt) -> None:
    """Begins to copy `size` bytes, a multiple of 16 like the addresses, whose arrival the barrier counts."""
    text = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [$0], [$1], $2, [$3];"
    assembly(text, "r,l,r,r,~{memory}", to.value, source.value, size.value, barrier.value, has_effects=True)


def wait(barrier: UInt, parity: UInt) -> None:
    """Until the phase of this parity has ended."""
    assembly(_WAIT, "r,r,~{memory}", barrier.value, parity.value, has_effects=True)
