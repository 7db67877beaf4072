"""What all ops share: converting arguments, choosing the stream, calling the dispatcher."""

from __future__ import annotations

from operator import is_
from typing import TYPE_CHECKING, Any

from jitnorm.interop import check_passable, framework_of, tried

if TYPE_CHECKING:
    from collections.abc import Hashable

    from jitnorm.dispatch import Dispatcher, OutputMakers
    from jitnorm.interop.base import Framework


def run(
    dispatcher: Dispatcher, tensors: tuple[Any, ...], scalars: tuple[float, ...], stream: Any, allocates: bool
) -> tuple[Any, ...]:
    """Run an op on the caller's stream.

    Args:
        dispatcher: the op's, for the options of this call.
        tensors: those that the dispatcher takes, in its order, the input first; outputs that are None are allocated.
        scalars: the op's numbers, such as its epsilon.
        stream: what the caller gave: None, an integer, or a stream object of a framework.
        allocates: whether an output is None; the op knows it at less cost than a search.

    Returns:
        `tensors`, with the outputs that were None.
    """
    # A try that fails costs 3 to 5 us, so after tensors that had to be converted the next go the long way at once.
    framework = tried.get(type(tensors[0]))
    if framework is not None and dispatcher.takes_as_given and framework.types.issuperset(map(type, tensors)):
        on = () if stream is None else (stream_handle(stream),)
        try:
            written = dispatcher.given_outputs(tensors) if allocates else dispatcher.outputs_among(tensors)
            if framework.admits(tensors, written):
                filled = _with_outputs(dispatcher, tensors) if allocates else tensors
                if stream is None and framework.current_stream is not None:
                    on = (framework.current_stream(),)
                if dispatcher.launch(*filled, *scalars, *on) is None:
                    return filled
        except (BufferError, RuntimeError, TypeError, ValueError):
            pass  # nothing has run; the long way raises it again, in the caller's words
    try:
        return _run(dispatcher, tensors, scalars, stream, allocates)
    except (TypeError, ValueError) as error:
        name, _, rest = str(error).partition(":")
        if name not in dispatcher.aliases:
            raise
        raise type(error)(f"{dispatcher.aliases[name]}:{rest}") from None


def _run(
    dispatcher: Dispatcher, given: tuple[Any, ...], scalars: tuple[float, ...], stream: Any, allocates: bool
) -> tuple[Any, ...]:
    framework = framework_of(given[0], dispatcher.names[0])
    if stream is None:
        made = framework.call(dispatcher, given, scalars)
        if made is not None:
            return tuple(made)
    _check_passable(dispatcher, given)
    tensors = given
    if allocates:
        tensors = _with_outputs(dispatcher, given)
        _check_passable(dispatcher, tensors)  # what is new, too: a mode of the caller's may have made it
    converted = [
        None if tensor is None else _converted(tensor, name, position in dispatcher.outputs)
        for position, (name, tensor) in enumerate(zip(dispatcher.names, tensors, strict=True))
    ]
    dispatcher.run(*converted, *scalars, framework.stream(given[0]) if stream is None else stream_handle(stream))
    dispatcher.takes_as_given = all(map(is_, converted, tensors))
    for tensor in dispatcher.given_outputs(given) if allocates else dispatcher.outputs_among(given):
        framework_of(tensor, "").note_written((tensor,))
    return tuple(
        framework.result(tensor) if tensor is not given[position] else tensor for position, tensor in enumerate(tensors)
    )


def run_named(dispatcher: Dispatcher, tensors: dict[str, Any], scalars: tuple[float, ...], stream: Any) -> Any:
    """`run` with tensors by their names, for ops with many that are optional.

    Args:
        dispatcher: the op's, for the options of this call.
        tensors: those that the caller gave, the others None or left out.
        scalars: the op's numbers.
        stream: what the caller gave.

    Returns:
        every tensor of the call by its name, outputs included.

    Raises:
        ValueError: a tensor is given that the options leave no use for.
    """
    for name, tensor in tensors.items():
        if tensor is not None and name not in dispatcher.names:
            raise ValueError(f"{name}: is given, but the other options leave no use for it; pass None")
    taken = tuple(map(tensors.get, dispatcher.names))
    allocates = any(taken[position] is None for position in dispatcher.outputs)
    return dict(zip(dispatcher.names, run(dispatcher, taken, scalars, stream, allocates), strict=True))


def _check_passable(dispatcher: Dispatcher, tensors: tuple[Any, ...]) -> None:
    """Raise TypeError, naming the argument, if a tensor has no memory that a kernel could read or write."""
    names: dict[int, str] = {}
    for position, (name, tensor) in enumerate(zip(dispatcher.names, tensors, strict=True)):
        if tensor is not None:
            # What is written in place has the name that it has as an input.
            check_passable(tensor, names.setdefault(id(tensor), name), position in dispatcher.outputs)


def _converted(tensor: Any, name: str, is_output: bool) -> Any:
    """What stands for a tensor in the call."""
    try:
        return framework_of(tensor, name).argument(name, tensor, is_output)
    except (BufferError, RuntimeError) as error:
        raise TypeError(f"{name}: cannot be passed by DLPack: {error}") from error


def _with_outputs(dispatcher: Dispatcher, tensors: tuple[Any, ...]) -> tuple[Any, ...]:
    """The tensors, with the outputs that are None allocated."""
    first = tensors[0]
    framework = framework_of(first, dispatcher.names[0])
    if len(dispatcher.leaders) == 1:
        call: Hashable = framework.likeness(first)
    else:
        call = framework.likeness(first), *[_shape_of(dispatcher, tensors, leader) for leader in dispatcher.leaders]
    makers = dispatcher.makers.get(call)
    if makers is None:
        makers = dispatcher.remember_makers(call, _makers(dispatcher, framework, tensors))
    filled = list(tensors)
    for position, make in makers:
        if filled[position] is None:
            filled[position] = make(first)
    return tuple(filled)


def _makers(dispatcher: Dispatcher, framework: Framework, tensors: tuple[Any, ...]) -> OutputMakers:
    first = tensors[0]
    shapes = tuple([_shape_of(dispatcher, tensors, leader) for leader in dispatcher.leaders])
    outputs = dispatcher.outputs_of(shapes, framework.dtype_name(first))
    return tuple((position, framework.maker(shape, dtype, first)) for position, (shape, dtype) in outputs.items())


def _shape_of(dispatcher: Dispatcher, tensors: tuple[Any, ...], position: int) -> tuple[int, ...]:
    """The shape of an input that others take theirs from."""
    name, tensor = dispatcher.names[position], tensors[position]
    framework_of(tensor, name)  # refuses what is no tensor
    shape: tuple[int, ...] = tensor.shape
    if not shape:
        raise ValueError(f"{name}: has no dimensions; expected (..., hidden_size)")
    return shape


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
