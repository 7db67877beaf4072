"""Memory of ranks that are processes of one machine, for the CPU target."""

from __future__ import annotations

import ctypes
import mmap
import os
import secrets
from collections.abc import Sequence
from pathlib import Path

from jitnorm.comm.layout import STATUS_WORDS
from jitnorm.comm.memory import Exchange, Memory
from jitnorm.kernels.row_ops import CONTROL_WORDS
from jitnorm.launcher import launcher

# Memory that processes map by a name.
_FOLDER = Path("/dev/shm")


class HostMemory(Memory):
    """Shared memory, whose names ranks exchange; none is left once all have mapped it.

    Args:
        rank: whose memory this is.
        exchange: an all-gather of names.
        size: bytes of a window.
    """

    is_synchronous = True

    def __init__(self, rank: int, exchange: Exchange, size: int) -> None:
        self._exchange, self._rank = exchange, rank
        own = _FOLDER / f"jitnorm-{secrets.token_hex(16)}"
        try:
            created = _create(own, size)
            names = [Path(name.decode()) for name in exchange(str(own).encode())]
            self._maps = [created if i == rank else _map(name, size) for i, name in enumerate(names)]
            self.barrier()
        finally:
            own.unlink(missing_ok=True)
        self.windows = tuple(ctypes.addressof(ctypes.c_char.from_buffer(each)) for each in self._maps)
        self.status = (ctypes.c_int64 * STATUS_WORDS)()
        self.status_address = ctypes.addressof(self.status)
        self.control = launcher().allocate((CONTROL_WORDS,), "int64", -1)

    def synchronize(self) -> None:
        """Calls on the CPU have ended when they return."""

    def barrier(self) -> None:
        """See `Memory.barrier`."""
        self._exchange(b"")

    def write_control(self, words: Sequence[int]) -> None:
        """See `Memory.write_control`."""
        ctypes.memmove(self.control.data_ptr(), (ctypes.c_int64 * len(words))(*words), 8 * len(words))

    def fill_window(self, offset: int, count: int, word: int) -> None:
        """See `Memory.fill_window`."""
        self._maps[self._rank][offset : offset + 4 * count] = word.to_bytes(4, "little") * count

    def clear_status(self) -> None:
        """See `Memory.clear_status`."""
        ctypes.memset(self.status, 0, ctypes.sizeof(self.status))

    def close(self) -> None:
        """Do nothing: the windows are unmapped once nothing refers to them."""


def _create(path: Path, size: int) -> mmap.mmap:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, size)  # otherwise, a page without room would kill the process
        return mmap.mmap(descriptor, size)
    finally:
        os.close(descriptor)


def _map(path: Path, size: int) -> mmap.mmap:
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        return mmap.mmap(descriptor, size)
    finally:
        os.close(descriptor)
