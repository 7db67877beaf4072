"""torch tensors, which carry the DLPack exchange protocol, including their stream."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from jitnorm.ffi import tvm_ffi
from jitnorm.interop.base import FastPath, Framework
from jitnorm.interop.form import CallForm
from jitnorm.interop.torch_calls import fast_path, usual_call
from jitnorm.interop.torch_refusals import TorchRefusals

if TYPE_CHECKING:
    from jitnorm.dispatch import Dispatcher

_NAMES = {
    "float4_e2m1fnx2": "float4_e2m1fn_x2",
    "float8_e4m3fn": "float8_e4m3fn",
    "float8_e5m2": "float8_e5m2",
    "bfloat16": "bfloat16",
    "float16": "float16",
    "float32": "float32",
    "int8": "int8",
    "int32": "int32",
}


class Torch(Framework):
    """Tensors of `torch`."""

    generates = True

    def __init__(self) -> None:
        super().__init__()
        self.types.clear()  # None is not one of them
        torch: Any = sys.modules["torch"]
        tvm_ffi()
        # Tensors carry the protocol since torch 2.10; TVM-FFI has an add-on for older versions.
        self.is_direct = hasattr(torch.Tensor, "__dlpack_c_exchange_api__")
        self._torch = torch
        self._whole, self._strided = (torch.Tensor, torch.nn.Parameter), torch.strided
        self._nodes: set[type] = set()
        self._refusals = TorchRefusals(torch)
        self._increment_versions = torch._C._increment_version

    def owns(self, tensor: Any) -> bool:
        return isinstance(tensor, self._torch.Tensor)

    def is_plain(self, kind: type) -> bool:
        return self._refusals.is_plain(kind)

    def note_written(self, tensors: Sequence[Any]) -> None:
        try:
            self._increment_versions(tensors)
        except RuntimeError:  # a tensor of another library, or an inference tensor outside inference mode
            self._increment_versions([t for t in tensors if self.owns(t) and not t.is_inference()])

    def makes_calls_of(self, tensors: Sequence[Any]) -> bool:
        return self._refusals.is_recorded(tensors)

    def fast_path(self, dispatcher: Dispatcher) -> FastPath:
        return fast_path(self._torch, self, dispatcher)

    def generate(self, dispatcher: Dispatcher, form: CallForm, otherwise: Callable[..., Any]) -> Callable[..., Any]:
        return usual_call(self._torch, self, dispatcher, form, otherwise)

    def call(self, dispatcher: Dispatcher, tensors: tuple[Any, ...], scalars: tuple[float, ...]) -> Any:
        if not self.makes_calls_of(tensors) and not self._refusals.is_differentiated(tensors):
            return None
        if not all(tensor is None or self.owns(tensor) for tensor in tensors):
            return None
        # It builds on dispatchers and on this package, so it is loaded only now.
        routing = import_module("jitnorm.torch.routing")
        try:
            return routing.call(dispatcher, tensors, scalars)
        except AssertionError:  # torch's errors for tensors of different modes, or of a transform that has ended
            for name, tensor in zip(dispatcher.names, tensors, strict=True):
                reason = None if tensor is None else self.refusal(tensor, is_output=False)
                if reason:
                    raise TypeError(f"{name}: {reason}") from None
            raise

    def call_over_ranks(
        self, workspace: str, dispatcher: Dispatcher, inputs: Mapping[str, Any], eps: float, stream: Any,
        is_fused: bool,
    ) -> dict[str, Any]:  # fmt: skip
        if stream is not None:
            raise TypeError("stream: is given, but torch records the call and chooses the stream; pass None")
        made: dict[str, Any] = import_module("jitnorm.torch.ranks").call(workspace, dispatcher, inputs, eps, is_fused)
        return made

    def argument(self, name: str, tensor: Any, is_output: bool) -> Any:
        if not is_output and tensor.is_neg():
            tensor = self._unwrapped(tensor.resolve_neg())
        return self._unwrapped(tensor.detach()) if tensor.requires_grad and not self.is_direct else tensor

    def has_shape(self, tensor: Any) -> bool:
        return type(tensor) in self._whole and not tensor.is_nested and tensor.layout is self._strided

    def refusal(self, tensor: Any, is_output: bool) -> str | None:
        return self._refusals.refusal(tensor, is_output)

    def layout_refusal(self, tensor: Any) -> str | None:
        """The part of `refusal` that also holds for a tensor of which torch knows no more than its metadata."""
        return self._refusals.layout_refusal(tensor)

    def gradient_refusal(self, tensor: Any, is_output: bool) -> str | None:
        return self._refusals.gradient_refusal(tensor, is_output)

    def tangent_refusal(self, tensor: Any) -> str | None:
        return self._refusals.tangent_refusal(tensor)

    def register_node(self, kind: type, flatten: Callable[[Any], Any], unflatten: Callable[[Any, Any], Any]) -> None:
        # Unlike in JAX, None is a leaf in torch, which `torch.vmap` takes for a result that is not a tensor.
        def flattened(each: Any) -> tuple[list[Any], tuple[Any, ...]]:
            leaves, rest = flatten(each)
            is_there = tuple(leaf is not None for leaf in leaves)
            return [leaf for leaf in leaves if leaf is not None], (*rest, is_there)

        def restored(leaves: Iterable[Any], context: tuple[Any, ...]) -> Any:
            (*rest, is_there), given = context, iter(leaves)
            return unflatten([next(given) if is_leaf else None for is_leaf in is_there], tuple(rest))

        if kind not in self._nodes:
            self._torch.utils._pytree.register_pytree_node(
                kind, flattened, restored, serialized_type_name=f"jitnorm.{kind.__name__}",
                to_dumpable_context=list, from_dumpable_context=lambda rest: (*rest[:-1], tuple(rest[-1])),
            )  # fmt: skip
            self._nodes.add(kind)

    def empty(self, shape: tuple[int, ...], dtype: str, like: Any) -> Any:
        torch, kind = self._torch, self._dtype(dtype)
        try:
            return torch.empty(shape, dtype=kind, device=like.device)
        except NotImplementedError:  # in deterministic mode, torch fills what it allocates, but cannot fill FP4
            return torch.empty(shape, dtype=torch.uint8, device=like.device).view(kind)

    def maker(self, shape: tuple[int, ...], dtype: str, like: Any) -> Callable[[Any], Any]:
        unwrapped = self._unwrapped

        def make_new(tensor: Any) -> Any:
            return unwrapped(self.empty(shape, dtype, tensor))

        if not shape:
            return make_new
        # On an H200 machine `empty_like` takes 1.4 us, `empty` of a shape, dtype and device 2.9. Of an expanded element
        # it would take 0.05 more.
        pattern = unwrapped(self.empty(shape, dtype, like))
        if self.refusal(pattern, is_output=True):  # created by a mode that the next call may lack
            return make_new
        pattern.untyped_storage().resize_(0)  # a kept tensor must not hold memory, such as that of a CUDA graph's pool
        empty_like = self._torch.empty_like

        def make(tensor: Any) -> Any:
            try:
                return unwrapped(empty_like(pattern))
            except NotImplementedError:  # see `empty`
                return make_new(tensor)

        vars(make)["pattern"] = pattern  # for generated functions
        return make

    def _unwrapped(self, tensor: Any) -> Any:
        """A new tensor without what transforms of torch.func wrap it in: plain tensors have plain results."""
        functorch = self._torch._C._functorch
        while functorch.is_functorch_wrapped_tensor(tensor):
            tensor = functorch.get_unwrapped(tensor)
        return tensor

    def moved(self, tensor: Any, device: Any) -> Any:
        return tensor.to(device)

    def as_scale(self, scale: Any, like: Any) -> Any:
        if self.owns(scale):
            return scale.to(like.device, self._torch.float32)
        return self._torch.full((1,), scale, dtype=self._torch.float32, device=like.device)

    def to_bytes(self, tensor: Any) -> bytes:
        if reason := self.refusal(tensor.detach(), is_output=False):
            raise TypeError(reason)
        return bytes(tensor.detach().cpu().contiguous().reshape(-1).view(self._torch.uint8).numpy().tobytes())

    def allow_unpickling(self, function: Callable[..., Any]) -> None:
        self._torch.serialization.add_safe_globals([function])

    def pickled(self, tensor: Any) -> Any:
        return tensor.view(self._torch.uint8) if tensor.dtype.itemsize == 1 else tensor

    def unpickled(self, tensor: Any, dtype: str) -> Any:
        return self.with_dtype(tensor, dtype) if tensor.dtype.itemsize == 1 else tensor

    def with_dtype(self, tensor: Any, dtype: str) -> Any:
        return tensor.view(self._dtype(dtype))

    def likeness(self, tensor: Any) -> Hashable:
        return tensor.shape, tensor.dtype, tensor.device

    # Separate numbers take 0.4 us less than a tuple.
    def reshaped(self, tensor: Any, shape: tuple[int, ...]) -> Any:
        return tensor if tensor.shape == shape else tensor.view(*shape)

    def permuted(self, tensor: Any, shape: tuple[int, ...], order: tuple[int, ...]) -> Any:
        return self.reshaped(tensor, shape).permute(*order)

    def merge_last_two(self, tensor: Any) -> Any:
        return tensor.flatten(-2)

    def stream(self, tensor: Any) -> int | None:
        if self.is_direct or not tensor.is_cuda:
            return None
        return int(self._torch.cuda.current_stream(tensor.device).cuda_stream)

    def dtype_name(self, tensor: Any) -> str:
        return self._name(tensor.dtype)

    @cache  # noqa: B019 - there is one instance, for the life of the process
    def _name(self, dtype: Any) -> str:
        name = str(dtype).removeprefix("torch.")
        return "float4_e2m1fnx2" if name == "float4_e2m1fn_x2" else name

    @cache  # noqa: B019 - there is one instance, for the life of the process
    def _dtype(self, name: str) -> Any:
        return getattr(self._torch, _NAMES.get(name, "uint8"), self._torch.uint8)
