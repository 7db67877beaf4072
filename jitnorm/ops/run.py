"""Runs the calls of all ops: the fast path into the launcher, and the slow path for all other calls."""

from __future__ import annotations

from operator import is_
from typing import TYPE_CHECKING, Any, TypeVar

from jitnorm.interop import check_given, converted_tensors, framework_of, tried
from jitnorm.ops.caller import in_caller_s_terms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jitnorm.dispatch import Dispatcher
    from jitnorm.interop.form import Step

# The type of a framework's tensors: calls return the type that they are given.
Tensor = TypeVar("Tensor")


def run(dispatcher: Dispatcher, named: dict[str, Any], stream: Any) -> dict[str, Any]:
    """Run an op on the caller's stream.

    Args:
        dispatcher: the op's dispatcher for the options of this call.
        named: the arguments by name, tensors and numbers: all that the dispatcher takes; others are ignored. Outputs
            that are None are allocated.
        stream: as given by the caller: None, an integer, or a stream object of a framework.

    Returns:
        `named`, with all outputs.

    Raises:
        ValueError: a shape, dtype, device, stride or alignment that is not allowed.
        TypeError: an argument that is not a tensor of a supported framework, or tensors of two frameworks.
        ToolchainMissingError: the kernel is not cached and no compiler for it is installed.
    """
    kind = type(named[dispatcher.first])
    fast_path = dispatcher.fast_paths.get(kind)
    if fast_path is None and kind in tried:
        fast_path = dispatcher.fast_paths[kind] = tried[kind].fast_path(dispatcher)
    if fast_path is not None and fast_path(named, stream):
        return named
    try:
        return _run(dispatcher, named, stream)
    except (TypeError, ValueError) as error:
        known = {dispatcher.op.aliases.get(name, name): argument for name, argument in named.items()}
        raise in_caller_s_terms(dispatcher.for_caller(error), known) from None


def run_steps(steps: Sequence[Step], named: dict[str, Any], stream: Any) -> dict[str, Any]:
    """Run each launch of a call, given its arguments by the call's names."""
    for step in steps:
        dispatcher = step.dispatcher
        names = step.named(dispatcher.arguments)
        own = {argument: named[name] for argument, name in zip(dispatcher.arguments, names, strict=True)}
        made = run(dispatcher, own, stream)
        written = dispatcher.outputs.names
        named.update(zip(step.named(written), (made[name] for name in written), strict=True))
    return named


def _run(dispatcher: Dispatcher, named: dict[str, Any], stream: Any) -> dict[str, Any]:
    """Run calls that are new, need conversion, or are rejected."""
    arguments, names = dispatcher.in_order(named), dispatcher.names
    given, numbers = arguments[: len(names)], arguments[len(names) :]
    framework = framework_of(given[0], names[0])
    if stream is None:
        made = framework.call(dispatcher, given, numbers)
        if made is not None:
            return dict(zip(names, made, strict=True))
    check_given(names, given, dispatcher.positions)
    dispatcher.outputs.allocate(framework, named)
    tensors = dispatcher.in_order(named)[: len(names)]
    converted = converted_tensors(names, tensors, dispatcher.positions)
    dispatcher.run(*converted, *numbers, framework.stream_of(given[0], stream))
    dispatcher.takes_as_given = all(map(is_, converted, tensors))
    for position in dispatcher.positions:
        if given[position] is None:
            named[names[position]] = framework.result(tensors[position])
        else:
            framework_of(given[position], "").note_written((given[position],))
    return named
