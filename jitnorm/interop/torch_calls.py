"""The fast path for torch tensors: functions of the launcher that make all checks, allocate outputs and launch.

In Python they would add 1 us to a call; see docs/host.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from jitnorm.interop.base import FastPath, Framework, stream_handle
from jitnorm.interop.form import CallForm, Step
from jitnorm.interop.record import Record, View
from jitnorm.launcher import object_at

if TYPE_CHECKING:
    from jitnorm.dispatch import Dispatcher

_TUPLE, _SINGLE, _NONE = 0, 1, 2  # as in kernels/launcher/torch_call.h, like the next line
_SHAPE, _RECORD, _PARAMETER = -1, -2, -3


def fast_path(torch: Any, framework: Framework, dispatcher: Dispatcher) -> FastPath:
    """`Framework.fast_path` for torch.

    Args:
        torch: the module.
        framework: torch's framework, whose `types` are the types that may be passed.
        dispatcher: the op's dispatcher.
    """
    names = dispatcher.outputs.names
    result = ", ".join(f"{{{name}}}" for name in names)
    usual = usual_call(torch, framework, dispatcher, CallForm(" ".join(dispatcher.arguments), f"({result})"))

    def call(named: dict[str, Any], stream: Any) -> bool:
        made = usual(*dispatcher.in_order(named), stream)
        if made is None:
            return False
        named.update(zip(names, made, strict=True))
        return True

    return call


def usual_call(
    torch: Any, framework: Framework, dispatcher: Dispatcher, form: CallForm,
    otherwise: Callable[..., Any] | None = None,
) -> Callable[..., Any]:  # fmt: skip
    """A function of the launcher that makes a dispatcher's usual calls: `Framework.generate` for torch.

    Args:
        torch: as of `fast_path`.
        framework: as there.
        dispatcher: as there.
        form: the form of the calls.
        otherwise: makes the other calls; without it, they return None.
    """
    steps, order, record = form.steps or (Step(dispatcher),), [*form.parameters.split(), "stream"], form.record
    written = _names(steps, lambda of: of.outputs.names)
    allocated = _without(written, _names(steps, lambda of: of.outputs.updated))
    leaders = _without(_names(steps, lambda of: of.outputs.leaders), allocated)
    tensors = _names(steps, lambda of: of.names)
    arguments = [*tensors, *_without(_names(steps, lambda of: of.arguments), tensors)]
    find_patterns = _pattern_finder(torch, framework, steps, form, leaders, allocated)
    objects = _objects(torch, framework, find_patterns, form, otherwise)
    sources = [form.source(name) for name in (*arguments, "stream")]
    position_of = {name: position for position, name in enumerate((*order, *form.numbers))}
    given = [position_of.get(name, -1) for name in sources]
    place_of = {name: _PARAMETER - place for place, name in enumerate(order)}
    place_of |= {"record": _RECORD, **{name: place for place, name in enumerate(arguments)}}
    returned = re.findall(r"\{(\w+)\}", form.result)
    kind = _NONE if form.result == "None" else _TUPLE if form.result.startswith("(") else _SINGLE
    places = ([place_of[name] for name in each] for each in (written, allocated, leaders, returned))
    attributes, shaped, values = [], 0, 1
    if record is not None:
        attributes = [_SHAPE, *(place_of[name] for name in record.tensors.values())]
        shaped, values = place_of[record.shaped], record.values
    views = [number for name, view in form.taken.items() for number in (place_of[name], *view.numbers)]
    first, *later = steps
    taken = [[place_of[name] for name in step.named(step.dispatcher.arguments)] for step in steps]
    address = first.dispatcher.make_torch_call(
        len(tensors), len(order), given, *places, kind, attributes, shaped, values, views, taken[0],
        *((taken[1], later[0].dispatcher.find) if later else ([], None)), id(objects),
    )  # fmt: skip
    made: Callable[..., Any] = object_at(address)
    return made


def _names(steps: Sequence[Step], names_of: Callable[[Dispatcher], Iterable[str]]) -> list[str]:
    """The call's names of certain arguments of its launches."""
    return list(dict.fromkeys(name for step in steps for name in step.named(names_of(step.dispatcher))))


