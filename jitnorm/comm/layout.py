"""Where everything is in the memory that ranks share: the windows and the control block; see common/workspace.h."""

from __future__ import annotations

from dataclasses import dataclass

from jitnorm.kernels.all_reduce_rules import MAX_RANKS
from jitnorm.kernels.dtypes import DTYPES
from jitnorm.kernels.numerics import CHUNK_SIZE, round_up
from jitnorm.kernels.row_ops import CONTROL_WORDS

# Calls take turns at so many buffers: that of the current call, that of a rank one call ahead, and that of the previous
# call, which is being cleared.
BUFFERS = 3
# A row that has not arrived yet is full of -0, as two values of 16 bits or one of 32.
NOT_YET = {2: 0x80008000, 4: 0x80000000}
# Rows begin at multiples of a cache line.
_LINE = 128
_WORD = 8
# Words of the control block before the address of the words that the host reads and the addresses of windows.
_PLACES, _STATUS, _WINDOWS, _FROM_OWN = 12, 14, 15, 15 + MAX_RANKS
STATUS_WORDS = 2 * MAX_RANKS
# Bytes of the marks that ranks exchange for whole calls.
_STEP_BYTES = 2 * MAX_RANKS * _WORD


@dataclass(frozen=True)
class Layout:
    """The layout of the windows of a workspace, the same on all of its ranks.

    Attributes:
        ranks: how many there are.
        max_rows: the most rows of a call.
        rows: the most rows of a call in which each rank gets all ranks' rows.
        hidden_size: the most elements of a row.
        dtype: of the elements.
        output_bytes: for the outputs of a call whose rows ranks divide.
    """

    ranks: int
    max_rows: int
    rows: int
    hidden_size: int
    dtype: str
    output_bytes: int

    @property
    def row_bytes(self) -> int:
        """Bytes from one row to the next."""
        return round_up(round_up(self.hidden_size, CHUNK_SIZE) * DTYPES[self.dtype].bytes, _LINE)

    @property
    def slots(self) -> int:
        """Rows of all buffers and ranks."""
        return BUFFERS * self.ranks * self.rows

    @property
    def mark_bytes(self) -> int:
        """Bytes of all marks, which come first: those of whole calls, and of rows."""
        return _STEP_BYTES + round_up(self.slots * _WORD, _LINE)

    @property
    def sums_offset(self) -> int:
        """Where sums computed by other ranks arrive, behind the slots."""
        return self.mark_bytes + self.slots * self.row_bytes

    @property
    def input_offset(self) -> int:
        """Where the inputs of calls whose rows ranks divide begin."""
        rows_of_others = (self.ranks - 1) * -(-self.max_rows // self.ranks) if self.output_bytes else 0
        return self.sums_offset + rows_of_others * self.row_bytes

    @property
    def output_offset(self) -> int:
        """Where outputs of such calls begin."""
        return self.input_offset + (self.max_rows * self.row_bytes if self.output_bytes else 0)

    @property
    def window_bytes(self) -> int:
        """Bytes of a window."""
        return self.output_offset + self.output_bytes

    def control(self, rank: int, deadline: float, status: int, windows: tuple[int, ...]) -> list[int]:
        """The words of a rank's control block before its first call.

        Args:
            rank: the rank whose block it is.
            deadline: of a wait, in seconds.
            status: the address of the words that the host reads.
            windows: the addresses of the ranks' windows.
        """
        words = [0] * CONTROL_WORDS
        words[:4] = rank, round(deadline * 1e9), self.rows, self.row_bytes
        words[_PLACES : _PLACES + 2] = self.mark_bytes, self.sums_offset
        words[_STATUS] = status
        words[_WINDOWS : _WINDOWS + self.ranks] = windows
        words[_FROM_OWN : _FROM_OWN + self.ranks] = *windows[rank:], *windows[:rank]
        return words
