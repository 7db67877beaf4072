"""The encode stage that encodes nothing: the largest magnitude of all rows is all that is written."""

from __future__ import annotations

from ..row_schedule import WARP_LANES
from .arguments import Arguments
from .constants import Constants
from .intrinsics import assembly, bits_of
from .row_reduce import butterfly_max
from .row_sharing import Sharing
from .values import UInt, Value, when


class Encode:
    """Keeps the largest magnitude."""

    def __init__(self, constants: Constants, sharing: Sharing) -> None:
        self._constants, self._sharing = constants, sharing

    def begin_row(self, arguments: Arguments, row: UInt, row_amax: Value | None, is_writer: UInt) -> None:
        """Takes the largest magnitude of a row into account."""
        amax = butterfly_max(row_amax, WARP_LANES)
        writers = WARP_LANES * self._constants.schedule.warps_per_row  # threads that know it together
        # As integers, magnitudes have the same order, NaN above infinity.
        with when((self._sharing.thread_of_block % writers).equals(0)):
            operands = (arguments.address("amax").value, bits_of(amax).value)
            assembly("red.global.max.u32 [$0], $1;", "l,r,~{memory}", *operands, has_effects=True)

    def chunk(self, context: None, index: UInt, y: list[Value], amax: Value) -> None:
        """Nothing."""

    def end_row(self, context: None, thread: UInt) -> None:
        """Nothing."""

    def pad_row(self, arguments: Arguments, row: UInt, thread: UInt) -> None:
        """Nothing."""
