"""Memory: what a workspace needs of one kind of device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

Exchange = Callable[[bytes], list[bytes]]
"""An all-gather of a few bytes, in the order of ranks, that the caller provides."""


class Memory(ABC):
    """The memory of one rank.

    Attributes:
        windows: the addresses of all ranks' windows, as this rank sees them.
        control: the control block, int64, a tensor on the device of the calls.
        status_address: of the words that the host reads, as kernels see it.
        status: these words.
        device: the ordinal of the CUDA device; -1 for the host.
        is_synchronous: whether calls have ended when they return.
    """

    windows: tuple[int, ...]
    control: Any
    status_address: int
    status: Any
    device = -1
    is_synchronous = False

    @abstractmethod
    def synchronize(self) -> None:
        """Wait for all calls that this rank has made."""

    @abstractmethod
    def barrier(self) -> None:
        """Wait for all ranks."""

    @abstractmethod
    def write_control(self, words: Sequence[int]) -> None:
        """Fill the control block."""

    @abstractmethod
    def fill_window(self, offset: int, count: int, word: int) -> None:
        """Fill a part of this rank's window with `count` words of 32 bits, from byte `offset` on."""

    @abstractmethod
    def clear_status(self) -> None:
        """Set the words that the host reads to zero."""

    @abstractmethod
    def close(self) -> None:
        """Release the memory."""
