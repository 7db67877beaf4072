"""Calls with DTensors: each process computes its own part of the result, for rows that belong to one process."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

from jitnorm.dispatch import Dispatcher
from jitnorm.interop import check_gradient, framework_of
from jitnorm.ops.gradients import gradient_of
from jitnorm.ops.run import run
from jitnorm.torch.gradients import is_differentiated

Placements = tuple[Any, ...]
Shapes = dict[str, tuple[int, ...]]


def call(dispatcher: Dispatcher, tensors: tuple[Any, ...], numbers: tuple[float, ...]) -> tuple[Any, ...]:
    """Make a call with DTensors on one mesh, like `routing.call`.

    Raises:
        TypeError: a tensor is not a DTensor, or is placed so that a process lacks what its part of the result needs.
    """
    named = dict(zip(dispatcher.arguments, (*tensors, *numbers), strict=True))
    leader = named[dispatcher.outputs.leaders[0]]
    for name in dispatcher.outputs.updated:
        raise TypeError(f"{name}: is written in part, by all processes; call the op with local tensors from to_local()")
    placed = {name: named[name] for name in dispatcher.names if named[name] is not None}
    for name, tensor in placed.items():
        is_output = name in dispatcher.outputs.names
        _check(name, tensor, leader)
        if gradient_of(dispatcher.op) is None:
            check_gradient(tensor, name, is_output)
        elif is_output and is_differentiated(tensors):
            raise TypeError(f"{name}: is written, which gradients of DTensors do not allow; use a form that allocates")
        if not is_output:
            _check_placements(name, tensor, leader.placements if name in dispatcher.outputs.of_rows else None)
    local = {name: _local(name, value, leader, dispatcher) for name, value in named.items()}
    whole, part = _output_shapes(dispatcher, named), _output_shapes(dispatcher, local)
    places = {name: _placements(dispatcher, name, whole[name], part[name], leader) for name in whole}
    for name, expected in places.items():
        if named[name] is not None:
            _check_placements(name, named[name], expected)
    made = run(dispatcher, local, None)
    for name, placements in places.items():
        if named[name] is None:
            shape = whole[name]
            strides = tuple(prod(shape[i + 1 :]) for i in range(len(shape)))
            named[name] = DTensor.from_local(
                made[name], leader.device_mesh, placements, run_check=False, shape=shape, stride=strides
            )
    return dispatcher.in_order(named)[: dispatcher.tensor_count]


def _local(name: str, value: Any, leader: Any, dispatcher: Dispatcher) -> Any:
    """The process's part of a DTensor; a parameter's gradient is that of the process's own rows."""
    if not isinstance(value, DTensor):
        return value
    if name in dispatcher.outputs.of_rows or not value.requires_grad:
        return value.to_local()
    parts = [Partial() if isinstance(each, Shard) else Replicate() for each in leader.placements]
    return value.to_local(grad_placements=parts)


def _check(name: str, tensor: Any, leader: Any) -> None:
    """Raise TypeError unless a tensor of a call is compatible with its first one."""
    if not isinstance(tensor, DTensor):
        raise TypeError(f"{name}: is a plain tensor beside DTensors; distribute it, for parameters with Replicate()")
    if tensor.device_mesh != leader.device_mesh:
        raise TypeError(f"{name}: is on {tensor.device_mesh}, other tensors on {leader.device_mesh}; use one mesh")


def _check_placements(name: str, tensor: Any, expected: Placements | None) -> None:
    """Raise TypeError unless a tensor is placed as expected: replicated if that is None."""
    for i, placement in enumerate(tensor.placements):
        wanted = Replicate() if expected is None else expected[i]
        along_rows = isinstance(placement, Shard) and placement.dim < tensor.ndim - 1
        if placement != wanted or not (placement.is_replicate() or along_rows):
            allowed = str(wanted) if placement != wanted else "Replicate() and Shard() along rows"
            raise TypeError(
                f"{name}: has the placements {tensor.placements}; allowed are {allowed}, so redistribute it"
            )


def _output_shapes(dispatcher: Dispatcher, named: dict[str, Any]) -> Shapes:
    leaders = [named[name] for name in dispatcher.outputs.leaders]
    dtype = framework_of(leaders[0], dispatcher.outputs.leaders[0]).dtype_name(leaders[0])
    # As in any traced program, only the number of rows may be a symbol.
    found = dispatcher.outputs.of([(*each.shape[:-1], *map(int, each.shape[-1:])) for each in leaders], dtype)
    return {name: shape for name, (shape, _) in found.items()}


def _placements(
    dispatcher: Dispatcher, name: str, whole: Sequence[int], part: Sequence[int], leader: Any
) -> Placements:
    """The placements of an output, given its shape and that of a process's part."""
    placements: Placements = tuple(leader.placements)
    shards = [(i, each) for i, each in enumerate(placements) if isinstance(each, Shard)]
    leading = tuple(leader.shape[:-1])
    keeps_rows = name in dispatcher.outputs.of_rows and tuple(whole[: len(leading)]) == leading
    if keeps_rows or not shards:
        return placements
    # One dimension stands for all rows: parts of whole rows are consecutive in it if they are equal.
    if len(shards) == 1 and shards[0][1].dim == 0:
        processes = leader.device_mesh.size(shards[0][0])
        rows = prod(leader.shape[:-1]) // processes
        is_even = leader.shape[0] % processes == 0 and rows % _rows_together(dispatcher) == 0
        if is_even and part[0] * processes == whole[0]:
            return placements
    raise TypeError(
        f"{dispatcher.outputs.leaders[0]}: has the placements {placements}, but {name} is made of rows of all "
        "processes; redistribute it to Replicate()"
    )


def _rows_together(dispatcher: Dispatcher) -> int:
    """The number of rows that share scales or a tile of them; 1 in a batch, whose matrices share none."""
    quant = dispatcher.options.get("quant")
    return 1 if quant is None or dispatcher.options.get("batched") else max(quant.row_multiple, quant.block_rows)
