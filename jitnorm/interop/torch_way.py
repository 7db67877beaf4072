"""The fast path for torch tensors: functions of the launcher that make all checks, allocate outputs and launch.

In Python they would add 1 us to a call; see docs/measured.md.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jitnorm.interop.base import Framework, Way, stream_handle

if TYPE_CHECKING:
    from jitnorm.dispatch import Dispatcher

# What a call returns without a function in Python: an argument of the dispatcher, or a tuple of several.
_RETURNED = re.compile(r"\{\w+\}|\(\{\w+\}(, \{\w+\})+\)")
_TUPLE, _SINGLE, _NONE, _SHAPE = 0, 1, 2, -1  # as in kernels/launcher/torch_call.h
# The launcher leaves calls that are not usual as they were; the long way then says why, in the caller's terms.
_TEXT = """
def call({parameters}):
    made = _call({arguments})
    if made is None:
        return _otherwise({parameters})
    return {result}
"""


def usual_way(torch: Any, framework: Framework, dispatcher: Dispatcher) -> Way:
    """`Framework.way` for torch.

    Args:
        torch: the module.
        framework: torch's framework, whose `types` are the types that may be passed.
        dispatcher: the op's dispatcher.
    """
    names = dispatcher.outputs.names

    def put(named: dict[str, Any], made: tuple[Any, ...]) -> bool:
        named.update(zip(names, made, strict=False))
        return True

    arguments = ", ".join((*(f"named['{name}']" for name in dispatcher.arguments), "stream"))
    scope = {"_put": put, "_otherwise": lambda named, stream: False}
    way: Way = generated(torch, framework, dispatcher, "named, stream", arguments, "_put(named, made)", scope)
    return way


def direct_call(
    torch: Any, framework: Framework, dispatcher: Dispatcher, parameters: tuple[str, ...], result: str,
    scope: Mapping[str, Any],
) -> Callable[..., Any]:  # fmt: skip
    """`Framework.direct` for torch; the arguments are those of `usual_way` and of `Framework.direct`."""
    returned = re.findall(r"\w+", result) if re.fullmatch(_RETURNED, result) else []
    if result == "None" or (returned and set(returned) <= set(dispatcher.names)):
        kind = _NONE if result == "None" else _TUPLE if result[0] == "(" else _SINGLE
        return usual_call(torch, framework, dispatcher, parameters, returned, kind, scope["_otherwise"])
    return composed_call(torch, framework, dispatcher, parameters, result, scope)


def composed_call(
    torch: Any, framework: Framework, dispatcher: Dispatcher, parameters: tuple[str, ...], result: str,
    scope: Mapping[str, Any],
) -> Callable[..., Any]:  # fmt: skip
    """`direct_call` with any result."""
    made = {name: f"made[{place}]" for place, name in enumerate((*dispatcher.outputs.names, "shape"))}
    returned = result.format_map({**{name: name for name in parameters}, **made})
    arguments = (*(name if name in parameters else "None" for name in dispatcher.arguments), "stream")
    passed = ", ".join((*parameters, "stream"))
    return generated(torch, framework, dispatcher, passed, ", ".join(arguments), returned, scope)


def generated(
    torch: Any, framework: Framework, dispatcher: Dispatcher, parameters: str, arguments: str, result: str,
    scope: Mapping[str, Any],
) -> Callable[..., Any]:  # fmt: skip
    """A function of these parameters that returns the result, which may also use the names of the scope."""
    returned = (*dispatcher.outputs.names, "shape")
    call = usual_call(torch, framework, dispatcher, dispatcher.arguments, returned, _TUPLE, None)
    names = {**scope, "_call": call}
    exec(_TEXT.format(parameters=parameters, arguments=arguments, result=result), names)
    made: Callable[..., Any] = names["call"]
    return made


def usual_call(
    torch: Any, framework: Framework, dispatcher: Dispatcher, parameters: Sequence[str], returned: Sequence[str],
    kind: int, otherwise: Callable[..., Any] | None,
) -> Callable[..., Any]:  # fmt: skip
    """A function of the launcher that makes a dispatcher's usual calls.

    Args:
        torch: as of `usual_way`.
        framework: as there.
        dispatcher: as there.
        parameters: the names of its parameters, before the stream.
        returned: the names of the arguments that it returns; ``shape`` for the shape of the first tensor.
        kind: how it returns them.
        otherwise: makes the other calls; without it, they return None.
    """
    outputs, order = dispatcher.outputs, [*parameters, "stream"]
    allocated = [name for name in outputs.names if name not in outputs.updated]

    def find_patterns(*leaders: Any) -> tuple[Any, ...] | None:
        """Tensors that outputs are allocated like, as the long way has remembered it."""
        likeness = framework.likeness(leaders[0])
        makers = outputs.makers.get((likeness, *(each.shape for each in leaders)) if leaders[1:] else likeness, {})
        found = tuple(getattr(makers.get(name), "pattern", None) for name in allocated)
        return None if any(each is None for each in found) else found

    objects = _objects(torch, framework, find_patterns, otherwise)
    given = [order.index(name) if name in order else -1 for name in (*dispatcher.arguments, "stream")]
    place_of = {"shape": _SHAPE, **{name: place for place, name in enumerate(dispatcher.arguments)}}
    places = ([place_of[name] for name in each] for each in (outputs.names, allocated, outputs.leaders, returned))
    address = dispatcher.make_torch_call(dispatcher.tensor_count, len(order), given, *places, kind, id(objects))
    made: Callable[..., Any] = ctypes.cast(address, ctypes.py_object).value
    return made


def _objects(
    torch: Any, framework: Framework, find_patterns: Callable[..., Any], otherwise: Callable[..., Any] | None
) -> tuple[Any, ...]:
    """Objects of Python and torch that the launcher needs, in the order of kernels/launcher/torch_call.h.

    Each check of torch's state takes 30 to 60 ns, its public equivalent several times that.
    """
    return (
        None, Exception, float, int, torch.Tensor, framework.types, torch.Tensor.is_neg, "requires_grad",
        torch._C._len_torch_dispatch_stack, torch._C._is_tracing, vars(torch.autograd.forward_ad), "_current_level",
        torch.is_grad_enabled, torch._C._increment_version, framework.note_written, find_patterns, torch.empty_like,
        stream_handle, otherwise, torch.Tensor.__dlpack_c_exchange_api__,
    )  # fmt: skip
