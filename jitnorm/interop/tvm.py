"""tvm_ffi.Tensor: the launcher itself allocates for it."""

from __future__ import annotations

from typing import Any

from jitnorm.interop.base import Framework
from jitnorm.launcher import launcher

_CPU = 1  # kDLCPU


class TvmFfi(Framework):
    """Tensors of `tvm_ffi`; CUDA ones run on the stream that `tvm_ffi.use_raw_stream` sets."""

    is_direct = True

    def argument(self, name: str, tensor: Any, is_output: bool) -> Any:
        return tensor

    def merge_last_two(self, tensor: Any) -> Any:
        return launcher().merge_last_two(tensor)

    def empty(self, shape: tuple[int, ...], dtype: str, like: Any) -> Any:
        device = like.device
        return launcher().allocate(shape, dtype, -1 if device.dlpack_device_type() == _CPU else device.index)
