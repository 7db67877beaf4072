"""Runs the calls of all ops: the fast path into the launcher, and the slow path for calls it does not take directly."""

from __future__ import annotations

from operator import is_
from typing import TYPE_CHECKING, Any, TypeVar

from jitnorm.dispatch import in_words_of
from jitnorm.interop import check_tensors, converted_tensors, direct, framework_of, tried

if TYPE_CHECKING:
    from jitnorm.dispatch import Dispatcher
    from jitnorm.interop.base import Framework

# The type of the tensors of a framework: calls return what they are given.
Tensor = TypeVar("Tensor")


def run(dispatcher: Dispatcher, named: dict[str, Any], stream: Any) -> dict[str, Any]:
    """Run an op on the caller's stream.

    Args:
        dispatcher: the op's, for the options of this call.
        named: the arguments by name, tensors and numbers: all that the dispatcher takes, and perhaps others, which are
            ignored. Outputs that are None are allocated.
        stream: what the caller gave: None, an integer, or a stream object of a framework.

    Returns:
        `named`, with all outputs.

    Raises:
        ValueError: a shape, dtype, device, stride or alignment that is not allowed.
        TypeError: an argument that is no tensor of a known framework.
    """
    arguments = dispatcher.in_order(named)
    admits = direct.get(type(arguments[0]))
    if admits is not None and stream is None:
        written = dispatcher.outputs_among(arguments)
        for tensor in written:
            if tensor is None:
                break
        else:
            # The usual call goes straight to the launcher; see docs/measured.md.
            try:
                if admits(arguments[: dispatcher.tensor_count], written) and dispatcher.launch(*arguments) is None:
                    return named
            except (BufferError, RuntimeError, TypeError, ValueError):
                pass  # nothing has run; the long way raises it again, in the caller's words
    # A try that fails costs 3 to 5 us, so after tensors that had to be converted the next go the long way at once.
    framework = tried.get(type(arguments[0]))
    if (
        framework is not None
        and dispatcher.takes_as_given
        and _has_run(dispatcher, framework, arguments, named, stream)
    ):
        return named
    try:
        return _run(dispatcher, named, stream)
    except (TypeError, ValueError) as error:
        raise in_words_of(dispatcher.op, error) from None


def _has_run(
    dispatcher: Dispatcher, framework: Framework, arguments: tuple[Any, ...], named: dict[str, Any], stream: Any
) -> bool:
    """Whether the call has been made with tensors as they are, allocating what is None."""
    written = dispatcher.outputs_among(arguments)
    given = [tensor for tensor in written if tensor is not None]
    try:
        if not framework.admits(arguments[: dispatcher.tensor_count], given):
            return False
        if len(given) < len(written):
            dispatcher.outputs.allocate(framework, named)
            arguments = dispatcher.in_order(named)
        if stream is None and framework.current_stream is None:
            facts = dispatcher.launch(*arguments)
        else:
            facts = dispatcher.launch(*arguments, _stream_of(framework, arguments[0], stream))
        if facts is None:
            return True
    except (BufferError, RuntimeError, TypeError, ValueError):
        pass
    named.update(zip(dispatcher.outputs.names, written, strict=True))  # the framework may have its own way of the call
    return False


def run_with_amax(dispatcher: Dispatcher, named: dict[str, Any], stream: Any) -> dict[str, Any]:
    """`run`, after the launch that finds the largest magnitude of the tensor, if a scale is found from it."""
    before = dispatcher.before
    if before is not None:
        named["amax"] = run(before, {name: named.get(name) for name in before.arguments}, stream)["amax"]
    return run(dispatcher, named, stream)


def _run(dispatcher: Dispatcher, named: dict[str, Any], stream: Any) -> dict[str, Any]:
    """The way of calls that are new, that need conversion, or that are refused."""
    arguments, names = dispatcher.in_order(named), dispatcher.names
    given, numbers = arguments[: len(names)], arguments[len(names) :]
    framework = framework_of(given[0], names[0])
    if stream is None:
        made = framework.call(dispatcher, given, numbers)
        if made is not None:
            return dict(zip(names, made, strict=True))
    check_tensors(names, given, dispatcher.positions)
    dispatcher.outputs.allocate(framework, named)
    tensors = dispatcher.in_order(named)[: len(names)]
    converted = converted_tensors(names, tensors, dispatcher.positions)
    dispatcher.run(*converted, *numbers, _stream_of(framework, given[0], stream))
    dispatcher.takes_as_given = all(map(is_, converted, tensors))
    for position in dispatcher.positions:
        if given[position] is None:
            named[names[position]] = framework.result(tensors[position])
        else:
            framework_of(given[position], "").note_written((given[position],))
    return named


def _stream_of(framework: Framework, tensor: Any, stream: Any) -> int | None:
    """The stream of a call: the one that was given, or the caller's current one."""
    return framework.stream(tensor) if stream is None else stream_handle(stream)


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
