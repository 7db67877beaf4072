"""Memory of GPUs of one host, which processes share by CUDA IPC, and threads of one process directly."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

from jitnorm.comm import driver
from jitnorm.comm.layout import STATUS_WORDS
from jitnorm.comm.memory import Exchange, Memory
from jitnorm.kernels.row_ops import CONTROL_WORDS
from jitnorm.launcher import launcher

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class CudaMemory(Memory):
    """Memory of a CUDA device, whose handles ranks exchange.

    Args:
        rank: whose memory this is.
        exchange: an all-gather of handles.
        size: bytes of a window.
        device: the ordinal of the device.
    """

    def __init__(self, rank: int, exchange: Exchange, size: int, device: int) -> None:
        self._exchange, self.device = exchange, device
        with driver.on_device(device):
            self._own = driver.allocate(size)
            self._opened: list[int] = []
            self._host, self.status_address = driver.allocate_on_host(8 * STATUS_WORDS)
            self.windows = self._exchange_windows(rank)
        self.status = (ctypes.c_int64 * STATUS_WORDS).from_address(self._host)
        self.clear_status()
        self.control = launcher().allocate((CONTROL_WORDS,), "int64", device)

    def _exchange_windows(self, rank: int) -> tuple[int, ...]:
        """Tell the others where this rank's window is, and find theirs."""
        process = f"{_boot_id()} {os.getpid()} {self.device} {self._own} ".encode()
        texts = self._exchange(process + driver.handle_of(self._own))
        found = []
        for i, text in enumerate(texts):
            boot, pid, device, address, handle = text.split(b" ", 4)
            if boot.decode() != str(_boot_id()):
                raise ValueError(f"rank {i} is on another host; a workspace is for the GPUs of one")
            if int(pid) != os.getpid():
                self._opened.append(driver.open_handle(handle))
                found.append(self._opened[-1])
                continue
            if int(device) != self.device:
                driver.enable_peer(int(device))
            found.append(int(address))
        return tuple(found)

    def synchronize(self) -> None:
        """See `Memory.synchronize`."""
        driver.synchronize(self.device)

    def barrier(self) -> None:
        """See `Memory.barrier`."""
        self._exchange(b"")

    def write_control(self, words: Sequence[int]) -> None:
        """See `Memory.write_control`."""
        with driver.on_device(self.device):
            driver.write(self.control.data_ptr(), bytes((ctypes.c_int64 * len(words))(*words)))

    def fill_window(self, offset: int, count: int, word: int) -> None:
        """See `Memory.fill_window`."""
        with driver.on_device(self.device):
            driver.fill(self._own + offset, count, word)

    def clear_status(self) -> None:
        """See `Memory.clear_status`."""
        ctypes.memset(self._host, 0, 8 * STATUS_WORDS)

    def close(self) -> None:
        """Close the others' windows and, once they have closed this one, free it."""
        with driver.on_device(self.device):
            for address in self._opened:
                driver.close_handle(address)
            self.barrier()
            driver.free(self._own)
        self.status = (ctypes.c_int64 * STATUS_WORDS)()
        driver.free_on_host(self._host)


def _boot_id() -> UUID:
    """The identity of this boot of the host, which no other host shares."""
    return UUID(_BOOT_ID.read_text().strip())
