"""The constants of a kernel: a configuration and its schedule, as the stages see them."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cached_property

from ..arguments import WIDEST_ACCESS, TensorArgument
from ..config import KernelConfig
from ..interface import interface
from ..numerics import CHUNK_SIZE, GROUP_CHUNKS, ceil_div, next_power_of_two
from ..quant_spec import CODE_BITS, MAX_CODE, QuantSpec
from ..row_schedule import RowSchedule
from ..target import Target
from .schedule import Pipeline


@dataclass(frozen=True)
class Constants:
    """The facts that stages know before a kernel runs.

    Args:
        config: what the kernel computes.
        target: what it is built for.
        schedule: how rows are divided among threads.
        pipeline: how they go through shared memory; None if they are loaded into registers.
    """

    config: KernelConfig
    target: Target
    schedule: RowSchedule
    pipeline: Pipeline | None = None

    @cached_property
    def row_size(self) -> int:
        """Elements of a row, or codes if their rows are longer."""
        return self.config.encoded_size

    @cached_property
    def chunks(self) -> int:
        """Chunks of a row, the last of which may be partial."""
        return ceil_div(self.row_size, CHUNK_SIZE)

    @cached_property
    def whole_chunks(self) -> int:
        """Chunks that are whole."""
        return self.row_size // CHUNK_SIZE

    @cached_property
    def groups(self) -> int:
        """Groups of chunks in a row."""
        return ceil_div(self.chunks, GROUP_CHUNKS)

    @cached_property
    def padded_groups(self) -> int:
        """The power of two of group sums that are folded."""
        return next_power_of_two(self.groups)

    @cached_property
    def has_partial_chunk(self) -> bool:
        """Whether the last chunk of a row is partial."""
        return self.row_size % CHUNK_SIZE != 0

    @cached_property
    def has_idle_slots(self) -> bool:
        """Whether a lane may be left without a whole chunk in a slot."""
        covered = self.schedule.threads_per_row * self.schedule.chunks_per_lane
        return self.schedule.rows_per_block > 1 or covered > self.whole_chunks

    @cached_property
    def needs_row_amax(self) -> bool:
        """Whether rows are encoded after their largest magnitude is known."""
        return self.config.needs_row_amax

    @cached_property
    def access_bytes(self) -> dict[str, int]:
        """Bytes of one access to each tensor that is accessed by chunks, by its field."""
        found = {"weight": WIDEST_ACCESS, "bias": WIDEST_ACCESS}
        for argument in interface(self.config):
            if isinstance(argument, TensorArgument) and argument.chunk_bytes:
                found[argument.field] = argument.access_bytes(self.config.vector_bytes)
        return found

    @property
    def quant(self) -> QuantSpec:
        """How values are encoded, of kernels that encode."""
        assert self.config.quant
        return self.config.quant

    @cached_property
    def codes_per_word(self) -> int:
        """Codes in 32 bits."""
        return 32 // CODE_BITS[self.quant.element]

    @cached_property
    def nan_codes(self) -> int:
        """A word of the codes of NaN."""
        return 0x77777777 if self.quant.element == "e2m1" else 0x7F7F7F7F

    @cached_property
    def max_code(self) -> float:
        """The largest value of a code."""
        return MAX_CODE[self.quant.element]

    @cached_property
    def reciprocal_max(self) -> float:
        """The reciprocal of the largest value, rounded to float32."""
        return ctypes.c_float(1.0 / self.max_code).value

    @cached_property
    def scale_columns(self) -> int:
        """Blocks of a row."""
        return self.config.scale_columns

    @cached_property
    def padded_scale_columns(self) -> int:
        """Scales that the layout has for each row."""
        return self.config.padded_scale_columns

    @cached_property
    def row_multiple(self) -> int:
        """The multiple that the layout of the scales rounds the number of rows up to."""
        return self.config.row_multiple
