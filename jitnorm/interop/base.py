"""The interface of frameworks: how an array library's tensors enter and leave a kernel call."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from jitnorm.interop.form import CallForm

if TYPE_CHECKING:
    from jitnorm.dispatch import Dispatcher

FastPath = Callable[[dict[str, Any], Any], bool]
"""Makes a call at once, given its arguments by name and its stream, as the caller gave it, and says whether it did so.

Outputs that are None are allocated. What it does not make it leaves as it was, for the slow path.
"""


@cache
def name_of(dtype: Any) -> str:
    """The name of a NumPy dtype, cached because NumPy takes 2 us to compute it."""
    return str(dtype.name)


class Framework(ABC):
    """An array library. Dtypes are DLPack's names, such as ``bfloat16`` or ``float4_e2m1fnx2``."""

    # Whether tensors are passed without conversion and carry their stream.
    is_direct = False
    # Whether most tensors are passed without conversion, and others raise an error before anything runs.
    is_often_direct = False
    # Whether it generates functions for calls: `generate`.
    generates = False
    # Whether tensors have no streams, modes or gradients of their own, so that those of a call's other tensors apply.
    goes_with_any = False
    # The caller's current stream, if such tensors do not carry it.
    current_stream: Callable[[], int] | None = None
    # The default dtype of decoded values: float32 where the library has no bfloat16.
    float_dtype = "bfloat16"

    def __init__(self) -> None:
        # Types of arguments that are first passed without conversion, including None.
        self.types: set[type] = {type(None)}

    @abstractmethod
    def owns(self, tensor: Any) -> bool:
        """Whether an object from the library is one of its tensors."""

    def is_plain(self, kind: type) -> bool:
        """Whether tensors of a type consist only of memory, shape and strides."""
        return True

    def fast_path(self, dispatcher: Dispatcher) -> FastPath:
        """The fast path for calls whose first tensor is the framework's: tensors are passed as they are."""

        def call(named: dict[str, Any], stream: Any) -> bool:
            # A failed attempt costs 3 to 5 us, so it is skipped if the last call's tensors had to be converted.
            if not dispatcher.takes_as_given:
                return False
            arguments = dispatcher.in_order(named)
            if not self.types.issuperset(map(type, arguments[: dispatcher.tensor_count])):
                return False
            written = dispatcher.outputs_among(arguments)
            try:
                dispatcher.outputs.allocate(self, named)
                if stream is not None or self.current_stream is not None:
                    facts = dispatcher.launch(*dispatcher.in_order(named), self.stream_of(arguments[0], stream))
                else:
                    facts = dispatcher.launch(*dispatcher.in_order(named))
                if facts is None:
                    return True
            except (BufferError, RuntimeError, TypeError, ValueError):
                pass
            named.update(zip(dispatcher.outputs.names, written, strict=True))
            return False

        return call

    def generate(self, dispatcher: Dispatcher, form: CallForm, otherwise: Callable[..., Any]) -> Callable[..., Any]:
        """Generate a function for calls in a fixed form, if it `generates` any.

        Args:
            dispatcher: makes the calls.
            form: their form.
            otherwise: makes the calls that are not usual.
        """
        raise NotImplementedError(f"{type(self).__name__} generates no functions")

    def note_written(self, tensors: Sequence[Any]) -> None:
        """Record with the library that a kernel writes tensors."""
        return

    def makes_calls_of(self, tensors: Sequence[Any]) -> bool:
        """Whether the framework makes calls with such tensors itself: they may have a shape but no memory."""
        return False

    def call(self, dispatcher: Dispatcher, tensors: tuple[Any, ...], scalars: tuple[float, ...]) -> Any:
        """Make a call in the framework's own way and return the result of `ops.run.run`; None if it has none."""
        return None

    def call_over_ranks(
        self, workspace: str, dispatcher: Dispatcher, inputs: Mapping[str, Any], eps: float, stream: Any,
        is_fused: bool,
    ) -> dict[str, Any]:  # fmt: skip
        """Make a call over ranks for tensors whose calls the framework makes itself, like `comm.calls.launch`.

        Args:
            workspace: its name.
            dispatcher: as there, like what follows.
            inputs: by name.
            eps: as there.
            stream: as there.
            is_fused: as there.

        Raises:
            TypeError: there is no such way.
        """
        kind = type(self).__name__
        raise TypeError(f"input: is an array of {kind}, which calls over ranks do not take; pass one of torch or NumPy")

    @abstractmethod
    def argument(self, name: str, tensor: Any, is_output: bool) -> Any:
        """Convert `tensor` to an argument of a call; TypeError, naming the argument, if it cannot be passed."""

    def refusal(self, tensor: Any, is_output: bool) -> str | None:
        """Why `tensor` cannot be passed, and what to pass instead; None if it can."""
        return None

    def has_shape(self, tensor: Any) -> bool:
        """Whether the tensor is known, at no cost, to have a shape, even if a call may reject it."""
        return False

    def gradient_refusal(self, tensor: Any, is_output: bool) -> str | None:
        """The part of `refusal` that also holds for tensors without memory."""
        return None

    def tangent_refusal(self, tensor: Any) -> str | None:
        """The part of `gradient_refusal` that also holds for ops with gradients."""
        return None

    @abstractmethod
    def empty(self, shape: tuple[int, ...], dtype: str, like: Any) -> Any:
        """Allocate an uninitialized output on the device of `like`; uint8 where the library lacks `dtype`."""

    def maker(self, shape: tuple[int, ...], dtype: str, like: Any) -> Callable[[Any], Any]:
        """A function that allocates such outputs, given a tensor with the `likeness` of `like`."""
        return lambda tensor: self.empty(shape, dtype, tensor)

    def likeness(self, tensor: Any) -> Hashable:
        """The properties of a tensor that determine its outputs: shape, dtype and device."""
        return tuple(tensor.shape), tensor.dtype, tensor.device

    def register_node(self, kind: type, flatten: Callable[[Any], Any], unflatten: Callable[[Any, Any], Any]) -> None:
        """Register a class that holds tensors with the framework's tree functions, if it has any; once.

        Args:
            kind: the class.
            flatten: splits an object into its tensors and the rest.
            unflatten: creates an object from these two.
        """
        return

    def moved(self, tensor: Any, device: Any) -> Any:
        """Move a tensor to another device of the library; TypeError if its arrays cannot be moved."""
        if not hasattr(tensor, "to_device"):
            raise TypeError(f"device: {type(tensor).__module__} cannot move arrays; create new ones there")
        return tensor.to_device(device)

    def as_scale(self, scale: Any, like: Any) -> Any:
        """A number or a tensor as a float32 scale on the device of another tensor; itself if the library cannot."""
        return scale

    def to_bytes(self, tensor: Any) -> bytes:
        """The elements in row-major order, copied to the host; TypeError if the library cannot."""
        if not hasattr(tensor, "tobytes"):
            raise TypeError(f"{type(tensor).__module__} does not copy tensors to bytes")
        return bytes(tensor.tobytes())

    def allow_unpickling(self, function: Callable[..., Any]) -> None:
        """Allow the library's restricted loading of files to call a function."""
        return

    def pickled(self, tensor: Any) -> Any:
        """The tensor, as bytes if the library cannot pickle its dtype."""
        return tensor

    def unpickled(self, tensor: Any, dtype: str) -> Any:
        """The inverse of `pickled`."""
        return tensor

    def merge_last_two(self, tensor: Any) -> Any:
        """Merge the last two dimensions; copies only if they are not contiguous."""
        *leading, a, b = tensor.shape
        return tensor.reshape((*leading, a * b))

    def with_dtype(self, tensor: Any, dtype: str) -> Any:
        """View a tensor's elements as another dtype of their size; the tensor itself where the library has no views."""
        return tensor

    def result(self, output: Any) -> Any:
        """Convert an output allocated by `empty` to the caller's result."""
        return output

    def reshaped(self, tensor: Any, shape: tuple[int, ...]) -> Any:
        """View a tensor with another shape; its dimensions that are split or merged must be dense."""
        return tensor.reshape(shape)

    def permuted(self, tensor: Any, shape: tuple[int, ...], order: tuple[int, ...]) -> Any:
        """View a dense tensor with another shape, then permute its dimensions."""
        return self.reshaped(tensor, shape).transpose(order)

    def stream(self, tensor: Any) -> int | None:
        """The caller's current stream as an integer; None if the call finds it itself."""
        return None if self.current_stream is None else self.current_stream()

    def stream_of(self, tensor: Any, stream: Any) -> int | None:
        """The stream of a call: the given one, or the caller's current one."""
        return self.stream(tensor) if stream is None else stream_handle(stream)

    def dtype_name(self, tensor: Any) -> str:
        """The DLPack name of a tensor's dtype."""
        return str(tensor.dtype)


def stream_handle(stream: Any) -> int:
    """A CUDA stream as an integer, from an integer, torch's or CuPy's streams or the `__cuda_stream__` protocol.

    Raises:
        TypeError: it is none of these.
    """
    if isinstance(stream, int):
        return stream
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    for attribute in ("cuda_stream", "ptr"):
        if hasattr(stream, attribute):
            return int(getattr(stream, attribute))
    raise TypeError(
        f"stream: is a {type(stream).__name__}; expected None, an integer, a torch or CuPy stream, "
        "or an object with __cuda_stream__"
    )
