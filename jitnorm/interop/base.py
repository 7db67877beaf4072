"""The interface of frameworks: how an array library's tensors enter and leave a kernel call."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jitnorm.dispatch import Dispatcher


@cache
def name_of(dtype: Any) -> str:
    """The name of a NumPy dtype, cached because NumPy takes 2 us to compute it."""
    return str(dtype.name)


class Framework(ABC):
    """An array library. Dtypes are DLPack's names, such as ``bfloat16`` or ``float4_e2m1fnx2``."""

    # Whether tensors go into a call as they are and carry their stream.
    is_direct = False
    # Whether most tensors go in as they are, and others raise an error before anything runs.
    is_often_direct = False
    # The caller's current stream, where such tensors do not carry it.
    current_stream: Callable[[], int] | None = None
    # The default dtype of decoded values: float32 where the library has no bfloat16.
    float_dtype = "bfloat16"

    def __init__(self) -> None:
        # Types of arguments that are first passed as they are, including None.
        self.types: set[type] = {type(None)}

    @abstractmethod
    def owns(self, tensor: Any) -> bool:
        """Whether an object of the library is one of its tensors."""

    def is_plain(self, kind: type) -> bool:
        """Whether tensors of a type consist only of memory, shape and strides."""
        return True

    def admits(self, tensors: tuple[Any, ...], written: Sequence[Any]) -> bool:
        """Whether tensors, or None in their place, can go into a call as they are now, and are all of `types`.

        If so, also records that the call writes those in `written`.
        """
        return self.types.issuperset(map(type, tensors))

    def note_written(self, tensors: Sequence[Any]) -> None:
        """Record with the library that a kernel writes tensors."""
        return

    def makes_calls_of(self, tensors: Sequence[Any]) -> bool:
        """Whether the framework makes calls of such tensors itself: they may have a shape but no memory."""
        return False

    def call(self, dispatcher: Dispatcher, tensors: tuple[Any, ...], scalars: tuple[float, ...]) -> Any:
        """Make a call in the framework's own way and return the result of `ops.run.run`; None if it does not."""
        return None

    @abstractmethod
    def argument(self, name: str, tensor: Any, is_output: bool) -> Any:
        """Convert `tensor` to an argument of a call; TypeError, naming the argument, if it cannot be passed."""

    def refusal(self, tensor: Any, is_output: bool) -> str | None:
        """The reason why `tensor` cannot be passed, and what to pass instead; None if it can."""
        return None

    def gradient_refusal(self, tensor: Any, is_output: bool) -> str | None:
        """The part of `refusal` that also holds for tensors without memory."""
        return None

    def tangent_refusal(self, tensor: Any) -> str | None:
        """The part of that which holds for ops with gradients, too."""
        return None

    @abstractmethod
    def empty(self, shape: tuple[int, ...], dtype: str, like: Any) -> Any:
        """Allocate an uninitialised output on the device of `like`; uint8 where the library lacks `dtype`."""

    def maker(self, shape: tuple[int, ...], dtype: str, like: Any) -> Callable[[Any], Any]:
        """A function that allocates such outputs, given a tensor with the `likeness` of `like`."""
        return lambda tensor: self.empty(shape, dtype, tensor)

    def likeness(self, tensor: Any) -> Hashable:
        """The properties of a tensor that determine its outputs: shape, dtype and device."""
        return tuple(tensor.shape), tensor.dtype, tensor.device

    def register_node(self, kind: type, flatten: Callable[[Any], Any], unflatten: Callable[[Any, Any], Any]) -> None:
        """Make a class that holds tensors known to the framework's functions of trees, if it has any; once.

        Args:
            kind: the class.
            flatten: gives the tensors of an object, and what else it is.
            unflatten: makes an object of these two.
        """
        return

    def moved(self, tensor: Any, device: Any) -> Any:
        """The tensor on another device of the library; TypeError if its arrays stay where they are."""
        if not hasattr(tensor, "to_device"):
            raise TypeError(f"device: {type(tensor).__module__} moves no arrays; make new ones in the other place")
        return tensor.to_device(device)

    def to_bytes(self, tensor: Any) -> bytes:
        """The elements in row-major order, copied to the host; TypeError if the library cannot."""
        if not hasattr(tensor, "tobytes"):
            raise TypeError(f"{type(tensor).__module__} does not copy tensors to bytes")
        return bytes(tensor.tobytes())

    def allow_unpickling(self, function: Callable[..., Any]) -> None:
        """Let the library's own loading of files, where it runs no foreign code, call a function."""
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

    def result(self, output: Any) -> Any:
        """Convert an output that `empty` allocated to what the caller gets."""
        return output

    def permuted(self, tensor: Any, shape: tuple[int, ...], order: tuple[int, ...]) -> Any:
        """View a dense tensor with another shape, then permute its dimensions."""
        return tensor.reshape(shape).transpose(order)

    def stream(self, tensor: Any) -> int | None:
        """The caller's current stream as an integer; None if the call finds it itself."""
        return None if self.current_stream is None else self.current_stream()

    def dtype_name(self, tensor: Any) -> str:
        """The DLPack name of a tensor's dtype."""
        return str(tensor.dtype)
