"""Tensors with handwritten DLPack descriptions, including some that no framework creates."""

from __future__ import annotations

import ctypes
from typing import Any

from jitnorm.ffi import tvm_ffi

CPU, CUDA = 1, 2


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


_kept: dict[int, Any] = {}  # what tensors are made of, by address, for as long as they live


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def _forget(address: int) -> None:
    _kept.pop(address)


class _Exported:
    def __init__(self, managed: _Managed) -> None:
        self._managed = managed

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._managed.tensor.device_type, self._managed.tensor.device_id

    def __dlpack__(self, **_: Any) -> Any:
        new_capsule = ctypes.pythonapi.PyCapsule_New
        new_capsule.restype, new_capsule.argtypes = (
            ctypes.py_object,
            (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p),
        )
        return new_capsule(ctypes.addressof(self._managed), b"dltensor", None)


def tensor_by_hand(
    data: int | None,
    shape: tuple[int, ...],
    dtype: str = "float16",
    *,
    strides: tuple[int, ...] | None = None,
    byte_offset: int = 0,
    device: tuple[int, int] = (CPU, 0),
) -> Any:
    """A `tvm_ffi.Tensor` with exactly this description; `data` is an address, or None for null."""
    dims, kind = len(shape), tvm_ffi().dtype(dtype)
    extents = (ctypes.c_int64 * dims)(*shape)
    steps = None if strides is None else (ctypes.c_int64 * dims)(*strides)
    elements = kind.type_code, kind.bits, kind.lanes
    tensor = _Tensor(data, *device, dims, *elements, extents, steps, byte_offset)
    managed = _Managed(tensor, None, ctypes.cast(_forget, ctypes.c_void_p))
    _kept[ctypes.addressof(managed)] = managed, extents, steps
    return tvm_ffi().from_dlpack(_Exported(managed))
