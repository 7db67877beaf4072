"""Stand-ins that torch.compile traces in place of public functions: each is one node of Dynamo's graph.

Dynamo runs the node with fake tensors, and the graph's compiler traces it down to operators of ``torch.ops.jitnorm``.
Only tensors can leave a node, so a resulting `QuantizedTensor` is assembled in the traced program; one that is passed
in is taken apart there, because within `torch.cond`, checkpoints and the like, its parts are not tensors yet.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from jitnorm.catalogue import OPS
from jitnorm.catalogue.op import Op
from jitnorm.comm.calls import Reduced
from jitnorm.comm.workspace import Workspace, workspace_named
from jitnorm.quantized import QuantizedTensor, leaves_of, of_leaves


def stand_in(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function with the same arguments and result that Dynamo can trace."""

    # With explicit keywords, Dynamo would mistake `out` for that of a torch operator.
    def node(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = function(*map(_whole, args), **{name: _whole(value) for name, value in kwargs.items()})
        parts = result if type(result) is tuple else (result,)
        _last[:] = map(_described, parts)
        flat = [leaf for part in parts for leaf in _tensors_of(part)]
        return flat[0] if len(flat) == 1 else flat

    node.__name__ = function.__name__
    torch._dynamo.allow_in_graph(node)

    def traced(*args: Any, **kwargs: Any) -> Any:
        flat = node(tuple(map(_apart, args)), {name: _apart(value) for name, value in kwargs.items()})
        return _restored([flat] if flat is None or isinstance(flat, torch.Tensor) else flat, _descriptions())

    return traced


def stand_in_over_ranks(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same for a call over ranks, whose workspace enters the node by name."""

    def by_name(input: Any, weight: Any, workspace: str, **options: Any) -> tuple[Any, ...]:
        return tuple(function(input, weight, workspace_named(workspace), **options))

    by_name.__name__ = function.__name__
    traced = stand_in(by_name)

    def traced_over_ranks(input: Any, weight: Any, workspace: Workspace, **options: Any) -> Reduced:
        return Reduced(*traced(input, weight, workspace.name, **options))

    return traced_over_ranks


_APART, _NAMED = "a QuantizedTensor", "an op"


def _apart(value: Any) -> Any:
    if isinstance(value, Op):  # no constant to Dynamo, as its name is
        return _NAMED, value.name
    return (_APART, *leaves_of(value)) if isinstance(value, QuantizedTensor) else value


def _whole(value: Any) -> Any:
    """The inverse of `_apart`."""
    if not isinstance(value, tuple) or not value or not isinstance(value[0], str):
        return value
    return of_leaves(*value[1:]) if value[0] == _APART else OPS[value[1]] if value[0] == _NAMED else value


# The non-tensor parts of the last node's result.
_last: list[str] = []


def _descriptions() -> str:
    return ";".join(_last)


vars(_descriptions)["_dynamo_marked_constant"] = True  # Dynamo calls it while it traces, right after the node


def _tensors_of(part: Any) -> list[Any]:
    return leaves_of(part)[0] if isinstance(part, QuantizedTensor) else [part]


def _described(part: Any) -> str:
    if not isinstance(part, QuantizedTensor):
        return ""
    leaves, kind = leaves_of(part)
    return " ".join(map(str, (len(leaves), *kind)))


def _restored(flat: Any, descriptions: str) -> Any:
    """Restore the result of a public function from its node's outputs."""
    parts, place = [], 0
    for described in descriptions.split(";"):
        if described:
            count, spec, axis, batched = described.split(" ")
            parts.append(of_leaves(flat[place : place + int(count)], (spec, int(axis), batched == "True")))
            place += int(count)
        else:
            parts.append(flat[place])
            place += 1
    return parts[0] if len(parts) == 1 else tuple(parts)
