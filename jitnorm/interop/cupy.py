"""CuPy arrays, which neither carry their stream nor know most narrow dtypes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable
from typing import Any

from jitnorm.interop.base import Framework, name_of
from jitnorm.launcher import launcher

_NATIVE = ("float16", "float32", "uint8", "int8", "int32")


class CuPy(Framework):
    """Arrays of `cupy`."""

    float_dtype = "float32"
    # All except arrays with a dtype of ml_dtypes; see docs/host.md.
    is_often_direct = True

    def __init__(self) -> None:
        super().__init__()
        self._cupy: Any = sys.modules["cupy"]
        get_current_stream = self._cupy.cuda.get_current_stream
        self.current_stream = lambda: int(get_current_stream().ptr)

    def owns(self, tensor: Any) -> bool:
        return isinstance(tensor, self._cupy.ndarray)

    def argument(self, name: str, tensor: Any, is_output: bool) -> Any:
        dtype = name_of(tensor.dtype)
        if dtype in _NATIVE:
            return tensor
        return launcher().reinterpret(tensor.view(f"u{tensor.dtype.itemsize}"), dtype)

    def empty(self, shape: tuple[int, ...], dtype: str, like: Any) -> Any:
        return self.maker(shape, dtype, like)(like)

    def maker(self, shape: tuple[int, ...], dtype: str, like: Any) -> Callable[[Any], Any]:
        device, new = like.device, self._cupy.ndarray
        found = like.dtype if dtype == name_of(like.dtype) else self._cupy.dtype(dtype if dtype in _NATIVE else "uint8")

        def make(_: Any) -> Any:
            with device:
                return new(shape, found)

        return make

    def likeness(self, tensor: Any) -> Hashable:
        return tensor.shape, tensor.dtype, tensor.device.id

    def dtype_name(self, tensor: Any) -> str:
        return name_of(tensor.dtype)
