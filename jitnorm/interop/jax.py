"""JAX arrays. With jax-tvm-ffi, calls are JAX programs; otherwise they are made here, outside of `jax.jit`.

Arrays are immutable, so the latter allocate outputs with the launcher, and JAX then adopts their memory.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jitnorm.ffi import tvm_ffi
from jitnorm.interop import jax_programs, jax_refusals
from jitnorm.interop.base import Framework, name_of
from jitnorm.launcher import launcher

if TYPE_CHECKING:
    from jitnorm.dispatch import Dispatcher


class Jax(Framework):
    """Arrays of `jax`."""

    def __init__(self) -> None:
        super().__init__()
        self._jax: Any = sys.modules["jax"]
        # Types of arrays that are not traced.
        self._concrete: set[type] = set()
        self._nodes: set[type] = set()

    def owns(self, tensor: Any) -> bool:
        return isinstance(tensor, self._jax.Array)

    def makes_calls_of(self, tensors: Sequence[Any]) -> bool:
        return True

    def call(self, dispatcher: Dispatcher, tensors: tuple[Any, ...], scalars: tuple[float, ...]) -> Any:
        outputs, filled = dispatcher.positions, list(tensors)
        for position in outputs:
            if tensors[position] is not None:
                return jax_refusals.check_written(dispatcher, tensors)
        inputs = [tensor for tensor in tensors if tensor is not None]
        if not jax_programs.is_available() or len(inputs) + len(outputs) < len(tensors):
            return None
        is_traced = False
        # Checked once per type, because it takes 0.5 us.
        if not self._concrete.issuperset(map(type, inputs)):
            is_traced = any(isinstance(tensor, self._jax.core.Tracer) for tensor in inputs)
            if is_traced:
                inputs = jax_refusals.constants(dispatcher, inputs)
            elif not all(isinstance(tensor, self._jax.Array) for tensor in inputs):
                return None
            else:
                self._concrete.update(map(type, inputs))
        try:
            run = jax_programs.program(dispatcher, scalars, self._device_of(inputs[0]), is_traced)
        except TypeError:
            jax_refusals.check_numbers(dispatcher, scalars)
            raise
        for position, result in zip(outputs, run(*inputs), strict=True):
            filled[position] = result
        return tuple(filled)

    def register_node(self, kind: type, flatten: Callable[[Any], Any], unflatten: Callable[[Any, Any], Any]) -> None:
        if kind not in self._nodes:
            self._jax.tree_util.register_pytree_node(kind, flatten, lambda rest, leaves: unflatten(leaves, rest))
            self._nodes.add(kind)

    def to_bytes(self, tensor: Any) -> bytes:
        return np.asarray(tensor).tobytes()

    def argument(self, name: str, tensor: Any, is_output: bool) -> Any:
        return tensor if is_output else tvm_ffi().from_dlpack(tensor.__dlpack__(stream=self.stream(tensor)))

    def refusal(self, tensor: Any, is_output: bool) -> str | None:
        if is_output:
            return jax_refusals.IMMUTABLE
        if isinstance(tensor, self._jax.core.Tracer):
            remedy = "" if jax_programs.is_available() else ", pip install 'jitnorm[jax]'"
            return (
                f"is traced by jax.jit, where all tensors have to be JAX arrays{remedy}, and neither an output nor "
                "`stream` is given; call the op outside"
            )
        return None

    def empty(self, shape: tuple[int, ...], dtype: str, like: Any) -> Any:
        return launcher().allocate(shape, jax_programs.stored_dtype(dtype), jax_programs.ordinal_of(like.device))

    def result(self, output: Any) -> Any:
        return self._jax.dlpack.from_dlpack(output)

    def stream(self, tensor: Any) -> int | None:
        device = tensor.device
        on_cpu = jax_programs.ordinal_of(device) < 0
        return None if on_cpu else int(device.get_stream_for_external_ready_events())

    def dtype_name(self, tensor: Any) -> str:
        return name_of(tensor.dtype)

    def _device_of(self, tensor: Any) -> Any:
        """The device of an array; for a traced one, JAX's default device."""
        if not isinstance(tensor, self._jax.core.Tracer):
            (device, *_) = tensor.devices()
            return device
        default = self._jax.config.jax_default_device
        if default is None or isinstance(default, str):
            return self._jax.local_devices(backend=default)[0]
        return default
