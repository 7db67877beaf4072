"""Memory of GPUs of one host that torch's symmetric memory makes."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from typing import Any

from jitnorm.comm.layout import STATUS_WORDS
from jitnorm.comm.memory import Memory
from jitnorm.kernels.row_ops import CONTROL_WORDS


class TorchMemory(Memory):
    """A tensor of torch's symmetric memory, which all ranks of a group map.

    Args:
        group: the ranks.
        size: bytes of a window.
        device: where this rank's calls run.
    """

    def __init__(self, group: Any, size: int, device: Any) -> None:
        import torch
        import torch.distributed._symmetric_memory as symmetric

        os.environ.setdefault("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1")  # an unneeded call cannot fail
        self._torch, self._group, self._device, self.device = torch, group, device, device.index
        self._window = symmetric.empty((size,), dtype=torch.uint8, device=device)
        self._handle = symmetric.rendezvous(self._window, group or torch.distributed.group.WORLD)
        self.windows = tuple(self._handle.buffer_ptrs)
        self.control = torch.zeros(CONTROL_WORDS, dtype=torch.int64, device=device)
        self._host = torch.zeros(STATUS_WORDS, dtype=torch.int64, pin_memory=True)
        self.status_address = self._host.data_ptr()
        self.status = (ctypes.c_int64 * STATUS_WORDS).from_address(self.status_address)

    def synchronize(self) -> None:
        """See `Memory.synchronize`."""
        self._torch.cuda.synchronize(self._device)

    def barrier(self) -> None:
        """See `Memory.barrier`."""
        self._torch.distributed.barrier(self._group)
        self.synchronize()  # NCCL's barriers are kernels

    def write_control(self, words: Sequence[int]) -> None:
        """See `Memory.write_control`."""
        self.control.copy_(self._torch.tensor(words, dtype=self._torch.int64))

    def fill_window(self, offset: int, count: int, word: int) -> None:
        """See `Memory.fill_window`."""
        signed = word - (1 << 32) if word >> 31 else word
        self._window[offset : offset + 4 * count].view(self._torch.int32).fill_(signed)

    def clear_status(self) -> None:
        """See `Memory.clear_status`."""
        self._host.zero_()

    def close(self) -> None:
        """Do nothing: torch frees the memory once nothing refers to it."""
