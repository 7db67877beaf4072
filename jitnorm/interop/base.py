"""Framework: how the tensors of one array library enter and leave a kernel call."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jitnorm.dispatch import Dispatcher


@cache
def name_of(dtype: Any) -> str:
    """The name of one of NumPy's dtypes, which it takes 2 us to make."""
    return str(dtype.name)


class Framework(ABC):
    """One array library. Dtypes are DLPack's names, such as ``bfloat16`` or ``float4_e2m1fnx2``."""

    # Whether tensors go into a call as they are and bring their stream along.
    is_direct = False
    # Whether most go in as they are, and the others raise an error before anything has run.
    is_often_direct = False
    # The stream that the caller is on, where such tensors do not bring it along.
    current_stream: Callable[[], int] | None = None
    # Whether it makes calls in its own way, also with tensors that have a shape and no memory yet.
    makes_calls = False
    # What decoded values are unless told otherwise: float32 where the library has no bfloat16 of its own.
    float_dtype = "bfloat16"

    def __init__(self) -> None:
        # The types of arguments that are tried as they are; None stands for itself.
        self.types: set[type] = {type(None)}

    @abstractmethod
    def owns(self, tensor: Any) -> bool:
        """Whether an object of the library is one of its tensors."""

    def is_plain(self, kind: type) -> bool:
        """Whether tensors of that type are nothing but memory, its shape and strides."""
        return True

    def admits(self, tensors: tuple[Any, ...], written: Sequence[Any]) -> bool:
        """Whether tensors of `types` can go into a call as they are now, as far as only the library can tell.

        If so, it takes note that the call writes those in `written`.
        """
        return True

    def note_written(self, tensors: Sequence[Any]) -> None:
        """Tell the library that a kernel writes tensors."""
        return

    def call(self, dispatcher: Dispatcher, tensors: tuple[Any, ...], scalars: tuple[float, ...]) -> Any:
        """What `ops.run.run` returns for a call that the framework makes in its own way; None if it does not."""
        return None

    @abstractmethod
    def argument(self, name: str, tensor: Any, is_output: bool) -> Any:
        """What stands for `tensor` in a call; TypeError, naming the argument, if it cannot be passed."""

    def refusal(self, tensor: Any, is_output: bool) -> str | None:
        """Why `tensor` cannot be passed at all, and what to pass instead; None if it can."""
        return None

    @abstractmethod
    def empty(self, shape: tuple[int, ...], dtype: str, like: Any) -> Any:
        """A new uninitialised output on the device of `like`; uint8 where the library lacks `dtype`."""

    def maker(self, shape: tuple[int, ...], dtype: str, like: Any) -> Callable[[Any], Any]:
        """What makes outputs of that shape and dtype, given a tensor with the `likeness` of `like`."""
        return lambda tensor: self.empty(shape, dtype, tensor)

    def likeness(self, tensor: Any) -> Hashable:
        """What of a tensor decides the outputs that are made for it: its shape, dtype and device."""
        return tuple(tensor.shape), tensor.dtype, tensor.device

    def merge_last_two(self, tensor: Any) -> Any:
        """The tensor with its last two dimensions made one; a copy only where they are not contiguous."""
        *leading, a, b = tensor.shape
        return tensor.reshape((*leading, a * b))

    def result(self, output: Any) -> Any:
        """What the caller gets for an output that `empty` made."""
        return output

    def permuted(self, tensor: Any, shape: tuple[int, ...], order: tuple[int, ...]) -> Any:
        """A dense tensor seen with another shape, its dimensions then in another order."""
        return tensor.reshape(shape).transpose(order)

    def stream(self, tensor: Any) -> int | None:
        """The stream that the caller is on, as an integer; None if the call finds it by itself."""
        return None if self.current_stream is None else self.current_stream()

    def dtype_name(self, tensor: Any) -> str:
        """The DLPack name of a tensor's dtype."""
        return str(tensor.dtype)
