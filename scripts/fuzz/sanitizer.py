"""AddressSanitizer, in processes that have it: memory around tensors may not even be read."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterable, Iterator

import numpy as np

from fuzz.memory import Guarded

_PROCESS = ctypes.CDLL(None)


@contextlib.contextmanager
def kept_to(tensors: Iterable[Guarded]) -> Iterator[None]:
    """Make any access to the memory around tensors end the process, if AddressSanitizer is active."""
    if not hasattr(_PROCESS, "__asan_poison_memory_region"):
        yield
        return
    regions = [region for tensor in tensors for region in _regions(tensor)]
    for address, size in regions:
        _PROCESS.__asan_poison_memory_region(ctypes.c_void_p(address), ctypes.c_size_t(size))
    try:
        yield
    finally:
        for address, size in regions:
            _PROCESS.__asan_unpoison_memory_region(ctypes.c_void_p(address), ctypes.c_size_t(size))


def _regions(tensor: Guarded) -> Iterator[tuple[int, int]]:
    """Address and size of all stretches of memory around a tensor, which only the CPU's have."""
    if tensor.address is None:
        return
    edges = np.flatnonzero(np.diff(tensor.around().astype(np.int8), prepend=0, append=0))
    for start, end in edges.reshape(-1, 2).tolist():
        yield tensor.address + start, end - start
