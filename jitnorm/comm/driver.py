"""The functions of the CUDA driver for memory that processes share."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

IPC_HANDLE_BYTES = 64
_PEER_ACCESS = 1  # CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
_PEER_ACCESS_ALREADY_ENABLED = 704
_PORTABLE_AND_MAPPED = 3  # CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP


class _Handle(ctypes.Structure):
    """CUipcMemHandle."""

    _fields_ = (("bytes", ctypes.c_char * IPC_HANDLE_BYTES),)


@cache
def _library() -> Any:
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        raise RuntimeError("CUDA driver: libcuda.so.1 was not found; install NVIDIA's display driver") from None
    _check(library.cuInit(0), "cuInit")
    return library


def _check(result: int, what: str) -> None:
    if result:
        text = ctypes.c_char_p()
        _library().cuGetErrorString(result, ctypes.byref(text))
        reason = (text.value or b"unknown").decode()
        raise RuntimeError(f"CUDA driver: {what} failed with error {result}: {reason}")


def _call(name: str, *arguments: Any) -> None:
    _check(getattr(_library(), name)(*arguments), name)


@cache
def _context(device: int) -> ctypes.c_void_p:
    """The primary context of a device, which frameworks share; retained for the life of the process."""
    context = ctypes.c_void_p()
    _call("cuDevicePrimaryCtxRetain", ctypes.byref(context), ctypes.c_int(device))
    return context


@contextmanager
def on_device(device: int) -> Iterator[None]:
    """Make the primary context of a device current."""
    _call("cuCtxPushCurrent_v2", _context(device))
    try:
        yield
    finally:
        _call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))


def synchronize(device: int) -> None:
    """Wait for all work of a device."""
    with on_device(device):
        _call("cuCtxSynchronize")


def fill(address: int, count: int, word: int) -> None:
    """Fill memory of the current device with `count` words of 32 bits."""
    _call("cuMemsetD32_v2", ctypes.c_uint64(address), ctypes.c_uint(word), ctypes.c_size_t(count))


def write(address: int, data: bytes) -> None:
    """Copy bytes to memory of the current device."""
    _call("cuMemcpyHtoD_v2", ctypes.c_uint64(address), data, ctypes.c_size_t(len(data)))


def allocate(size: int) -> int:
    """Allocate memory of the current device."""
    address = ctypes.c_uint64()
    _call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
    return address.value


def free(address: int) -> None:
    """Free memory from `allocate`."""
    _call("cuMemFree_v2", ctypes.c_uint64(address))


def allocate_on_host(size: int) -> tuple[int, int]:
    """Allocate host memory that kernels write; returns its addresses for the host and for kernels."""
    address, on_device = ctypes.c_void_p(), ctypes.c_uint64()
    _call("cuMemHostAlloc", ctypes.byref(address), ctypes.c_size_t(size), ctypes.c_uint(_PORTABLE_AND_MAPPED))
    _call("cuMemHostGetDevicePointer_v2", ctypes.byref(on_device), address, ctypes.c_uint(0))
    assert address.value is not None
    return address.value, on_device.value


def free_on_host(address: int) -> None:
    """Free memory from `allocate_on_host`."""
    _call("cuMemFreeHost", ctypes.c_void_p(address))


def handle_of(address: int) -> bytes:
    """The handle by which another process opens memory from `allocate`."""
    handle = _Handle()
    _call("cuIpcGetMemHandle", ctypes.byref(handle), ctypes.c_uint64(address))
    return ctypes.string_at(ctypes.byref(handle), IPC_HANDLE_BYTES)


def open_handle(handle: bytes) -> int:
    """The address of another process's memory for the current device."""
    address, found = ctypes.c_uint64(), _Handle.from_buffer_copy(handle)
    open_memory = _library().cuIpcOpenMemHandle_v2
    open_memory.argtypes = (ctypes.c_void_p, _Handle, ctypes.c_uint)  # the handle is passed by value
    _check(open_memory(ctypes.byref(address), found, _PEER_ACCESS), "cuIpcOpenMemHandle")
    return address.value


def close_handle(address: int) -> None:
    """Close memory from `open_handle`."""
    _call("cuIpcCloseMemHandle", ctypes.c_uint64(address))


def enable_peer(device: int) -> None:
    """Let the current device use the memory of another one in this process."""
    result = _library().cuCtxEnablePeerAccess(_context(device), ctypes.c_uint(0))
    if result != _PEER_ACCESS_ALREADY_ENABLED:
        _check(result, "cuCtxEnablePeerAccess")
