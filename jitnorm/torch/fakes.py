"""Calls of operators without values: they return the same shapes and raise the same errors as calls with values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from jitnorm.catalogue.op import Allocated, Op
from jitnorm.dispatch import Dispatcher
from jitnorm.interop import check_gradient, framework_of
from jitnorm.kernels.config import KernelConfig
from jitnorm.launcher import launcher
from jitnorm.outputs import Outputs


def faked(dispatcher: Dispatcher, named: Mapping[str, Any]) -> dict[str, Any]:
    """The outputs that a call allocates, by name, without values.

    Args:
        dispatcher: the op's, for the options of the call.
        named: the call's arguments by name; outputs that it writes may be given.

    Raises:
        ValueError: the call would raise it, too.
        TypeError: likewise, or autograd would not see the call.
    """
    for name in dispatcher.names:
        if name not in dispatcher.outputs.names:
            framework_of(named[name], name)  # raises TypeError unless it is a tensor
    _check_devices(dispatcher, named)
    check_gradients(dispatcher, named)
    written = {name: named[name] for name in dispatcher.outputs.names if named[name] is not None}
    all_given = len(written) == len(dispatcher.outputs.names)
    made = {} if all_given else fake_outputs(dispatcher, dispatcher.outputs, named)
    _check_launch(dispatcher, {**named, **made, **written})
    return made


def fake_outputs(dispatcher: Dispatcher, outputs: Outputs, named: Mapping[str, Any]) -> dict[str, Any]:
    """The outputs of a call, with the shapes and dtypes that it would allocate, without values.

    Args:
        dispatcher: the op's, for the options of the call.
        outputs: how they are allocated.
        named: the call's arguments by name.
    """
    try:
        leaders = [named[name] for name in outputs.leaders]
        framework = framework_of(leaders[0], outputs.leaders[0])
        # While torch traces, only the number of rows may be a symbol.
        shapes = [(*leader.shape[:-1], *map(int, leader.shape[-1:])) for leader in leaders]
        made = outputs.of(shapes, framework.dtype_name(leaders[0]))
    except (TypeError, ValueError) as error:
        raise dispatcher.for_caller(error) from None
    return {name: framework.empty(shape, dtype, leaders[0]) for name, (shape, dtype) in made.items()}


def _check_devices(dispatcher: Dispatcher, named: Mapping[str, Any]) -> None:
    """Raise ValueError unless all tensors of a call are on one device; kernels check that, but not for `meta`."""
    first = named[dispatcher.first]
    for name in dispatcher.names:
        tensor = named.get(name)
        if tensor is not None and tensor.device != first.device:
            raise ValueError(
                f"{name}: is on {tensor.device}, expected {first.device}, where {dispatcher.first} is; move it there"
            )


def check_gradients(dispatcher: Dispatcher, named: Mapping[str, Any]) -> None:
    """Raise TypeError if a tensor of a call requires a gradient."""
    for name in dispatcher.names:
        if named.get(name) is not None:
            check_gradient(named[name], name, name in dispatcher.outputs.names)


def check_given_outputs(dispatcher: Dispatcher, named: Mapping[str, Any]) -> None:
    """Raise TypeError unless a call that writes to given outputs has all of them."""
    for name in dispatcher.outputs.names:
        if named[name] is None:
            raise TypeError(f"{name}: is None; expected a tensor")


def _check_launch(dispatcher: Dispatcher, named: Mapping[str, Any]) -> None:
    """Raise the launcher's error for a call, unless it depends on sizes that are unknown while tracing."""
    device = named[dispatcher.first].device
    ordinal = _ordinal(device.type, device.index or 0)
    if ordinal < 0 and device.type != "cpu":
        dispatcher = _on_any_target(dispatcher)
    places: dict[int, int] = {}
    arguments: list[Any] = []
    for name in dispatcher.names:
        tensor = named[name]
        sizes = _hints((*tensor.shape, *tensor.stride(), tensor.storage_offset()))
        if sizes is None:
            return
        place = places.setdefault(tensor.untyped_storage()._cdata, len(places))
        dtype = framework_of(tensor, name).dtype_name(tensor)
        arguments.append(_stand_in(name, sizes, dtype, ordinal, place))
    numbers = [0.0 for _ in dispatcher.arguments[dispatcher.tensor_count :]]
    try:
        dispatcher.check(*arguments, *numbers)
    except (TypeError, ValueError) as error:
        raise dispatcher.for_caller(error) from None


def _hints(sizes: Sequence[Any]) -> tuple[int, ...] | None:
    """The sizes in the call that is traced; None if one of them is unknown.

    The program does not depend on them: each of its calls is checked when it runs.
    """
    found = [size if isinstance(size, int) else size.node.hint if size.node.has_hint() else None for size in sizes]
    known = [size for size in found if size is not None]
    return tuple(map(int, known)) if len(known) == len(found) else None


def _stand_in(name: str, sizes: tuple[int, ...], dtype: str, ordinal: int, place: int) -> Any:
    """A stand-in for a tensor of that shape, then those strides and that offset."""
    dims = len(sizes) // 2
    try:
        return launcher().stand_in_view(sizes[:dims], sizes[dims:-1], dtype, ordinal, place, sizes[-1])
    except ValueError:
        raise ValueError(f"{name}: dtype is {dtype}, which no kernel takes; convert it") from None


@cache
def _ordinal(kind: str, index: int) -> int:
    """The ordinal of a CUDA device; -1 for the CPU and for absent devices, whose target is unknown."""
    try:
        return index if kind == "cuda" and index < launcher().device_count() else -1
    except RuntimeError:
        return -1


@cache
def _on_any_target(dispatcher: Dispatcher) -> Dispatcher:
    """A dispatcher of the same calls, without options that only some targets support."""
    return Dispatcher(dispatcher.op, None, dispatcher.options)


def with_bytes(op: Op) -> Op:
    """The op with E2M1 codes allocated as bytes: torch's compilers and exported programs lack their dtype."""

    def allocated(config: KernelConfig) -> Allocated:
        return {"y_fp4": (None, "uint8"), **(op.allocated(config) if op.allocated else {})}

    return replace(op, allocated=allocated)
