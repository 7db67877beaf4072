"""Reads nodes of inductor's ATen graphs: functional, decomposed, with a fake tensor for each value."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

aten, prims = torch.ops.aten, torch.ops.prims

# These keep the elements and their order.
_RESHAPES = (
    aten.reshape.default, aten.view.default, aten._unsafe_view.default, aten.unsqueeze.default, aten.squeeze.dim,
    aten.squeeze.dims,
)  # fmt: skip


def args_of(node: Any, *overloads: Any) -> tuple[Any, ...]:
    """The arguments of a call to one of some operators; none if it is anything else."""
    is_call = isinstance(node, Node) and node.op == "call_function" and node.target in overloads and not node.kwargs
    return tuple(node.args) if is_call else ()


def fake(node: Node) -> Any:
    """The fake tensor of a node, or whatever else stands for its value."""
    return node.meta.get("val")


def is_tensor(node: Any) -> bool:
    """Whether a node is a tensor."""
    return isinstance(node, Node) and isinstance(fake(node), torch.Tensor)


def is_float32(node: Any) -> bool:
    """Whether a node is a float32 tensor."""
    return is_tensor(node) and fake(node).dtype == torch.float32


def cast_source(node: Any, dtype: torch.dtype) -> Node | None:
    """Argument of a conversion to `dtype`; None if a node is something else."""
    args = args_of(node, prims.convert_element_type.default)
    return args[0] if args and args[1] == dtype else None


def casts_of(node: Node, dtype: torch.dtype) -> tuple[Node, ...]:
    """The nodes that convert a node to `dtype`."""
    return tuple(user for user in node.users if cast_source(user, dtype) is node)


def is_reshape(node: Any) -> bool:
    """Whether a node has the elements of its argument in their order, with another shape."""
    return bool(args_of(node, *_RESHAPES))


def below(node: Any) -> Iterator[Node]:
    """Yield a node, then the node that it reshapes or widens, and so on."""
    while isinstance(node, Node):
        yield node
        node = node.args[0] if is_reshape(node) else cast_source(node, torch.float32)


def largest_of(node: Any) -> Node | None:
    """Argument of a maximum along the last dimension, by either function; None if a node is something else."""
    args = args_of(node, aten.amax.default)
    if not args:
        picked = args_of(node, operator.getitem)
        args = args_of(picked[0], aten.max.dim) if picked and picked[1] == 0 else ()
    return args[0] if len(args) > 1 and is_last(args[1], args[0]) else None


def is_last(dims: Any, node: Node) -> bool:
    """Whether dimensions are only the last one of a node."""
    dims = list(dims) if isinstance(dims, (list, tuple)) else [dims]
    return dims in ([-1], [fake(node).ndim - 1])


def same_shape(one: Any, other: Any) -> bool:
    """Whether two shapes are certainly the same, even with symbols in them."""
    return len(one) == len(other) and all(statically_known_true(a == b) for a, b in zip(one, other, strict=True))


def is_row_major(tensor: Any) -> bool:
    """Whether a fake tensor is certainly contiguous."""
    step: Any = 1
    for size, stride in zip(reversed(tensor.shape), reversed(tensor.stride()), strict=True):
        if not statically_known_true(size == 1) and not statically_known_true(stride == step):
            return False
        step = step * size
    return True
