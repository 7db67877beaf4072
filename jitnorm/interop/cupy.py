"""CuPy arrays: they neither bring their stream nor know most narrow dtypes."""

from __future__ import annotations

import sys
from collections.abc import Hashable
from typing import Any

from jitnorm.interop.base import Framework, name_of
from jitnorm.launcher import launcher

_NATIVE = ("float16", "float32", "uint8")


class CuPy(Framework):
    """Arrays of `cupy`."""

    float_dtype = "float32"

    def __init__(self) -> None:
        self._cupy: Any = sys.modules["cupy"]

    def argument(self, name: str, tensor: Any, is_output: bool) -> Any:
        dtype = name_of(tensor.dtype)
        if dtype in _NATIVE:
            return tensor
        return launcher().reinterpret(tensor.view(f"u{tensor.dtype.itemsize}"), dtype)

    def empty(self, shape: tuple[int, ...], dtype: str, like: Any) -> Any:
        with like.device:
            if dtype in _NATIVE or dtype == str(like.dtype):
                return self._cupy.empty(shape, like.dtype if dtype == str(like.dtype) else dtype)
            return self._cupy.empty(shape, "uint8")

    def likeness(self, tensor: Any) -> Hashable:
        return tensor.shape, tensor.dtype, tensor.device.id

    def stream(self, tensor: Any) -> int | None:
        return int(self._cupy.cuda.get_current_stream().ptr)

    def dtype_name(self, tensor: Any) -> str:
        return name_of(tensor.dtype)
