"""JAX arrays, eager: they are immutable, so outputs are memory of the launcher that JAX then adopts."""

from __future__ import annotations

import sys
from typing import Any

from jitnorm.ffi import tvm_ffi
from jitnorm.interop.base import Framework, name_of
from jitnorm.launcher import launcher

_CPU = "cpu"


class Jax(Framework):
    """Arrays of `jax`, outside of `jax.jit`."""

    def __init__(self) -> None:
        self._jax: Any = sys.modules["jax"]

    def argument(self, name: str, tensor: Any, is_output: bool) -> Any:
        if is_output and isinstance(tensor, self._jax.Array):
            raise TypeError(f"{name}: JAX arrays are immutable; leave it None where the op allocates its outputs")
        return tensor if is_output else tvm_ffi().from_dlpack(tensor.__dlpack__(stream=self.stream(tensor)))

    def refusal(self, tensor: Any) -> str | None:
        if isinstance(tensor, self._jax.core.Tracer):
            return "is traced by jax.jit, which jitnorm's eager ops cannot take; call them outside"
        return None

    def empty(self, shape: tuple[int, ...], dtype: str, like: Any) -> Any:
        name = "uint8" if dtype in ("float4_e2m1fnx2", "float8_e8m0fnu") else dtype
        device = like.device
        return launcher().allocate(shape, name, -1 if device.platform == _CPU else device.local_hardware_id)

    def result(self, output: Any) -> Any:
        return self._jax.dlpack.from_dlpack(output)

    def stream(self, tensor: Any) -> int | None:
        device = tensor.device
        return None if device.platform == _CPU else int(device.get_stream_for_external_ready_events())

    def dtype_name(self, tensor: Any) -> str:
        return name_of(tensor.dtype)