def _without(names: Iterable[str], others: Sequence[str]) -> list[str]:
    return [name for name in names if name not in others]


def _pattern_finder(
    torch: Any, framework: Framework, steps: Sequence[Step], form: CallForm, leaders: Sequence[str],
    allocated: Sequence[str],
) -> Callable[..., tuple[Any, ...] | None]:  # fmt: skip
    """A function that finds patterns for allocated outputs, given the tensors that these depend on; None if unknown."""

    def find_patterns(*given: Any) -> tuple[Any, ...] | None:
        """Tensors that outputs are allocated like; what the kernel writes, if outputs are views of it; and the shapes
        and strides of those that are a part of it.
        """
        known = dict(zip(leaders, given, strict=True))
        known |= {name: view.of(known[name], given[0]) for name, view in form.taken.items() if name in known}
        for step in steps:  # patterns of what the first launch writes lead the second
            outputs = step.dispatcher.outputs
            names = zip(outputs.leaders, step.named(outputs.leaders), strict=True)
            makers = outputs.makers_of(framework, {leader: known[name] for leader, name in names})
            patterns = [getattr(make, "pattern", None) for make in makers.values()]
            if any(each is None for each in patterns):
                return None
            known |= zip(step.named(makers), patterns, strict=True)
        found = tuple(known[name] for name in allocated)
        made = [
            _allocated(torch, each, given[0], form.views.get(name)) for name, each in zip(allocated, found, strict=True)
        ]
        return tuple(each for kind in zip(*made, strict=True) for each in kind)

    return find_patterns


def _allocated(torch: Any, pattern: Any, first: Any, view: View | None) -> tuple[Any, Any, Any]:
    """The three of `find_patterns` for a view of a tensor like a pattern; they have no memory."""
    if view is None:
        return pattern, None, None
    # Of its own, because some views need memory.
    whole = torch.empty(pattern.shape, dtype=pattern.dtype, device=pattern.device)
    viewed = view(whole, first)
    if viewed is whole:
        return pattern, None, None
    if viewed.nbytes == whole.nbytes:
        whole.untyped_storage().resize_(0)
        return viewed, pattern, None
    if viewed.dtype != whole.dtype or viewed.storage_offset() != 0:
        raise RuntimeError(f"a view of {tuple(viewed.shape)} is no first part of an output of {tuple(whole.shape)}")
    return pattern, pattern, (viewed.shape, viewed.stride())


def _objects(
    torch: Any, framework: Framework, find_patterns: Callable[..., Any], form: CallForm,
    otherwise: Callable[..., Any] | None,
) -> tuple[Any, ...]:  # fmt: skip
    """Objects of Python and torch that the launcher needs, in the order of kernels/launcher/torch_call.h.

    Each check of torch's state takes 30 to 60 ns, its public equivalent several times that.
    """
    return (
        None, Exception, RuntimeError, float, int, torch.Tensor, framework.types, torch.Tensor.is_neg, "requires_grad",
        torch._C._len_torch_dispatch_stack, torch._C._is_tracing, vars(torch.autograd.forward_ad), "_current_level",
        torch.is_grad_enabled, torch._C._increment_version, framework.note_written, find_patterns, torch.empty_like,
        stream_handle, otherwise, torch.Tensor.untyped_storage, torch.UntypedStorage.data_ptr,
        torch.UntypedStorage.nbytes, *_parts_of(form.record), tuple(form.numbers.values()),
        torch.Tensor.as_strided_, torch.Tensor.__dlpack_c_exchange_api__,
    )  # fmt: skip


def _parts_of(record: Record | None) -> tuple[Any, ...]:
    """The class of a record, its attributes with constants in place, and the names of the others."""
    if record is None:
        return None, None, None
    names = ("shape", *record.tensors)
    return record.kind, {**dict.fromkeys(names), **record.constants}, names
