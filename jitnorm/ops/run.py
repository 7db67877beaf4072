"""What all ops share: converting arguments, choosing the stream, calling the dispatcher."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from jitnorm.interop import framework_of
from jitnorm.kernels.interface import evaluate

if TYPE_CHECKING:
    from jitnorm.dispatch import Dispatcher
    from jitnorm.interop.base import Framework


def run(dispatcher: Dispatcher, tensors: dict[str, Any], eps: float, stream: Any) -> tuple[Any, ...]:
    """Run an op on the caller's stream and return its outputs.

    Args:
        dispatcher: the op's, for the options of this call.
        tensors: by name, in the op's order, ``input`` first; outputs that are None are allocated.
        eps: the op's epsilon.
        stream: what the caller gave: None, an integer, or a stream object of a framework.
    """
    framework = framework_of(tensors["input"], "input")
    missing = [name for name in dispatcher.outputs if tensors[name] is None]
    if missing:
        _allocate(missing, dispatcher, framework, tensors)
    handle = None if stream is None else stream_handle(stream)
    if framework.is_direct:
        dispatcher(*tensors.values(), eps, handle)
    else:
        converted = [
            None if tensor is None else framework_of(tensor, name).argument(name, tensor, name in dispatcher.outputs)
            for name, tensor in tensors.items()
        ]
        dispatcher(*converted, eps, framework.stream(tensors["input"]) if handle is None else handle)
    return tuple(
        [framework.result(tensors[name]) if name in missing else tensors[name] for name in dispatcher.outputs]
    )


def _allocate(names: list[str], dispatcher: Dispatcher, framework: Framework, tensors: dict[str, Any]) -> None:
    input = tensors["input"]
    shape = tuple(input.shape)
    if not shape:
        raise ValueError("input: has no dimensions; expected (..., hidden_size)")
    for argument in dispatcher.output_arguments(shape[-1], framework.dtype_name(input)):
        if argument.name in names:
            extents = [shape[:-1] if e == "..." else (evaluate(e, prod(shape[:-1])),) for e in argument.shape]
            tensors[argument.name] = framework.empty(sum(extents, ()), argument.dtypes[0], input)


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

