"""Replaces the nodes of a norm and its quantization by an op."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.fx.node import map_arg

from jitnorm.catalogue.encoding_norms import ADD_NORM_QUANTIZE, NORM_QUANTIZE
from jitnorm.catalogue.norms import ADD_RMSNORM, GEMMA_ADD_RMSNORM, GEMMA_RMSNORM, RMSNORM
from jitnorm.dispatch import Dispatcher, dispatcher_of
from jitnorm.torch.fusion.fp8 import Encoding
from jitnorm.torch.fusion.nodes import args_of, aten, fake, is_row_major, same_shape
from jitnorm.torch.fusion.norms import Norm
from jitnorm.torch.schemas import config_text

_NORMS = {
    (False, False): RMSNORM, (True, False): ADD_RMSNORM, (False, True): GEMMA_RMSNORM, (True, True): GEMMA_ADD_RMSNORM,
}  # fmt: skip
_UNBATCHED = (False, False, False)
_Size = int | tuple[int]  # a number, -1 for the rest, or the index of a dimension of the input


class NotFused(Exception):  # noqa: N818 - no error: the program stays as it is
    """Why the nodes of a norm are left alone."""


def fuse(graph: Graph, norm: Norm, encodings: Sequence[Encoding]) -> Dispatcher:
    """Replace a norm and its quantization by one op.

    Args:
        graph: the graph.
        norm: the norm.
        encodings: equal quantizations of it; none for just the norm.

    Returns:
        the dispatcher of the op's calls.

    Raises:
        NotFused: the program needs a value that the op does not return, or returns differently; nothing is changed.
    """
    scale = encodings[0].scale if encodings else None
    inputs = [node for node in (norm.x, norm.residual, norm.weight, scale) if node is not None]
    if torch.is_grad_enabled() and any(fake(node).requires_grad for node in inputs):
        raise NotFused("a tensor requires grad and is not compiled under torch.no_grad()")
    results = dict.fromkeys(norm.results, "norm") | dict.fromkeys(norm.sums, "sum")
    for each in encodings:
        results |= {each.codes: "codes"} | dict.fromkeys(each.scales, "scales")
    region = _between(inputs, results)
    needed = {node: [user for user in node.users if user not in region] for node in region}
    needed = {node: users for node, users in needed.items() if users}
    results |= {
        node: "shape" for node, users in needed.items() if node not in results and _only_shape(node, users, norm.x)
    }
    last = _last(inputs)
    _check(needed, results, last)
    sizes = {node: _sizes(node, norm.x) for node in needed}
    dispatcher = _dispatcher(norm, encodings, "norm" in {results[node] for node in needed})
    with graph.inserting_before(last.next):
        outputs = {**_inserted(graph, dispatcher, norm, scale), "shape": norm.x}
        for node, users in needed.items():
            output = outputs[results[node]]
            if not same_shape(fake(output).shape, fake(node).shape):
                output = _reshaped(graph, norm.x, output, sizes[node])
            for user in users:
                user.replace_input_with(node, output)
    for node in reversed(region):
        graph.erase_node(node)
    return dispatcher


def _between(inputs: Sequence[Node], results: Iterable[Node]) -> dict[Node, None]:
    """The nodes that compute results from inputs, in order."""
    found: set[Node] = set()
    rest = list(results)
    while rest:
        node = rest.pop()
        if node not in found and node not in inputs and not isinstance(fake(node), (int, torch.SymInt)):
            found.add(node)
            rest.extend(node.all_input_nodes)
    return dict.fromkeys(sorted(found))


def _last(inputs: Sequence[Node]) -> Node:
    """The node after which all inputs are available."""
    last = max(inputs)
    while last.next.op == "placeholder":
        last = last.next
    return last


def _check(needed: Mapping[Node, Sequence[Node]], results: Mapping[Node, str], last: Node) -> None:
    """Raise NotFused if an op cannot provide what the program needs, when it needs it."""
    if not needed:
        raise NotFused("the program uses the norm in float32, which no op gives")
    for node, users in needed.items():
        if node not in results:
            raise NotFused(f"the program also uses {node.name}, which no op gives")
        if not is_row_major(fake(node)):
            raise NotFused(f"the rows of {node.name} do not follow each other")
        if any(user <= last for user in users):
            raise NotFused(f"the program needs {node.name} before {last.name} is known")


def _sizes(node: Node, x: Node) -> list[_Size]:
    """The shape of a node."""
    dims, found = fake(x).shape, list[_Size]()
    for size in fake(node).shape:
        same = (i for i, dim in enumerate(dims) if statically_known_true(dim == size))
        place = next(same, None)
        found.append(size if isinstance(size, int) else -1 if place is None else (place,))
    if found.count(-1) > 1:
        raise NotFused(f"the shape of {node.name} has several symbols that the shape of {x.name} lacks")
    return found


def _dispatcher(norm: Norm, encodings: Sequence[Encoding], keep_norm: bool) -> Dispatcher:
    if not encodings:
        return dispatcher_of(_NORMS[norm.residual is not None, norm.unit_bias], None)
    op, residual = (NORM_QUANTIZE, (False,)) if norm.residual is None else (ADD_NORM_QUANTIZE, ())
    return dispatcher_of(op, None, encodings[0].spec, *residual, norm.unit_bias, False, keep_norm, False, _UNBATCHED)


def _inserted(graph: Graph, dispatcher: Dispatcher, norm: Norm, scale: Node | None) -> dict[str, Node]:
    """The nodes of the op's outputs."""
    options: dict[str, Any] = {"config": config_text(dispatcher.op, dispatcher.options)}
    if scale is not None:
        options["scale"] = _call(graph, norm.x, aten.reshape.default, scale, [1])
    tensors = [node for node in (norm.x, norm.residual, norm.weight) if node is not None]
    operation = getattr(torch.ops.jitnorm, dispatcher.op.name).default
    made = _call(graph, norm.root, operation, *tensors, norm.eps, **options)
    is_encoded = dispatcher.options.get("quant") is not None
    meaning = {"out": "codes" if is_encoded else "norm", "y_out": "norm", "residual_out": "sum"}
    names = [meaning.get(name, "scales") for name in dispatcher.outputs.names]
    if isinstance(fake(made), torch.Tensor):
        return {names[0]: made}
    return {name: _call(graph, norm.root, operator.getitem, made, i) for i, name in enumerate(names)}


def _only_shape(node: Node, users: Sequence[Node], x: Node) -> bool:
    """Whether users need only the shape of a node, which a form of the input has, too."""
    same_count = same_shape((fake(node).numel(),), (fake(x).numel(),))
    return same_count and all(args_of(user, aten.sym_size.int) for user in users)


def _reshaped(graph: Graph, x: Node, output: Node, sizes: Sequence[_Size]) -> Node:
    shape = [_call(graph, x, aten.sym_size.int, x, size[0]) if isinstance(size, tuple) else size for size in sizes]
    return _call(graph, output, aten.reshape.default, output, shape)


def _call(graph: Graph, like: Node, target: Any, *args: Any, **kwargs: Any) -> Node:
    """Insert a call, with another node's place in the program."""
    node = graph.call_function(target, args, kwargs)
    given, named = map_arg((args, kwargs), fake)
    with fake(like).fake_mode, torch.no_grad():
        node.meta["val"] = target(*given, **named)
    node.meta["stack_trace"] = like.meta.get("stack_trace")
    return node
