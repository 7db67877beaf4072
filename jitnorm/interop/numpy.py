"""NumPy arrays. bfloat16 and FP8 come from ml_dtypes, which NumPy's DLPack export does not support."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from jitnorm.ffi import tvm_ffi
from jitnorm.interop.base import Framework, name_of
from jitnorm.launcher import launcher

_NATIVE = ("float16", "float32", "uint8", "int8", "int32")


class NumPy(Framework):
    """Arrays of `numpy`, on the CPU."""

    float_dtype = "float32"
    # All except read-only arrays and those with a dtype of ml_dtypes; see docs/host.md.
    is_often_direct = True

    def owns(self, tensor: Any) -> bool:
        is_masked = any(base.__name__ == "MaskedArray" for base in type(tensor).__mro__)
        return isinstance(tensor, (np.ndarray, np.generic)) and not is_masked

    def argument(self, name: str, tensor: Any, is_output: bool) -> Any:
        if is_output and not tensor.flags.writeable:
            raise ValueError(f"{name}: is read-only; expected a writable array")
        dtype, tensor = name_of(tensor.dtype), np.asarray(tensor)  # NumPy's scalars cannot be exported
        if dtype in _NATIVE:
            return tensor if tensor.flags.writeable else _exported(tensor)
        storage = tensor.view(f"u{tensor.dtype.itemsize}")
        return launcher().reinterpret(_exported(storage), dtype)

    def refusal(self, tensor: Any, is_output: bool) -> str | None:
        dtype = tensor.dtype
        if not dtype.isnative:
            return f"has a foreign byte order; pass an array of dtype {name_of(dtype)} in native byte order"
        if (dtype.kind not in "biuf" and dtype.type.__module__ != "ml_dtypes") or dtype.itemsize > 8:
            return f"has dtype {dtype}; expected one of NumPy's numbers, up to 64 bits, or of ml_dtypes"
        if any(
            extent != 1 and step % dtype.itemsize for extent, step in zip(tensor.shape, tensor.strides, strict=True)
        ):
            return f"has strides that are not whole elements of {dtype}; pass a copy, from numpy.ascontiguousarray"
        return None

    def empty(self, shape: tuple[int, ...], dtype: str, like: Any) -> Any:
        return np.empty(shape, _dtype(dtype))

    def maker(self, shape: tuple[int, ...], dtype: str, like: Any) -> Callable[[Any], Any]:
        found = _dtype(dtype)
        return lambda _: np.empty(shape, found)

    def likeness(self, tensor: Any) -> Hashable:
        return tensor.shape, tensor.dtype

    def dtype_name(self, tensor: Any) -> str:
        return name_of(tensor.dtype)


def _dtype(name: str) -> np.dtype[Any]:
    """The dtype of a name from NumPy or ml_dtypes, or uint8 if both lack it."""
    if name in _NATIVE:
        return np.dtype(name)
    import ml_dtypes

    name = "uint8" if name in ("float4_e2m1fnx2", "float8_e8m0fnu") else name
    return np.dtype(getattr(ml_dtypes, name, np.uint8))


def _exported(array: Any) -> Any:
    """Export an array to TVM-FFI even if it is read-only, which only DLPack 1.0 can express."""
    return tvm_ffi().from_dlpack(array.__dlpack__(max_version=(1, 0)))
