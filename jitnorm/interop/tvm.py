"""Tensors of `tvm_ffi`, whose outputs the launcher itself allocates."""

from __future__ import annotations

from typing import Any

from jitnorm.ffi import tvm_ffi
from jitnorm.interop.base import Framework
from jitnorm.launcher import launcher

_CPU = 1  # kDLCPU


class TvmFfi(Framework):
    """Tensors of `tvm_ffi`; CUDA ones run on the stream that `tvm_ffi.use_raw_stream` sets."""

    is_direct = True
    goes_with_any = True

    def owns(self, tensor: Any) -> bool:
        return isinstance(tensor, tvm_ffi().Tensor)

    def argument(self, name: str, tensor: Any, is_output: bool) -> Any:
        return tensor

    def merge_last_two(self, tensor: Any) -> Any:
        return launcher().merge_last_two(tensor)

    def empty(self, shape: tuple[int, ...], dtype: str, like: Any) -> Any:
        device = like.device
        return launcher().allocate(shape, dtype, -1 if device.dlpack_device_type() == _CPU else device.index)

    def reshaped(self, tensor: Any, shape: tuple[int, ...]) -> Any:
        return self.permuted(tensor, shape, tuple(range(len(shape))))

    def permuted(self, tensor: Any, shape: tuple[int, ...], order: tuple[int, ...]) -> Any:
        return launcher().permute(tensor, shape, order)
