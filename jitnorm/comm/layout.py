"""Where everything is in the memory that ranks share: the windows, and the control block, of common/workspace.h."""

from __future__ import annotations

from dataclasses import dataclass

from jitnorm.kernels.all_reduce_rules import MAX_RANKS
from jitnorm.kernels.dtypes import DTYPES
from jitnorm.kernels.numerics import CHUNK_SIZE, round_up
from jitnorm.kernels.row_ops import CONTROL_WORDS

# Buffers at which calls take turns: a rank may be one call ahead, and the one before is being cleared.
BUFFERS = 3
# A row that has not come yet is full of -0, as two values of 16 bits or one of 32.
NOT_YET = {2: 0x80008000, 4: 0x80000000}
# Rows begin at multiples of a cache line.
_LINE = 128
_WORD = 8
# Words of the control block before the addresses of windows, and of what the host reads.
_STATUS, _WINDOWS = 11, 12
STATUS_WORDS = 2 * MAX_RANKS


@dataclass(frozen=True)
class Layout:
    """The layout of the windows of a workspace, the same on all of its ranks.

    Attributes:
        ranks: how many there are.
        rows: the most rows that a call may exchange at once.
        hidden_size: the most elements of a row.
        dtype: of the elements.
    """

    ranks: int
    rows: int
    hidden_size: int
    dtype: str

    @property
    def row_bytes(self) -> int:
        """Bytes from a row to the next."""
        return round_up(round_up(self.hidden_size, CHUNK_SIZE) * DTYPES[self.dtype].bytes, _LINE)

    @property
    def slots(self) -> int:
        """Rows of all buffers and ranks."""
        return BUFFERS * self.ranks * self.rows

    @property
    def mark_bytes(self) -> int:
        """Bytes of the marks of rows, which come first."""
        return round_up(self.slots * _WORD, _LINE)

    @property
    def window_bytes(self) -> int:
        """Bytes of a window."""
        return self.mark_bytes + self.slots * self.row_bytes

    def control(self, rank: int, deadline: float, status: int, windows: tuple[int, ...]) -> list[int]:
        """The words of a rank's control block before its first call.

        Args:
            rank: whose it is.
            deadline: of a wait, in seconds.
            status: the address of the words that the host reads.
            windows: the addresses of the ranks' windows.
        """
        words = [0] * CONTROL_WORDS
        words[:4] = rank, round(deadline * 1e9), self.rows, self.row_bytes
        words[_STATUS] = status
        words[_WINDOWS : _WINDOWS + self.ranks] = windows
        return words
