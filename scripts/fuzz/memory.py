"""Tensors of each framework between guard bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from placement import Placed, Placement, place

from fuzz.case import Place


@dataclass(frozen=True)
class Guarded:
    """A tensor of a framework, and the memory around it.

    Attributes:
        tensor: what the op gets.
        memory: reads all of it, guard bytes included.
        placed: the same as NumPy arrays, as they were before the call.
        address: where this memory begins; None on a device.
    """

    tensor: Any
    memory: Callable[[], NDArray[np.uint8]]
    placed: Placed
    address: int | None

    def holds(self, expected: NDArray[Any] | None) -> str:
        """The fault unless the tensor holds these values (None: its old ones) and nothing around it has changed."""
        before = self.placed
        wanted = before.buffer.copy()
        if expected is not None:
            view = np.ndarray(before.view.shape, before.view.dtype, wanted, _offset(before), before.view.strides)
            view[...] = expected
        found = self.memory()
        if found.tobytes() == wanted.tobytes():
            return ""
        different = np.flatnonzero(found != wanted)
        around = int(self.around()[different].sum())
        return f"{len(different)} bytes differ, {around} of them outside of the tensor; the first at {different[0]}"

    def around(self) -> NDArray[np.bool_]:
        """Whether each byte of the memory is outside of the tensor."""
        view, outside = self.placed.view, np.ones(len(self.placed.buffer), np.bool_)
        shape, strides = (*view.shape, view.itemsize), (*view.strides, 1)
        np.ndarray(shape, np.bool_, outside, _offset(self.placed), strides)[...] = False
        return outside


def guarded(values: NDArray[Any], where: Place, framework: str) -> Guarded:
    """Values placed in memory as a tensor of a framework."""
    leading = values.ndim - 1
    placement = Placement(
        tuple(range(leading)), (where.gap,) * leading, where.row_gap if leading else 0, where.offset, (False,) * leading
    )
    placed = place(values.shape, values.dtype, placement)
    placed.view[...] = values
    if framework == "numpy":
        working = Placed(placed.view, placed.buffer)
        before = placed.buffer.copy()
        view = np.ndarray(values.shape, values.dtype, before, _offset(placed), placed.view.strides)
        return Guarded(working.view, lambda: working.buffer, Placed(view, before), placed.buffer.ctypes.data)
    return _of_torch(placed, framework)


def _of_torch(placed: Placed, framework: str) -> Guarded:
    import torch

    dtype, itemsize = placed.view.dtype, placed.view.itemsize
    kind = getattr(torch, dtype.name)
    # Aligned as the placement has it: allocations begin at multiples of 64 bytes.
    size = len(placed.buffer) // itemsize * itemsize
    stored = torch.empty(size + 64, dtype=torch.uint8)
    start = -stored.data_ptr() % 64
    stored = stored[start : start + size]
    stored.copy_(torch.from_numpy(placed.buffer[:size].copy()))
    if framework == "cuda":
        stored = stored.cuda()
    strides = [step // itemsize for step in placed.view.strides]
    flat = stored.view(kind)
    offset = flat.storage_offset() + _offset(placed) // itemsize
    tensor: Any = flat.as_strided(placed.view.shape, strides, offset)
    if framework == "tvm_ffi":
        import tvm_ffi

        tensor = tvm_ffi.from_dlpack(tensor)
    tail = placed.buffer[size:]

    def memory() -> NDArray[np.uint8]:
        return np.concatenate([stored.cpu().numpy(), tail])

    return Guarded(tensor, memory, placed, None if framework == "cuda" else stored.data_ptr())


def _offset(placed: Placed) -> int:
    return 0 if placed.view.size == 0 else placed.view.ctypes.data - placed.buffer.ctypes.data
